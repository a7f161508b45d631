/* What of a history is needed behind a place from which on the record begins: what others have, or will
 * have, from calls before it.
 *
 * All rules have the form "P's call completes only if Q has entered its call". Where both are before the
 * place, nobody can break the rule any more. So messages stay of which one end is behind it, and receives
 * that are still open; collectives, and rounds of messages of partitions, from the first on that not all
 * have called before it, for they are counted; and all that was prepared, which is counted too. */
#include <stdlib.h>

#include "history_kept.h"

int32_t function_with(const struct history *h, int32_t special) {
    int32_t number = 1;
    while (number < 511 && !(h->functions[number].special & special)) number++;
    return number;
}

struct call *keep(const struct place *p, int32_t rank, int64_t tick, enum kind kind) {
    struct kept kept = {.call = {.tick = tick,
                                 .repeats = 1,
                                 .place = -1,
                                 .rank = rank,
                                 .kind = (int32_t)kind,
                                 .comm = C_NONE,
                                 .peer = NONE,
                                 .tag = NONE,
                                 .peer2 = NONE,
                                 .tag2 = NONE}};
    PUSH(*p->found, struct kept, kept);
    return &AT(*p->found, struct kept, p->found->count - 1).call;
}

void keep_of(const struct place *p, int64_t of, int32_t slot) {
    struct kept *kept = &AT(*p->found, struct kept, p->found->count - 1);
    kept->of = of;
    kept->of_slot = slot;
}

void keep_done(const struct place *p, int32_t rank, int64_t done, int64_t of, int32_t slot) {
    if (done == of || !is_past(p, rank, done)) return;
    keep(p, rank, done, K_COMPLETE);
    keep_of(p, of, slot);
}

/* Which of an MPI_Startall's it is, from 1; 0 of one that was started alone. sign: -1 of a send. */
static int32_t slot_of_row(const struct rank *r, int64_t tick, int64_t row, int sign) {
    struct took *end, *each = took_from(&r->started, tick, &end);
    for (; each < end; each++)
        if (each->what == row && each->number * sign > 0) return (int32_t)(each->number * sign);
    return 0;
}

/* ---- messages ----------------------------------------------------------------------------------- */

static bool is_open(const struct place *p, int32_t rank, uint64_t row) {
    return !is_past(p, rank, AT(history_rank(p->h, rank)->receives.done, int64_t, row));
}

static void keep_sends(const struct place *p, int32_t rank) {
    const struct sends *s = &history_rank(p->h, rank)->sends;
    for (uint64_t row = 0; row < s->tick.count && is_past(p, rank, AT(s->tick, int64_t, row));
         row++) {
        int32_t peer = AT(s->peer, int32_t, row), partner = AT(s->partner, int32_t, row);
        int64_t tick = AT(s->tick, int64_t, row), done = AT(s->done, int64_t, row);
        if (AT(s->comm, int32_t, row) < C_NONE || AT(s->cancelled, uint8_t, row)) continue;
        if (partner != UNMATCHED && !is_open(p, peer, (uint64_t)partner) &&
            is_past(p, peer, AT(history_rank(p->h, peer)->receives.tick, int64_t, partner)))
            continue;
        struct call *call = keep(p, rank, tick, done == tick ? K_SEND : K_POST_SEND);
        call->comm = AT(s->comm, int32_t, row);
        call->peer = peer;
        call->tag = AT(s->tag, int32_t, row);
        call->bytes = AT(s->bytes, int64_t, row);
        call->mode = AT(s->mode, uint8_t, row);
        call->slot = slot_of_row(history_rank(p->h, rank), tick, (int64_t)row, -1);
        keep_done(p, rank, done, tick, call->slot);
    }
}

/* The receive that a matched probe took: NULL, or what has received it, of tick 0 if nothing has. */
static const struct took *probed(const struct rank *r, int64_t row) {
    static const struct took nothing;
    for (uint64_t k = 0; k < r->grabbed.count; k++)
        if (AT(r->grabbed, int32_t, k) == row) return &nothing;
    for (uint64_t k = 0; k < r->grabs.count; k++)
        if (AT(r->grabs, struct took, k).what == row) return &AT(r->grabs, struct took, k);
    return NULL;
}

static bool same_envelope(const struct receives *t, uint64_t one, uint64_t other) {
    return AT(t->peer, int32_t, one) == AT(t->peer, int32_t, other) &&
           AT(t->tag, int32_t, one) == AT(t->tag, int32_t, other) &&
           AT(t->comm, int32_t, one) == AT(t->comm, int32_t, other);
}

static void keep_probed(const struct place *p, int32_t rank, uint64_t row,
                        const struct took *took) {
    const struct rank *r = history_rank(p->h, rank);
    const struct receives *t = &r->receives;
    struct call *call = keep(p, rank, AT(t->tick, int64_t, row), K_PROBE);
    call->function = function_with(p->h, F_MATCHED_PROBE);
    call->comm = AT(t->comm, int32_t, row);
    call->peer = AT(t->peer, int32_t, row);
    call->tag = AT(t->tag, int32_t, row);
    if (took->tick == 0 || !is_past(p, rank, took->tick)) return;
    call = keep(p, rank, took->tick, K_POST_RECV);
    call->function = function_with(p->h, F_MATCHED_RECEIVE);
    call->comm = AT(t->comm, int32_t, row);
    call->peer = AT(t->peer, int32_t, row);
    call->tag = AT(t->tag, int32_t, row);
    for (uint64_t k = 0; k < row; k++) {
        const struct took *other =
            same_envelope(t, k, row) && is_open(p, rank, k) ? probed(r, (int64_t)k) : NULL;
        call->older += other != NULL && (other->tick == 0 || other->tick > took->tick);
    }
}

static void keep_receives(const struct place *p, int32_t rank) {
    const struct rank *r = history_rank(p->h, rank);
    const struct receives *t = &r->receives;
    for (uint64_t row = 0; row < t->tick.count && is_past(p, rank, AT(t->tick, int64_t, row));
         row++) {
        int32_t peer = AT(t->peer, int32_t, row), partner = AT(t->partner, int32_t, row);
        int64_t tick = AT(t->tick, int64_t, row), done = AT(t->done, int64_t, row);
        bool open = is_open(p, rank, row);
        if (AT(t->comm, int32_t, row) < C_NONE || (AT(t->cancelled, uint8_t, row) && !open))
            continue;
        if (!open && partner != UNMATCHED &&
            is_past(p, peer, AT(history_rank(p->h, peer)->sends.tick, int64_t, partner)))
            continue;
        const struct took *took = open ? probed(r, (int64_t)row) : NULL;
        if (took != NULL) {
            keep_probed(p, rank, row, took);
            continue;
        }
        struct call *call = keep(p, rank, tick, done == tick ? K_RECV : K_POST_RECV);
        call->comm = AT(t->comm, int32_t, row);
        call->wild = AT(t->wild, uint8_t, row);
        call->slot = slot_of_row(r, tick, (int64_t)row, 1);
        if (open && r->log != NULL) call->place = log_place(r->log, p->h->functions, tick);
        if (open && call->wild) continue; /* its record says what it gets */
        call->peer = peer;
        call->tag = AT(t->tag, int32_t, row);
        keep_done(p, rank, done, tick, call->slot);
    }
}

/* ---- collectives -------------------------------------------------------------------------------- */

static uint64_t entered_by(const struct place *p, const struct succession *s, int32_t rank) {
    for (uint64_t at = 0; at < s->ranks.count; at++)
        if (AT(s->ranks, int32_t, at) == rank)
            return first_at(&AT(s->entered, struct column, at), p->ticks[rank] + 1);
    return 0;
}

/* How many of them all members have called before the place. */
static uint64_t passed_by_all(const struct place *p, const struct succession *s) {
    uint64_t least = UINT64_MAX, count = s->members.count ? s->members.count : (uint64_t)p->ranks;
    for (uint64_t k = 0; k < count; k++) {
        int32_t rank = s->members.count ? AT(s->members, int32_t, k) : (int32_t)k;
        if (rank < 0 || rank >= p->ranks) continue;
        uint64_t own = entered_by(p, s, rank);
        if (own < least) least = own;
    }
    return least;
}

void keep_collectives(const struct place *p, const struct succession *s, int32_t comm) {
    uint64_t first = passed_by_all(p, s);
    for (uint64_t at = 0; at < s->ranks.count; at++) {
        int32_t rank = AT(s->ranks, int32_t, at);
        uint64_t end = rank < p->ranks ? entered_by(p, s, rank) : 0;
        for (uint64_t number = first; number < end; number++) {
            bool posted = AT(s->posted, uint8_t, number);
            int64_t tick = AT(AT(s->entered, struct column, at), int64_t, number);
            struct call *call = keep(p, rank, tick, posted ? K_POST_COLLECTIVE : K_COLLECTIVE);
            call->comm = comm;
            call->function = AT(s->names, int32_t, number);
            call->odd = AT(s->shape, uint8_t, number) == S_NOBODY;
            if (AT(s->roots, int32_t, number) >= 0) call->peer = AT(s->roots, int32_t, number);
            struct took *last,
                *took = took_from(&history_rank(p->h, rank)->collectives, tick, &last);
            while (took < last && (took->what != comm || took->number != (int64_t)number)) took++;
            if (took < last) call->slot = took->slot;
            keep_done(p, rank, AT(AT(s->completed, struct column, at), int64_t, number), tick,
                      call->slot);
        }
    }
}

/* ---- all of it ---------------------------------------------------------------------------------- */

static int in_order(const void *one, const void *other) {
    const struct kept *a = one, *b = other;
    if (a->call.rank != b->call.rank)
        return (a->call.rank > b->call.rank) - (a->call.rank < b->call.rank);
    if (a->call.tick != b->call.tick)
        return (a->call.tick > b->call.tick) - (a->call.tick < b->call.tick);
    return (a->call.slot > b->call.slot) - (a->call.slot < b->call.slot);
}

/* False where something is under way that cannot be kept: an epoch by post and start, or a request that
 * was cancelled and is not complete. ticks: of each rank the last one before the place. */
EXPORTED bool crdebug_history_kept(struct history *h, const int64_t *ticks, int32_t ranks,
                                   struct column *found) {
    struct place p = {h, ticks, ranks, found};
    found->count = 0;
    for (int32_t rank = 0; rank < ranks; rank++) {
        const struct log *log = history_rank(h, rank)->log;
        if (log != NULL && log_cancelling(log, ticks[rank])) return false;
        keep_sends(&p, rank);
        keep_receives(&p, rank);
    }
    for (uint64_t k = 0; k < h->successions.count; k++) {
        const struct succession *s = AT(h->successions, struct succession *, k);
        if (s == NULL) continue;
        if (!window_is_closed(&p, s)) return false;
        keep_collectives(&p, s, (int32_t)k);
    }
    if (!keep_together(&p)) return false;
    qsort(found->data, found->count, sizeof(struct kept), in_order);
    return true;
}

/* Into a history of which nothing was read. */
EXPORTED void crdebug_history_keep(struct history *h, const struct kept *kept, uint64_t count) {
    for (uint64_t k = 0; k < count; k++) {
        struct call call = kept[k].call;
        if (kept[k].of) {
            call.completes = &kept[k].of;
            call.slots = &kept[k].of_slot;
            call.completes_count = 1;
        }
        history_read(h, &call);
    }
}
