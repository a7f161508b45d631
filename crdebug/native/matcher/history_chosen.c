/* Of a log's calls, those that a question is about, and little of each: a record has millions. */
#include "history_log.h"

struct series { /* the collectives of one communicator, in order */
    struct column numbers; /* int64_t: of the calls, from 0 */
    struct column likes; /* uint64_t: the same of calls that fit each other */
};

/* Calls by their numbers, from 0: those of some kinds (a bit for each) and those that failed, from `first`
 * on, but no more than `most`. completes: of all of them. Returns the number from which to go on. */
EXPORTED uint64_t crdebug_log_calls(const struct log *log, const struct function *functions,
                                    uint64_t first, uint64_t most, uint64_t kinds,
                                    struct call *calls, struct column *completes, int64_t *found) {
    struct column own = {0};
    uint64_t number = first - first % STEP;
    completes->count = *found = 0;
    if (first >= log->calls) return first;
    struct cursor at = AT(log->marks, struct cursor, first / STEP);
    while (number < log->calls && (uint64_t)*found < most) {
        struct call call;
        log_next(log, &at, functions, &call, &own, NULL);
        if (call.function == DEFINITION || number++ < first) continue;
        if (!(kinds >> call.kind & 1) && !call.failed) continue;
        for (uint64_t k = 0; k < call.completes_count; k++)
            PUSH(*completes, int64_t, call.completes[k]);
        calls[(*found)++] = call;
    }
    column_free(&own);
    return number;
}

/* The functions, kinds (5 bits) and sites (16 bits) of the calls of these ticks, which are in order; -1
 * for what is not on record. */
EXPORTED void crdebug_log_heads(const struct log *log, const struct function *functions,
                                const int64_t *ticks, uint64_t count, int32_t *heads) {
    struct column unused = {0};
    struct cursor at = {0};
    struct call call = {0};
    bool read = false;
    for (uint64_t k = 0; k < count; k++) {
        int64_t tick = ticks[k];
        heads[k] = -1;
        if (tick <= log->begin.tick || tick > log->at.tick) continue;
        if (!read || tick < call.tick || tick - at.tick > STEP) {
            uint64_t later = first_by(&log->marks, sizeof(struct cursor), tick);
            at = AT(log->marks, struct cursor, later - 1);
            read = false;
        }
        while (!read || call.function == DEFINITION || at.tick < tick) {
            log_next(log, &at, functions, &call, &unused, NULL);
            read = true;
        }
        heads[k] = call.function << 21 | call.kind << 16 | call.site;
    }
    column_free(&unused);
}

static uint64_t mixed(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* What members have to give alike: calls of which it is the same need not be compared. Where they may
 * differ (bytes of MPI_Gatherv), it does not say. */
static uint64_t like(const struct log *log, const struct function *function,
                     const struct call *call) {
    const uint64_t *sites = (const uint64_t *)(log->map + CRDEBUG_LOG_HEADER) - CRDEBUG_SITES;
    bool rooted = function->shape == S_FROM_ROOT || function->shape == S_TO_ROOT;
    uint64_t hash = mixed(0, (uint64_t)call->function);
    hash = mixed(hash, sites[call->site] >> 48); /* types and operation */
    hash = mixed(hash, rooted ? (uint32_t)call->peer : 0);
    return mixed(hash, function->special & F_SAME_SIZE ? (uint64_t)call->bytes : 0);
}

/* The calls that the members of a communicator or a window make together. found: of struct series, by
 * communicator. */
EXPORTED void crdebug_log_together(const struct log *log, const struct function *functions,
                                   struct column *found) {
    struct column unused = {0};
    struct cursor at = log->begin;
    for (uint64_t number = 0; number < log->calls;) {
        struct call call;
        log_next(log, &at, functions, &call, &unused, NULL);
        if (call.function == DEFINITION) continue;
        const struct function *function = &functions[call.function];
        uint64_t own = number++;
        bool collective = call.kind == K_COLLECTIVE || call.kind == K_POST_COLLECTIVE ||
                          call.kind == K_COMM || function->special & F_OF_WINDOW;
        bool refused = call.failed && call.failed <= CRDEBUG_ARGUMENT_ERRORS;
        if (!collective || refused || function->special & F_BY_GROUP || call.comm <= C_SELF)
            continue;
        while (found->count <= (uint64_t)call.comm) PUSH(*found, struct series, (struct series){0});
        struct series *series = &AT(*found, struct series, call.comm);
        PUSH(series->numbers, int64_t, (int64_t)own);
        PUSH(series->likes, uint64_t, like(log, function, &call));
    }
    column_free(&unused);
}

EXPORTED void crdebug_together_free(struct column *found) {
    for (uint64_t k = 0; k < found->count; k++) {
        column_free(&AT(*found, struct series, k).numbers);
        column_free(&AT(*found, struct series, k).likes);
    }
    column_free(found);
}
