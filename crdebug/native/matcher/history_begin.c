/* A log whose record does not begin with the rank's first call. */
#include "history_log.h"

/* Where it begins; before anything is read. */
EXPORTED void crdebug_log_begin(struct log *log, uint64_t place, int64_t tick, uint64_t posted) {
    log->begin = log->at = (struct cursor){tick, place, posted};
}

/* A request from before that, in the order of their numbers. */
EXPORTED void crdebug_log_old(struct log *log, uint64_t number, int64_t tick, uint64_t place,
                              int32_t slot) {
    PUSH(log->old, struct old, ((struct old){number, tick, place, slot}));
}

/* What a call from before that has prepared; all of them, in order. history: NULL, or where it is read to. */
EXPORTED void crdebug_log_prepare(struct log *log, struct history *history,
                                  const struct function *functions, const struct call *call) {
    log_prepared(log, history, functions, call);
}

EXPORTED const struct column *crdebug_log_prepares(const struct log *log) { return &log->prepares; }

/* In a history, what a call prepared is as a communicator, and the other way round, or -1. */
EXPORTED int32_t crdebug_log_prepared_comm(const struct log *log, uint64_t number) {
    return AT(log->prepared, struct prepared, number).comm;
}

EXPORTED int64_t crdebug_log_prepared_as(const struct log *log, int32_t comm) {
    for (uint64_t k = 0; k < log->prepared.count; k++)
        if (AT(log->prepared, struct prepared, k).comm == comm) return (int64_t)k;
    return -1;
}

/* Where the record begins if all up to a tick is given up: behind its call; before it if it is one of a
 * run of calls that said no, which a rank may be in the midst of. False if it was not read. */
EXPORTED bool crdebug_log_cursor(const struct log *log, const struct function *functions,
                                 int64_t tick, struct cursor *found) {
    uint64_t later = first_by(&log->marks, sizeof(struct cursor), tick);
    struct cursor at = later ? AT(log->marks, struct cursor, later - 1) : log->begin;
    struct column completes = {0};
    struct call call = {0};
    *found = at;
    while (call.tick + call.repeats <= tick && at.place < log->at.place) {
        struct cursor before = at;
        log_next(log, &at, functions, &call, &completes, NULL);
        if (call.function == DEFINITION) call.repeats = call.tick = 0;
        else *found = call.kind == K_NOTHING || call.tick > tick ? before : at;
    }
    column_free(&completes);
    return tick <= log->begin.tick || call.tick + call.repeats > tick;
}

/* The number of a request by its posting; slot: 0, or which of an MPI_Startall. -1 if there is none. */
EXPORTED int64_t crdebug_log_number(const struct log *log, int64_t tick, int32_t slot) {
    for (uint64_t k = 0; tick <= log->begin.tick && k < log->old.count; k++) {
        const struct old *old = &AT(log->old, struct old, k);
        if (old->tick == tick && old->slot == slot) return (int64_t)old->number;
    }
    uint64_t at = first_at(&log->posted, tick);
    if (tick <= log->begin.tick || at == log->posted.count || AT(log->posted, int64_t, at) != tick)
        return -1;
    return (int64_t)(log->begin.posted + at) + (slot ? slot - 1 : 0);
}

EXPORTED int64_t crdebug_log_place(const struct log *log, const struct function *functions,
                                   int64_t tick) {
    return log_place(log, functions, tick);
}

EXPORTED void crdebug_history_blind(struct history *history, int32_t rank, int64_t blind,
                                    int64_t last) {
    history_rank(history, rank)->blind = blind;
    history_rank(history, rank)->last = last;
}
