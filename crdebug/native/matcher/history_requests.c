/* A rank's log: its requests, which calls start, cancel and free. */
#include "history_log.h"

static const struct old *old_at(const struct log *log, uint64_t number) {
    uint64_t at = first_by(&log->old, sizeof(struct old), (int64_t)number);
    const struct old *old = log->old.data;
    return at < log->old.count && old[at].number == number ? old + at : NULL;
}

int64_t log_posted(const struct log *log, uint64_t number) {
    if (number >= log->begin.posted) return AT(log->posted, int64_t, number - log->begin.posted);
    const struct old *old = old_at(log, number);
    return old != NULL ? old->tick : 0;
}

int32_t log_slot(const struct log *log, uint64_t number) {
    if (number < log->begin.posted) return old_at(log, number)->slot;
    number -= log->begin.posted;
    int64_t tick = AT(log->posted, int64_t, number);
    uint64_t first = number;
    while (first && AT(log->posted, int64_t, first - 1) == tick) first--;
    bool only = first == number &&
                (number + 1 == log->posted.count || AT(log->posted, int64_t, number + 1) != tick);
    return only ? 0 : (int32_t)(number - first + 1);
}

void log_started(const struct log *log, uint64_t flags, struct call *c) {
    if ((flags & (CRDEBUG_PACKED | CRDEBUG_TOGETHER)) == CRDEBUG_TOGETHER) {
        struct prepared other = {.kind = K_OTHER, .comm = C_NONE, .peer = NONE, .tag = NONE},
                        *as = &other;
        if (c->tag > 0 && (uint64_t)c->tag <= log->prepared.count)
            as = &AT(log->prepared, struct prepared, c->tag - 1);
        c->kind = as->kind;
        c->comm = as->comm;
        c->peer = as->peer;
        c->tag = as->tag;
        c->bytes = as->bytes;
        c->wild = 0;
        return;
    }
    bool receive = flags & CRDEBUG_PACKED;
    c->kind = receive ? K_POST_RECV : K_POST_SEND;
    c->wild = receive ? wild_of(flags) : 0;
    if (!receive)
        c->mode = flags & CRDEBUG_SYNCHRONOUS ? M_SYNCHRONOUS
                  : flags & CRDEBUG_BUFFERED  ? M_BUFFERED
                                              : 0;
}

/* ---- requests ----------------------------------------------------------------------------------- */

void log_start_all(const struct log *log, struct history *h, const struct call *call) {
    struct call one = *call;
    one.kind = K_OTHER;
    history_read(h, &one);
    uint64_t count = record_at(log, (uint64_t)call->place)->head >> 32;
    for (one.slot = 1; (uint64_t)one.slot <= count; one.slot++) {
        const uint32_t *words = slot_of(record_at(log, (uint64_t)call->place), one.slot);
        const struct comm *comm =
            comm_at(&log->comms, words[CRDEBUG_SLOT_COMM], (uint64_t)call->place);
        uint32_t peer = words[CRDEBUG_SLOT_PEER] & PEER_MOST,
                 flags = words[CRDEBUG_SLOT_PEER] >> 20;
        if (peer == PROC_NULL && (flags & CRDEBUG_TOGETHER) != CRDEBUG_TOGETHER) continue;
        one.comm = comm != NULL ? (int32_t)comm->id : C_NONE;
        one.peer = coded(comm, peer); /* none: a request that the layer does not know */
        one.tag = tag_of(words[CRDEBUG_SLOT_TAG]);
        one.bytes = words[CRDEBUG_SLOT_SIZE];
        log_started(log, flags, &one);
        history_read(h, &one);
    }
}

void log_prepared(struct log *log, struct history *h, const struct function *functions,
                  const struct call *call) {
    bool collective = call->kind == K_COLLECTIVE,
         gets = functions[call->function].special & F_RECEIVES;
    int32_t number = h != NULL ? history_prepare(h, call) : 0;
    struct prepared as = {.kind = collective ? K_POST_COLLECTIVE
                                  : gets     ? K_POST_RECV
                                             : K_POST_SEND,
                          .comm = number ? number : call->comm,
                          .peer = call->peer,
                          .tag = call->tag,
                          .bytes = call->bytes};
    PUSH(log->prepared, struct prepared, as);
    PUSH(log->prepares, struct call, *call);
}

int64_t log_place(const struct log *log, const struct function *functions, int64_t tick) {
    const struct old *old = log->old.data;
    for (uint64_t k = 0; tick <= log->begin.tick && k < log->old.count; k++)
        if (old[k].tick == tick) return (int64_t)old[k].place;
    if (tick <= log->begin.tick) return -1;
    uint64_t later = first_by(&log->marks, sizeof(struct cursor), tick);
    struct cursor at = AT(log->marks, struct cursor, later - 1);
    struct column unused = {0};
    struct call call;
    do log_next(log, &at, functions, &call, &unused, NULL);
    while (call.function == DEFINITION || call.tick < tick);
    column_free(&unused);
    return call.place;
}

bool log_cancelling(const struct log *log, int64_t tick) {
    for (uint64_t k = 0; k < log->cancels.count; k++)
        if (AT(log->cancels, struct cancel, k).tick <= tick) return true;
    for (uint64_t k = 0; k < log->cancelled.count; k++) {
        const struct span *span = &AT(log->cancelled, struct span, k);
        if (span->from <= tick && tick < span->to) return true;
    }
    return false;
}

/* What the record of the posting says of one that MPI_Cancel was called for. */
static void outcome(const struct log *log, const struct function *functions,
                    const struct cancel *cancel, bool *done, bool *cancelled) {
    const struct crdebug_record *record = posting_at(log, cancel->place);
    uint64_t head = record != NULL ? record->head : 0;
    if (functions[head & 0x1ff].special & F_STARTALL) {
        int64_t slot = cancel->slot ? cancel->slot : 1;
        uint32_t flags = slot_of(record, slot)[CRDEBUG_SLOT_PEER];
        *done = flags & CRDEBUG_SLOT_DONE;
        *cancelled = flags & CRDEBUG_SLOT_CANCELLED;
    } else {
        *done = head & FLAG(CRDEBUG_DONE);
        *cancelled = head & FLAG(CRDEBUG_ODD);
    }
}

void log_cancels(struct log *log, struct history *h, const struct function *functions,
                 struct call *call) {
    uint64_t age = record_at(log, (uint64_t)call->place)->head >> 32, number = log->at.posted - age;
    bool frees = functions[call->function].special & F_FREES && age && age <= log->at.posted;
    if (call->kind == K_CANCEL && age && age <= log->at.posted) {
        int64_t posted = log_posted(log, number);
        int64_t place = posted ? log_place(log, functions, posted) : -1;
        if (place >= 0)
            PUSH(log->cancels, struct cancel,
                 ((struct cancel){number, (uint64_t)place, log_slot(log, number), call->tick}));
    }
    if (call->kind != K_COMPLETE && !frees) return;
    for (uint64_t k = 0; k < log->cancels.count;) {
        struct cancel *each = &AT(log->cancels, struct cancel, k);
        int64_t tick = log_posted(log, each->posted);
        bool done = frees && each->posted == number, settled, cancelled;
        for (uint64_t n = 0; n < call->completes_count && !frees && !done; n++)
            done = call->completes[n] == tick && call->slots[n] == each->slot;
        outcome(log, functions, each, &settled, &cancelled);
        if (done && cancelled) history_cancelled(h, call->rank, tick, each->slot);
        if (done && frees && settled) {
            log->completes.count = log->slots.count = 0;
            PUSH(log->completes, int64_t, tick);
            PUSH(log->slots, int32_t, each->slot);
            call->completes = log->completes.data;
            call->slots = log->slots.data;
            call->completes_count = 1;
        }
        if (done) PUSH(log->cancelled, struct span, ((struct span){each->tick, call->tick}));
        if (done) *each = AT(log->cancels, struct cancel, --log->cancels.count);
        else k++;
    }
}

/* Which call posted a request, and which of an MPI_Startall's it is: age 1 is the last that was posted.
 * Returns its tick, or 0. */
EXPORTED int64_t crdebug_log_posting(const struct log *log, uint64_t age, int32_t *slot) {
    if (age == 0 || age > log->at.posted) return 0;
    int64_t tick = log_posted(log, log->at.posted - age);
    *slot = tick ? log_slot(log, log->at.posted - age) : 0;
    return tick;
}
