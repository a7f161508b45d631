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

/* ---- queues ------------------------------------------------------------------------------------- */

static void append(struct queue *queue, int32_t row) {
    if (queue->first > 16 && queue->first * 2 > queue->rows.count) {
        memmove(queue->rows.data, queue_rows(queue), queue_length(queue) * sizeof row);
        queue->rows.count -= queue->first;
        queue->first = 0;
    }
    PUSH(queue->rows, int32_t, row);
}

static int32_t pop(struct queue *queue) {
    int32_t row = *queue_rows(queue);
    if (++queue->first == queue->rows.count) queue->first = queue->rows.count = 0;
    return row;
}

static bool take_out(struct queue *queue, int32_t row) {
    for (uint64_t at = queue->first; at < queue->rows.count; at++) {
        if (AT(queue->rows, int32_t, at) != row) continue;
        int32_t *from = (int32_t *)queue->rows.data + at;
        memmove(from, from + 1, (--queue->rows.count - at) * sizeof row);
        return true;
    }
    return false;
}

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

static void join(struct history *h, int32_t sender, int32_t send, int32_t receiver, int32_t receive) {
    struct sends *sends = &history_rank(h, sender)->sends;
    struct receives *receives = &history_rank(h, receiver)->receives;
    int64_t done = AT(receives->done, int64_t, receive);
    AT(sends->partner, int32_t, send) = receive;
    AT(receives->partner, int32_t, receive) = send;
    if (done != NEVER)
        needs_put(needs_of(h, sender, receiver, W_RECEIVED), (uint64_t)AT(sends->slot, int32_t, send), done);
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
static void renumber(struct history *h, int32_t receiver, int32_t first, int32_t sender, int32_t comm,
                     int32_t tag) {
    struct channel *channel = channel_of(h, sender, receiver, comm, tag);
    struct receives *receives = &history_rank(h, receiver)->receives;
    struct sends *sends = &history_rank(h, sender)->sends;
    struct queue sent = {0}, posted = {0};
    bool matched = false;
    while (queue_length(&channel->posted)) {
        int32_t row = pop(&channel->posted);
        if (row < first) append(&posted, row);
    }
    for (uint64_t at = (uint64_t)first; at < receives->tick.count; at++) {
        if (AT(receives->tag, int32_t, at) != tag || AT(receives->peer, int32_t, at) != sender ||
            AT(receives->comm, int32_t, at) != comm)
            continue;
        int32_t *partner = &AT(receives->partner, int32_t, at);
        if (*partner != UNMATCHED) {
            append(&sent, *partner);
            matched = true;
            *partner = UNMATCHED;
        }
        if (!AT(receives->cancelled, uint8_t, at)) append(&posted, (int32_t)at);
    }
    while (queue_length(&channel->sent)) append(&sent, pop(&channel->sent));
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
        int32_t send = pop(&sent);
        join(h, sender, send, receiver, pop(&posted));
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
    if (r->log == NULL || !log_settled(r->log, open->place, &peer, &tag) || peer < 0 || tag == NONE)
        return false;
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

static void send(struct history *h, struct rank *r, const struct call *c, int64_t done) {
    struct sends *s = &r->sends;
    const struct function *function = &h->functions[c->function];
    if (c->peer < 0) { /* MPI_PROC_NULL */
        r->blind |= (function->special & F_STARTALL) != 0;
        return;
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
    PUSH(s->mode, uint8_t, (uint8_t)function->mode);
    PUSH(s->cancelled, uint8_t, 0);
    struct channel *channel = channel_of(h, c->rank, c->peer, c->comm, tag);
    if (channel->looking.count) seen_by_probes(h, channel, c->tick);
    if (queue_length(&channel->posted))
        join(h, c->rank, row, c->peer, pop(&channel->posted));
    else
        append(&channel->sent, row);
}

/* The row of the receive, or -1. */
static int32_t post(struct history *h, struct rank *r, const struct call *c, int64_t done, int32_t source,
                    int32_t tag) {
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
    PUSH(t->wild, uint8_t, c->wild != 0);
    PUSH(t->cancelled, uint8_t, 0);
    if (!known) {
        PUSH(r->open, struct open, ((struct open){row, c->place}));
        return row;
    }
    struct channel *channel = channel_of(h, source, c->rank, c->comm, tag);
    if (queue_length(&channel->sent))
        join(h, source, pop(&channel->sent), c->rank, row);
    else
        append(&channel->posted, row);
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

/* The receive that MPI_Mrecv or MPI_Imrecv completes: they name no source and tag on record; of
 * several matched probes the oldest is taken then. */
static int32_t grabbed_by(struct rank *r, const struct call *c) {
    for (uint64_t at = 0; at < r->grabbed.count; at++) {
        int32_t *each = &AT(r->grabbed, int32_t, at), row = *each;
        if (c->peer != NONE && (c->peer != AT(r->receives.peer, int32_t, row) ||
                                c->tag != AT(r->receives.tag, int32_t, row)))
            continue;
        memmove(each, each + 1, (--r->grabbed.count - at) * sizeof *each);
        return row;
    }
    return -1;
}

static void receive(struct history *h, struct rank *r, const struct call *c, int64_t done) {
    if (h->functions[c->function].special & F_MATCHED_RECEIVE) {
        int32_t row = grabbed_by(r, c);
        if (row >= 0) {
            PUSH(r->grabs, struct took, ((struct took){c->tick, row, 0, 0}));
            if (done != NEVER) received(h, r, c->rank, row, done);
            return;
        }
    }
    post(h, r, c, done, c->peer, c->tag);
}

static void probe(struct history *h, struct rank *r, const struct call *c) {
    if (c->peer < 0 || c->tag == NONE) return;
    struct channel *channel = channel_of(h, c->peer, c->rank, c->comm, c->tag);
    if (queue_length(&channel->sent)) {
        int64_t tick = AT(history_rank(h, c->peer)->sends.tick, int64_t, *queue_rows(&channel->sent));
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
    for (uint64_t at = first_at(ticks, tick); at < ticks->count && AT(*ticks, int64_t, at) == tick; at++)
        if (AT(*done, int64_t, at) == NEVER) return (int32_t)at;
    return -1;
}

static void complete(struct history *h, struct rank *r, const struct call *c, int64_t tick) {
    int32_t row = undone_at(&r->sends.tick, &r->sends.done, tick);
    if (row >= 0) {
        AT(r->sends.done, int64_t, row) = c->tick;
        freed(h, c->rank, row);
        return;
    }
    struct took *grab = took_at(&r->grabs, tick);
    row = grab != NULL ? (int32_t)grab->what : undone_at(&r->receives.tick, &r->receives.done, tick);
    if (row >= 0)
        received(h, r, c->rank, row, c->tick);
    else
        history_collected(h, r, c, tick);
}

static void cancel(struct history *h, struct rank *r, const struct call *c, int64_t tick) {
    struct sends *s = &r->sends;
    struct receives *t = &r->receives;
    uint64_t at = first_at(&s->tick, tick);
    for (; at < s->tick.count && AT(s->tick, int64_t, at) == tick; at++) {
        int32_t peer = AT(s->peer, int32_t, at), comm = AT(s->comm, int32_t, at);
        int32_t tag = AT(s->tag, int32_t, at), *partner = &AT(s->partner, int32_t, at), was = *partner;
        AT(s->cancelled, uint8_t, at) = 1;
        if (take_out(&channel_of(h, c->rank, peer, comm, tag)->sent, (int32_t)at) || was == UNMATCHED)
            continue;
        *partner = UNMATCHED;
        needs_put(needs_of(h, c->rank, peer, W_RECEIVED), (uint64_t)AT(s->slot, int32_t, at), NEVER);
        AT(history_rank(h, peer)->receives.partner, int32_t, was) = UNMATCHED;
        renumber(h, peer, was, c->rank, comm, tag);
    }
    at = first_at(&t->tick, tick);
    for (; at < t->tick.count && AT(t->tick, int64_t, at) == tick; at++) {
        int32_t peer = AT(t->peer, int32_t, at), tag = AT(t->tag, int32_t, at);
        AT(t->cancelled, uint8_t, at) = 1;
        forget_open(r, (int64_t)at);
        if (peer != UNKNOWN && tag != UNKNOWN)
            renumber(h, c->rank, (int32_t)at, peer, AT(t->comm, int32_t, at), tag);
    }
}

static bool is_together(const struct call *c, int32_t special) {
    bool collective = c->kind == K_COLLECTIVE || c->kind == K_POST_COLLECTIVE || c->kind == K_COMM;
    return special & F_OF_WINDOW || (collective && !(special & F_BY_GROUP));
}

void history_read(struct history *h, const struct call *c) {
    struct rank *r = history_rank(h, c->rank);
    int32_t special = h->functions[c->function].special;
    r->last = c->tick + c->repeats - 1;
    switch (c->kind) {
    case K_NOTHING:
    case K_TIME: return;
    case K_SEND: send(h, r, c, c->tick); break;
    case K_RECV: receive(h, r, c, c->tick); break;
    case K_POST_SEND: send(h, r, c, NEVER); break;
    case K_POST_RECV: receive(h, r, c, NEVER); break;
    case K_SENDRECV:
        send(h, r, c, c->tick);
        post(h, r, c, c->tick, c->peer2, c->tag2);
        break;
    case K_PROBE: probe(h, r, c); break;
    case K_CANCEL:
        for (uint64_t k = 0; k < c->completes_count; k++) cancel(h, r, c, c->completes[k]);
        return;
    default:
        if (special & (F_BEGIN | F_END))
            history_collective(h, r, c, special & F_BEGIN ? C_BEGIN : C_END);
        else if (is_together(c, special) && c->comm != C_SELF && c->comm >= 0)
            history_collective(h, r, c, c->comm);
        if (!(special & (F_EXPOSES | F_ACCESSES | F_EXPOSED | F_ACCESSED))) break;
        history_window(h, c);
        return;
    }
    for (uint64_t k = 0; k < c->completes_count; k++) complete(h, r, c, c->completes[k]);
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
            if (AT(sends->peer, int32_t, send) == receiver && AT(sends->done, int64_t, send) != NEVER)
                freed(h, sender, (int32_t)send);
    }
    h->stale.count = 0;
}
