/* Finding which receive got which send.
 *
 * The k-th send from S to D on a communicator with a tag is received by the k-th receive that D posts
 * for S, that communicator and that tag: MPI's messages do not overtake (MPI 4.1, section 3.5). A wild
 * receive counts with the source and tag that it got; while it has not completed, these are not known,
 * and it takes its place among the others when they are. A probe looks without consuming, a matched
 * probe consumes: it takes the place of the receive, which MPI_Mrecv or MPI_Imrecv then completes.
 * A call of kind CANCEL takes back what the calls it `completes` had posted. */
#include <stdlib.h>
#include <string.h>

#include "history.h"

/* ---- matching ----------------------------------------------------------------------------------- */

/* A send has completed: with its receive, it may be a need. */
static void freed(struct history *h, int32_t sender, int32_t send) {
    struct sends *sends = &history_rank(h, sender)->sends;
    int32_t partner = AT(sends->partner, int32_t, send), receiver = AT(sends->peer, int32_t, send);
    uint8_t mode = AT(sends->mode, uint8_t, send);
    if (partner == UNMATCHED || receiver == sender) return;
    enum why why = mode == M_SYNCHRONOUS ? W_SYNCHRONOUS : W_RENDEZVOUS;
    if (mode == M_BUFFERED) return;
    if (mode == M_STANDARD && AT(sends->bytes, int64_t, send) <= h->eager) return;
    int64_t posted = AT(history_rank(h, receiver)->receives.tick, int64_t, partner);
    needs_add(needs_of(h, receiver, sender, why), posted, AT(sends->done, int64_t, send));
}

static void join(struct history *h, int32_t sender, int32_t send, int32_t receiver,
                 int32_t receive) {
    struct sends *sends = &history_rank(h, sender)->sends;
    struct receives *receives = &history_rank(h, receiver)->receives;
    int64_t done = AT(receives->done, int64_t, receive);
    AT(sends->partner, int32_t, send) = receive;
    AT(receives->partner, int32_t, receive) = send;
    if (done != NEVER)
        needs_put(needs_of(h, sender, receiver, W_RECEIVED),
                  (uint64_t)AT(sends->slot, int32_t, send), done);
    if (AT(sends->done, int64_t, send) != NEVER) freed(h, sender, send);
}

static int by_row(const void *one, const void *other) {
    int32_t a = *(const int32_t *)one, b = *(const int32_t *)other;
    return (a > b) - (a < b);
}

static void mark_stale(struct history *h, int32_t sender, int32_t receiver) {
    for (uint64_t k = 0; k < h->stale.count; k++) {
        struct waiting *each = &AT(h->stale, struct waiting, k);
        if (each->sender == sender && each->receiver == receiver) return;
    }
    PUSH(h->stale, struct waiting, ((struct waiting){sender, receiver, 0}));
}

/* Match a channel anew from a receive on: it came late, or is gone. */
static void renumber(struct history *h, int32_t receiver, int32_t first, int32_t sender,
                     int32_t comm, int32_t tag) {
    struct channel *channel = channel_of(h, sender, receiver, comm, tag);
    struct receives *receives = &history_rank(h, receiver)->receives;
    struct sends *sends = &history_rank(h, sender)->sends;
    struct queue sent = {0}, posted = {0};
    bool matched = false;
    while (queue_length(&channel->posted)) {
        int32_t row = queue_pop(&channel->posted);
        if (row < first) queue_append(&posted, row);
    }
    for (uint64_t at = (uint64_t)first; at < receives->tick.count; at++) {
        if (AT(receives->tag, int32_t, at) != tag || AT(receives->peer, int32_t, at) != sender ||
            AT(receives->comm, int32_t, at) != comm)
            continue;
        int32_t *partner = &AT(receives->partner, int32_t, at);
        if (*partner != UNMATCHED) {
            queue_append(&sent, *partner);
            matched = true;
            *partner = UNMATCHED;
        }
        if (!AT(receives->cancelled, uint8_t, at)) queue_append(&posted, (int32_t)at);
    }
    while (queue_length(&channel->sent)) queue_append(&sent, queue_pop(&channel->sent));
    if (queue_length(&sent)) {
        qsort(queue_rows(&sent), queue_length(&sent), sizeof(int32_t), by_row);
        struct needs *received = needs_of(h, sender, receiver, W_RECEIVED);
        for (uint64_t k = 0; k < queue_length(&sent); k++) {
            int32_t send = queue_rows(&sent)[k];
            AT(sends->partner, int32_t, send) = UNMATCHED;
            needs_put(received, (uint64_t)AT(sends->slot, int32_t, send), NEVER);
        }
    }
    if (matched) mark_stale(h, sender, receiver); /* what was noted of them may be wrong */
    while (queue_length(&sent) && queue_length(&posted)) {
        int32_t send = queue_pop(&sent);
        join(h, sender, send, receiver, queue_pop(&posted));
    }
    column_free(&channel->sent.rows);
    column_free(&channel->posted.rows);
    channel->sent = sent;
    channel->posted = posted;
}

static void learned(struct history *h, int32_t rank, int32_t row, int32_t peer, int32_t tag) {
    struct receives *receives = &history_rank(h, rank)->receives;
    AT(receives->peer, int32_t, row) = peer;
    AT(receives->tag, int32_t, row) = tag;
    renumber(h, rank, row, peer, AT(receives->comm, int32_t, row), tag);
}

/* Is it known by now what an open receive got? */
static bool learn(struct history *h, int32_t rank, uint64_t at) {
    struct rank *r = history_rank(h, rank);
    struct open *open = &AT(r->open, struct open, at);
    int32_t peer, tag, row = (int32_t)open->row;
    if (r->log == NULL || !log_settled(r->log, open->place, open->slot, &peer, &tag) || peer < 0 ||
        tag == NONE)
        return false;
    if (peer >= log_world(r->log)) return false; /* damaged since it was read */
    memmove(open, open + 1, (--r->open.count - at) * sizeof *open);
    learned(h, rank, row, peer, tag);
    return true;
}

static void forget_open(struct rank *r, int64_t row) {
    for (uint64_t at = 0; at < r->open.count; at++) {
        struct open *open = &AT(r->open, struct open, at);
        if (open->row != row) continue;
        memmove(open, open + 1, (--r->open.count - at) * sizeof *open);
        return;
    }
}

/* ---- reading ------------------------------------------------------------------------------------ */

static void seen_by_probes(struct history *h, struct channel *channel, int64_t sent) {
    uint64_t left = 0;
    for (uint64_t k = 0; k < channel->looking.count; k++) {
        struct look look = AT(channel->looking, struct look, k);
        if (look.before == 0) {
            needs_add(needs_of(h, channel->sender, channel->receiver, W_LOOKED), sent, look.tick);
        } else {
            look.before--;
            AT(channel->looking, struct look, left++) = look;
        }
    }
    channel->looking.count = left;
}

int32_t history_send(struct history *h, struct rank *r, const struct call *c, int64_t done) {
    struct sends *s = &r->sends;
    const struct function *function = &h->functions[c->function];
    if (c->peer < 0) { /* MPI_PROC_NULL */
        r->blind |= (function->special & F_STARTALL) != 0;
        return -1;
    }
    int32_t row = (int32_t)s->tick.count, tag = c->tag == NONE ? 0 : c->tag;
    uint64_t slot = needs_add(needs_of(h, c->rank, c->peer, W_RECEIVED), c->tick, NEVER);
    PUSH(s->tick, int64_t, c->tick);
    PUSH(s->done, int64_t, done);
    PUSH(s->bytes, int64_t, c->bytes);
    PUSH(s->peer, int32_t, c->peer);
    PUSH(s->comm, int32_t, c->comm);
    PUSH(s->tag, int32_t, tag);
    PUSH(s->partner, int32_t, UNMATCHED);
    PUSH(s->slot, int32_t, (int32_t)slot);
    PUSH(s->mode, uint8_t, (uint8_t)(c->mode ? c->mode : function->mode));
    PUSH(s->cancelled, uint8_t, 0);
    if (c->slot) PUSH(r->started, struct took, ((struct took){c->tick, row, -c->slot, 0, 0}));
    struct channel *channel = channel_of(h, c->rank, c->peer, c->comm, tag);
    if (channel->looking.count) seen_by_probes(h, channel, c->tick);
    if (queue_length(&channel->posted)) join(h, c->rank, row, c->peer, queue_pop(&channel->posted));
    else queue_append(&channel->sent, row);
    return row;
}

/* The row of the receive, or -1. */
static int32_t post(struct history *h, struct rank *r, const struct call *c, int64_t done,
                    int32_t source, int32_t tag) {
    struct receives *t = &r->receives;
    bool known = source != NONE && tag != NONE;
    if (source == NONE && !c->wild) return -1; /* from MPI_PROC_NULL */
    if (known && source < 0) return -1;
    int32_t row = (int32_t)t->tick.count;
    PUSH(t->tick, int64_t, c->tick);
    PUSH(t->done, int64_t, done);
    PUSH(t->peer, int32_t, source == NONE ? UNKNOWN : source);
    PUSH(t->comm, int32_t, c->comm);
    PUSH(t->tag, int32_t, tag == NONE ? UNKNOWN : tag);
    PUSH(t->partner, int32_t, UNMATCHED);
    PUSH(t->wild, uint8_t, c->wild);
    PUSH(t->cancelled, uint8_t, 0);
    if (c->slot) PUSH(r->started, struct took, ((struct took){c->tick, row, c->slot, 0, 0}));
    if (!known) {
        PUSH(r->open, struct open, ((struct open){row, c->place, c->slot}));
        return row;
    }
    struct channel *channel = channel_of(h, source, c->rank, c->comm, tag);
    if (queue_length(&channel->sent)) join(h, source, queue_pop(&channel->sent), c->rank, row);
    else queue_append(&channel->posted, row);
    return row;
}

static void received(struct history *h, struct rank *r, int32_t rank, int32_t row, int64_t done) {
    struct receives *t = &r->receives;
    AT(t->done, int64_t, row) = done;
    if (AT(t->peer, int32_t, row) == UNKNOWN || AT(t->tag, int32_t, row) == UNKNOWN) {
        for (uint64_t at = 0; at < r->open.count; at++)
            if (AT(r->open, struct open, at).row == row) {
                learn(h, rank, at);
                break;
            }
    }
    int32_t partner = AT(t->partner, int32_t, row);
    if (partner != UNMATCHED) {
        int32_t sender = AT(t->peer, int32_t, row);
        int32_t slot = AT(history_rank(h, sender)->sends.slot, int32_t, partner);
        needs_put(needs_of(h, sender, rank, W_RECEIVED), (uint64_t)slot, done);
    }
}

/* The receive that MPI_Mrecv or MPI_Imrecv completes: of several matched probes with the envelope that
 * it names the oldest, or as many later as it says. */
static int32_t grabbed_by(struct rank *r, const struct call *c) {
    int32_t older = c->older;
    for (uint64_t at = 0; at < r->grabbed.count; at++) {
        int32_t *each = &AT(r->grabbed, int32_t, at), row = *each;
        if (c->peer != NONE && (c->peer != AT(r->receives.peer, int32_t, row) ||
                                c->tag != AT(r->receives.tag, int32_t, row) ||
                                c->comm != AT(r->receives.comm, int32_t, row)))
            continue;
        if (older-- > 0) continue;
        memmove(each, each + 1, (--r->grabbed.count - at) * sizeof *each);
        return row;
    }
    return -1;
}

static void receive(struct history *h, struct rank *r, const struct call *c, int64_t done) {
    if (h->functions[c->function].special & F_MATCHED_RECEIVE) {
        int32_t row = grabbed_by(r, c);
        if (row < 0) return;
        PUSH(r->grabs, struct took, ((struct took){c->tick, row, 0, 0, 0}));
        if (done != NEVER) received(h, r, c->rank, row, done);
        return;
    }
    post(h, r, c, done, c->peer, c->tag);
}

static void probe(struct history *h, struct rank *r, const struct call *c) {
    if (c->peer < 0 || c->tag == NONE) return;
    struct channel *channel = channel_of(h, c->peer, c->rank, c->comm, c->tag);
    if (queue_length(&channel->sent)) {
        int64_t tick =
            AT(history_rank(h, c->peer)->sends.tick, int64_t, *queue_rows(&channel->sent));
        needs_add(needs_of(h, c->peer, c->rank, W_LOOKED), tick, c->tick);
    } else {
        struct look look = {(int64_t)queue_length(&channel->posted), c->tick};
        PUSH(channel->looking, struct look, look);
    }
    if (h->functions[c->function].special & F_MATCHED_PROBE) {
        int32_t row = post(h, r, c, NEVER, c->peer, c->tag);
        if (row >= 0) PUSH(r->grabbed, int32_t, row);
    }
}

/* ---- completing --------------------------------------------------------------------------------- */

static int32_t undone_at(const struct column *ticks, const struct column *done, int64_t tick) {
    for (uint64_t at = first_at(ticks, tick); at < ticks->count && AT(*ticks, int64_t, at) == tick;
         at++)
        if (AT(*done, int64_t, at) == NEVER) return (int32_t)at;
    return -1;
}

/* What MPI_Startall started as its n-th, or NULL: to MPI_PROC_NULL, for one. */
static const struct took *started_at(const struct rank *r, int64_t tick, int32_t slot) {
    struct took *end, *each = took_from(&r->started, tick, &end);
    while (each < end && each->number != slot && each->number != -slot) each++;
    return each < end ? each : NULL;
}

static void sent(struct history *h, struct rank *r, const struct call *c, int32_t row) {
    AT(r->sends.done, int64_t, row) = c->tick;
    freed(h, c->rank, row);
}

static void complete_together(struct history *h, struct rank *r, const struct call *c, int64_t tick,
                              int32_t slot) {
    int32_t send = history_sent_whole(r, tick, slot);
    if (send >= 0) sent(h, r, c, send);
    else history_collected(h, r, c, tick, slot);
}

static void complete(struct history *h, struct rank *r, const struct call *c, int64_t tick,
                     int32_t slot) {
    if (slot) {
        const struct took *one = started_at(r, tick, slot);
        if (one != NULL && one->number < 0) sent(h, r, c, (int32_t)one->what);
        else if (one != NULL) received(h, r, c->rank, (int32_t)one->what, c->tick);
        else complete_together(h, r, c, tick, slot);
        return;
    }
    int32_t send = undone_at(&r->sends.tick, &r->sends.done, tick), row;
    if (send >= 0) sent(h, r, c, send);
    struct took *grab = took_at(&r->grabs, tick);
    row =
        grab != NULL ? (int32_t)grab->what : undone_at(&r->receives.tick, &r->receives.done, tick);
    if (row >= 0) received(h, r, c->rank, row, c->tick); /* of an exchange, both halves */
    else if (send < 0) complete_together(h, r, c, tick, 0);
}

static void cancel_send(struct history *h, int32_t rank, uint64_t at) {
    struct sends *s = &history_rank(h, rank)->sends;
    int32_t peer = AT(s->peer, int32_t, at), comm = AT(s->comm, int32_t, at);
    int32_t tag = AT(s->tag, int32_t, at), *partner = &AT(s->partner, int32_t, at), was = *partner;
    AT(s->cancelled, uint8_t, at) = 1;
    if (queue_take(&channel_of(h, rank, peer, comm, tag)->sent, (int32_t)at) || was == UNMATCHED)
        return;
    *partner = UNMATCHED;
    needs_put(needs_of(h, rank, peer, W_RECEIVED), (uint64_t)AT(s->slot, int32_t, at), NEVER);
    AT(history_rank(h, peer)->receives.partner, int32_t, was) = UNMATCHED;
    renumber(h, peer, was, rank, comm, tag);
}

static void cancel_receive(struct history *h, int32_t rank, uint64_t at) {
    struct rank *r = history_rank(h, rank);
    struct receives *t = &r->receives;
    int32_t peer = AT(t->peer, int32_t, at), tag = AT(t->tag, int32_t, at);
    AT(t->cancelled, uint8_t, at) = 1;
    forget_open(r, (int64_t)at);
    if (peer != UNKNOWN && tag != UNKNOWN)
        renumber(h, rank, (int32_t)at, peer, AT(t->comm, int32_t, at), tag);
}

void history_cancelled(struct history *h, int32_t rank, int64_t tick, int32_t slot) {
    struct rank *r = history_rank(h, rank);
    const struct took *one = slot ? started_at(r, tick, slot) : NULL;
    uint64_t at = first_at(&r->sends.tick, tick);
    if (one != NULL && one->number < 0) cancel_send(h, rank, (uint64_t)one->what);
    if (one != NULL && one->number > 0) cancel_receive(h, rank, (uint64_t)one->what);
    if (slot) return;
    for (; at < r->sends.tick.count && AT(r->sends.tick, int64_t, at) == tick; at++)
        cancel_send(h, rank, at);
    at = first_at(&r->receives.tick, tick);
    for (; at < r->receives.tick.count && AT(r->receives.tick, int64_t, at) == tick; at++)
        cancel_receive(h, rank, at);
}

static bool is_together(const struct call *c, int32_t special) {
    bool collective = c->kind == K_COLLECTIVE || c->kind == K_POST_COLLECTIVE || c->kind == K_COMM;
    return special & F_OF_WINDOW || (collective && !(special & F_BY_GROUP));
}

void history_read(struct history *h, const struct call *c) {
    struct rank *r = history_rank(h, c->rank);
    int32_t special = h->functions[c->function].special;
    bool together = c->comm < C_NONE; /* a start */
    r->last = c->tick + c->repeats - 1;
    if (special & (F_READIES | F_ARRIVED)) {
        if (c->kind != K_NOTHING) history_partition(h, r, c);
        return;
    }
    switch (c->kind) {
    case K_NOTHING:
    case K_TIME: return;
    case K_SEND: history_send(h, r, c, c->tick); break;
    case K_RECV: receive(h, r, c, c->tick); break;
    case K_POST_SEND:
        if (together) history_begun(h, r, c);
        else history_send(h, r, c, NEVER);
        break;
    case K_POST_RECV:
        receive(h, r, c, NEVER);
        if (together) history_begun(h, r, c);
        break;
    case K_SENDRECV:
        history_send(h, r, c, c->tick);
        post(h, r, c, c->tick, c->peer2, c->tag2);
        break;
    case K_POST_SENDRECV:
        history_send(h, r, c, NEVER);
        post(h, r, c, NEVER, c->peer2, c->tag2);
        break;
    case K_PROBE: probe(h, r, c); break;
    case K_CANCEL:
        for (uint64_t k = 0; k < c->completes_count; k++)
            history_cancelled(h, c->rank, c->completes[k], 0);
        return;
    default:
        if (special & (F_BEGIN | F_END))
            history_collective(h, r, c, special & F_BEGIN ? C_BEGIN : C_END);
        else if (is_together(c, special) && c->comm != C_SELF && c->comm != C_NONE)
            history_collective(h, r, c, c->comm);
        if (!(special & (F_EXPOSES | F_ACCESSES | F_EXPOSED | F_ACCESSED))) break;
        history_window(h, c);
        return;
    }
    for (uint64_t k = 0; k < c->completes_count; k++)
        complete(h, r, c, c->completes[k], c->slots ? c->slots[k] : 0);
}

/* ---- for crdebug ------------------------------------------------------------------------------- */

EXPORTED void crdebug_history_read(struct history *h, const struct call *calls, uint64_t count) {
    for (uint64_t k = 0; k < count; k++) history_read(h, calls + k);
}

/* What an open receive got, from who knows. */
EXPORTED void crdebug_history_learned(struct history *h, int32_t rank, int32_t row, int32_t peer,
                                      int32_t tag) {
    forget_open(history_rank(h, rank), row);
    learned(h, rank, row, peer, tag);
}

/* The same of all of a rank, from its log. */
EXPORTED void crdebug_history_learn(struct history *h, int32_t rank) {
    for (uint64_t at = 0; at < history_rank(h, rank)->open.count;)
        if (!learn(h, rank, at)) at++;
}

/* Bring the needs up to date; to be called before they are asked. */
EXPORTED void crdebug_history_settle(struct history *h) {
    for (uint64_t k = 0; k < h->stale.count; k++) {
        struct waiting pair = AT(h->stale, struct waiting, k);
        int32_t sender = (int32_t)pair.sender, receiver = (int32_t)pair.receiver;
        struct sends *sends = &history_rank(h, sender)->sends;
        needs_clear(needs_of(h, receiver, sender, W_SYNCHRONOUS));
        needs_clear(needs_of(h, receiver, sender, W_RENDEZVOUS));
        for (uint64_t send = 0; send < sends->tick.count; send++)
            if (AT(sends->peer, int32_t, send) == receiver &&
                AT(sends->done, int64_t, send) != NEVER)
                freed(h, sender, (int32_t)send);
    }
    h->stale.count = 0;
}
