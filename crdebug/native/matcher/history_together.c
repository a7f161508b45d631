/* What persistent requests of several ranks are together: a collective, or a message of partitions.
 *
 * The n-th call of a member that prepares a collective on a communicator belongs to the n-th of each
 * other; and the n-th start of such a collective to the n-th start of the others, whatever they start
 * in between (MPI 4.1, section 6.13). So it is of MPI_Psend_init and MPI_Precv_init between two ranks,
 * with one communicator and tag (section 4.2.1), which meet no other messages.
 *
 * A message of partitions is sent by the call that says that the last of them is ready. A partition has
 * arrived only once all that it is made of were ready at the sender, who may have divided the message
 * otherwise. */
#include <stdlib.h>

#include "history_kept.h"

struct round { /* of a message of partitions: between a start and the next */
    struct column ready; /* int64_t: at which tick each of the sender's was */
    struct column
        asked; /* struct look: a partition that had arrived, and the tick at which it was asked for */
    int64_t left; /* partitions that are not ready */
};

enum { SENDER, RECEIVER };

struct together {
    int32_t comm; /* that it is on */
    int32_t sender, receiver, tag;
    int32_t partitions[2]; /* of the sender, the receiver; 0 while it is not known */
    int64_t bytes;
    uint64_t begun[2]; /* how often each of them has started it */
    struct column rounds; /* struct round */
    struct succession *starts; /* of a collective */
};

struct part { /* a start of a message of partitions */
    int64_t tick, slot, round;
    int64_t row; /* of the sends, once all of it is ready; -1 before, and of the receiver */
    int32_t together;
};

/* Numbers of communicators are not below C_NONE. */
static int32_t number_of(uint64_t index) { return C_NONE - 1 - (int32_t)index; }

static struct together *together_of(const struct history *h, int64_t number) {
    return AT(h->together, struct together *, C_NONE - 1 - number);
}

struct succession *history_succession(struct history *h, int64_t comm) {
    return comm < C_NONE ? together_of(h, comm)->starts : succession_of(h, comm);
}

static struct together *new_together(struct history *h, const struct call *c) {
    struct together *one = calloc(1, sizeof *one);
    if (one == NULL) abort();
    one->comm = c->comm;
    PUSH(h->together, struct together *, one);
    return one;
}

static void starts_of(struct history *h, struct together *one, const struct call *c) {
    const struct column *members = &succession_of(h, c->comm)->members;
    struct succession *s = one->starts = calloc(1, sizeof *s);
    if (s == NULL) abort();
    s->comm = c->comm;
    s->function = c->function;
    for (uint64_t k = 0; k < members->count; k++)
        PUSH(s->members, int32_t, AT(*members, int32_t, k));
    PUSH(h->starts, struct succession *, s);
}

static int32_t prepare_collective(struct history *h, const struct call *c) {
    struct rank *r = history_rank(h, c->rank);
    if (c->comm <= C_SELF) return 0;
    while (r->prepared.count <= (uint64_t)c->comm) PUSH(r->prepared, int32_t, 0);
    uint64_t number = (uint64_t)AT(r->prepared, int32_t, c->comm)++;
    struct column *known = &succession_of(h, c->comm)->together;
    if (number == known->count) {
        starts_of(h, new_together(h, c), c);
        PUSH(*known, int32_t, number_of(h->together.count - 1));
    }
    return AT(*known, int32_t, number);
}

static int32_t prepare_message(struct history *h, const struct call *c, int end) {
    int32_t ends[2] = {end == SENDER ? c->rank : c->peer, end == SENDER ? c->peer : c->rank};
    if (c->peer < 0) return 0; /* MPI_PROC_NULL */
    struct channel *channel = channel_of(h, ends[SENDER], ends[RECEIVER], c->comm, c->tag);
    uint64_t number = (uint64_t)channel->prepared[end]++;
    if (number == channel->together.count) {
        struct together *one = new_together(h, c);
        one->sender = ends[SENDER];
        one->receiver = ends[RECEIVER];
        one->tag = c->tag;
        PUSH(channel->together, int32_t, number_of(h->together.count - 1));
    }
    int32_t found = AT(channel->together, int32_t, number);
    struct together *one = together_of(h, found);
    one->partitions[end] = c->high;
    one->bytes = c->bytes;
    return found;
}

int32_t history_prepare(struct history *h, const struct call *c) {
    if (c->kind == K_COLLECTIVE) return prepare_collective(h, c);
    return prepare_message(h, c,
                           h->functions[c->function].special & F_RECEIVES ? RECEIVER : SENDER);
}

/* ---- messages of partitions --------------------------------------------------------------------- */

void history_begun(struct history *h, struct rank *r, const struct call *c) {
    struct together *one = together_of(h, c->comm);
    uint64_t round = one->begun[c->kind == K_POST_RECV ? RECEIVER : SENDER]++;
    while (one->rounds.count <= round) PUSH(one->rounds, struct round, (struct round){0});
    PUSH(r->parts, struct part, ((struct part){c->tick, c->slot, (int64_t)round, -1, c->comm}));
}

static struct part *part_of(const struct rank *r, int64_t tick, int32_t slot) {
    for (uint64_t at = first_by(&r->parts, sizeof(struct part), tick); at < r->parts.count; at++) {
        struct part *part = &AT(r->parts, struct part, at);
        if (part->tick != tick) break;
        if (part->slot == slot) return part;
    }
    return NULL;
}

int32_t history_sent_whole(const struct rank *r, int64_t tick, int32_t slot) {
    const struct part *part = part_of(r, tick, slot);
    return part != NULL ? (int32_t)part->row : -1;
}

/* At which tick the last of what a receiver's partition is made of was ready; NEVER if it was not. */
static int64_t ready_at(const struct together *one, const struct round *round, int64_t partition) {
    int64_t sent = one->partitions[SENDER], received = one->partitions[RECEIVER], last = 0;
    if (round->ready.count == 0 || received == 0 || partition < 0 || partition >= received)
        return NEVER;
    int64_t from = partition * sent / received,
            to = ((partition + 1) * sent + received - 1) / received;
    for (int64_t k = from; k < to; k++) {
        int64_t tick = AT(round->ready, int64_t, k);
        if (tick > last) last = tick;
    }
    return last;
}

/* What had arrived, as far as it is known by now when it was ready. */
static void answer(struct history *h, const struct together *one, struct round *round) {
    uint64_t left = 0;
    for (uint64_t k = 0; k < round->asked.count; k++) {
        struct look look = AT(round->asked, struct look, k);
        int64_t ready = ready_at(one, round, look.before);
        if (ready == NEVER) AT(round->asked, struct look, left++) = look;
        else if (one->sender != one->receiver)
            needs_add(needs_of(h, one->sender, one->receiver, W_LOOKED), ready, look.tick);
    }
    round->asked.count = left;
}

static void is_ready(const struct together *one, struct round *round, int64_t partition,
                     int64_t tick) {
    if (round->ready.count == 0) {
        round->left = one->partitions[SENDER];
        for (int32_t k = 0; k < one->partitions[SENDER]; k++) PUSH(round->ready, int64_t, NEVER);
    }
    if (partition < 0 || partition >= one->partitions[SENDER]) return;
    int64_t *at = &AT(round->ready, int64_t, partition);
    round->left -= *at == NEVER;
    *at = tick;
}

void history_partition(struct history *h, struct rank *r, const struct call *c) {
    struct part *part =
        c->completes_count ? part_of(r, c->completes[0], c->slots ? c->slots[0] : 0) : NULL;
    if (part == NULL) return;
    const struct together *one = together_of(h, part->together);
    struct round *round = &AT(one->rounds, struct round, part->round);
    if (h->functions[c->function].special & F_ARRIVED) {
        PUSH(round->asked, struct look, ((struct look){c->low, c->tick}));
        answer(h, one, round);
        return;
    }
    for (int32_t k = c->low; c->listed ? k < c->high : k <= c->high; k++)
        is_ready(one, round, c->listed ? c->listed[k] : k, c->tick);
    if (round->left == 0 && part->row < 0) {
        struct call whole = {.tick = c->tick,
                             .bytes = one->bytes,
                             .rank = c->rank,
                             .function = c->function,
                             .kind = K_POST_SEND,
                             .comm = part->together,
                             .peer = one->receiver,
                             .tag = one->tag,
                             .mode = M_PARTITIONS};
        part->row = history_send(h, r, &whole, NEVER);
    }
    answer(h, one, round);
}

/* ---- what of it is kept -------------------------------------------------------------------------- */

static uint64_t rounds_of(const struct place *p, int32_t rank, int32_t number) {
    const struct column *parts = &history_rank(p->h, rank)->parts;
    uint64_t count = 0;
    for (uint64_t k = 0; k < parts->count; k++) {
        const struct part *part = &AT(*parts, struct part, k);
        count += part->together == number && is_past(p, rank, part->tick);
    }
    return count;
}

static int64_t received_at(const struct place *p, int32_t rank, const struct part *part) {
    const struct receives *t = &history_rank(p->h, rank)->receives;
    uint64_t row = first_at(&t->tick, part->tick);
    while (row < t->tick.count && AT(t->comm, int32_t, row) != part->together) row++;
    return row < t->tick.count && AT(t->tick, int64_t, row) == part->tick
               ? AT(t->done, int64_t, row)
               : NEVER;
}

/* The rounds from the first that is not over. What has completed is told with them. */
static void keep_rounds(const struct place *p, const struct together *one, int32_t number) {
    int32_t ends[2] = {one->sender, one->receiver};
    uint64_t sent = rounds_of(p, one->sender, number),
             received = rounds_of(p, one->receiver, number);
    uint64_t first = sent < received ? sent : received;
    if (first) first--; /* the last that both have started: it may not be over */
    for (int end = SENDER; end <= RECEIVER; end++) {
        struct rank *r = history_rank(p->h, ends[end]);
        for (uint64_t k = 0; k < r->parts.count; k++) {
            struct part *part = &AT(r->parts, struct part, k);
            if (part->together != number || !is_past(p, ends[end], part->tick)) continue;
            if ((uint64_t)part->round < first) continue;
            struct call *call =
                keep(p, ends[end], part->tick, end == SENDER ? K_POST_SEND : K_POST_RECV);
            call->comm = number;
            call->peer = ends[1 - end];
            call->tag = one->tag;
            call->bytes = one->bytes;
            call->slot = (int32_t)part->slot;
            int64_t done = end == RECEIVER  ? received_at(p, ends[end], part)
                           : part->row >= 0 ? AT(r->sends.done, int64_t, part->row)
                                            : NEVER;
            keep_done(p, ends[end], done, part->tick, (int32_t)part->slot);
            if (end == RECEIVER) continue;
            const struct column *ready = &AT(one->rounds, struct round, part->round).ready;
            for (uint64_t n = 0; n < ready->count; n++) {
                if (!is_past(p, ends[end], AT(*ready, int64_t, n))) continue;
                call = keep(p, ends[end], AT(*ready, int64_t, n), K_OTHER);
                call->function = function_with(p->h, F_READIES);
                call->low = call->high = (int32_t)n;
                keep_of(p, part->tick, (int32_t)part->slot);
            }
        }
    }
}

bool keep_together(const struct place *p) {
    for (uint64_t k = 0; k < p->h->together.count; k++) {
        const struct together *one = AT(p->h->together, struct together *, k);
        if (one->starts != NULL) keep_collectives(p, one->starts, number_of(k));
        else if (one->sender != one->receiver) keep_rounds(p, one, number_of(k));
        else if (one->rounds.count) return false; /* the starts of both ends are one rank's */
    }
    return true;
}

/* ---- for crdebug ------------------------------------------------------------------------------- */

void history_asked(const struct history *h, struct column *found) {
    for (uint64_t k = 0; k < h->together.count; k++) {
        const struct together *one = AT(h->together, struct together *, k);
        for (uint64_t n = 0; n < one->rounds.count; n++) {
            const struct column *asked = &AT(one->rounds, struct round, n).asked;
            for (uint64_t at = 0; at < asked->count; at++)
                PUSH(*found, struct waiting,
                     ((struct waiting){one->sender, one->receiver,
                                       AT(*asked, struct look, at).tick}));
        }
    }
}

void history_together_free(struct history *h) {
    for (uint64_t k = 0; k < h->together.count; k++) {
        struct together *one = AT(h->together, struct together *, k);
        for (uint64_t n = 0; n < one->rounds.count; n++) {
            column_free(&AT(one->rounds, struct round, n).ready);
            column_free(&AT(one->rounds, struct round, n).asked);
        }
        column_free(&one->rounds);
        free(one);
    }
    column_free(&h->together);
}

/* The communicator of a row of a table, or of a call. */
EXPORTED int32_t crdebug_history_comm(const struct history *h, int32_t comm) {
    return comm < C_NONE ? together_of(h, comm)->comm : comm;
}

/* The starts of persistent collectives, in the order in which these were prepared. */
EXPORTED const struct column *crdebug_history_starts(struct history *h) { return &h->starts; }
