/* A history's tables, and who finds what in them. */
#include <stdlib.h>
#include <string.h>

#include "history.h"

static void *new(size_t size) {
    void *made = calloc(1, size);
    if (made == NULL) abort();
    return made;
}

/* ---- queues ------------------------------------------------------------------------------------- */

uint64_t queue_length(const struct queue *queue) { return queue->rows.count - queue->first; }

int32_t *queue_rows(const struct queue *queue) {
    return (int32_t *)queue->rows.data + queue->first;
}

void queue_append(struct queue *queue, int32_t row) {
    if (queue->first > 16 && queue->first * 2 > queue->rows.count) {
        memmove(queue->rows.data, queue_rows(queue), queue_length(queue) * sizeof row);
        queue->rows.count -= queue->first;
        queue->first = 0;
    }
    PUSH(queue->rows, int32_t, row);
}

int32_t queue_pop(struct queue *queue) {
    int32_t row = *queue_rows(queue);
    if (++queue->first == queue->rows.count) queue->first = queue->rows.count = 0;
    return row;
}

bool queue_take(struct queue *queue, int32_t row) {
    for (uint64_t at = queue->first; at < queue->rows.count; at++) {
        if (AT(queue->rows, int32_t, at) != row) continue;
        int32_t *from = (int32_t *)queue->rows.data + at;
        memmove(from, from + 1, (--queue->rows.count - at) * sizeof row);
        return true;
    }
    return false;
}

/* ---- names -------------------------------------------------------------------------------------- */

static uint64_t mixed(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

struct rank *history_rank(struct history *h, int32_t rank) {
    while (h->ranks.count <= (uint64_t)rank) PUSH(h->ranks, struct rank *, NULL);
    struct rank **found = &AT(h->ranks, struct rank *, rank);
    if (*found == NULL) *found = new(sizeof **found);
    return *found;
}

static uint64_t needs_place(const struct history *h, int64_t entered, int64_t waiter, int64_t why) {
    uint64_t at = mixed(mixed(mixed(0, (uint64_t)entered), (uint64_t)waiter), (uint64_t)why);
    for (at %= h->needs_room;; at = (at + 1) % h->needs_room) {
        const struct needs *here = h->needs_table[at];
        if (here == NULL ||
            (here->entered == entered && here->waiter == waiter && here->why == why))
            return at;
    }
}

struct needs *needs_of(struct history *h, int32_t entered, int32_t waiter, enum why why) {
    if (h->needs.count * 2 >= h->needs_room) {
        free(h->needs_table);
        h->needs_room = h->needs_room ? h->needs_room * 2 : 64;
        h->needs_table = calloc(h->needs_room, sizeof *h->needs_table);
        if (h->needs_table == NULL) abort();
        for (uint64_t k = 0; k < h->needs.count; k++) {
            struct needs *each = AT(h->needs, struct needs *, k);
            h->needs_table[needs_place(h, each->entered, each->waiter, each->why)] = each;
        }
    }
    struct needs **found = &h->needs_table[needs_place(h, entered, waiter, why)];
    if (*found == NULL) {
        *found = new(sizeof **found);
        (*found)->entered = entered;
        (*found)->waiter = waiter;
        (*found)->why = why;
        PUSH(h->needs, struct needs *, *found);
    }
    return *found;
}

static bool is_empty(const struct channel *c) {
    return !queue_length(&c->sent) && !queue_length(&c->posted) && !c->looking.count &&
           !c->together.count;
}

static void channel_free(struct channel *channel) {
    column_free(&channel->sent.rows);
    column_free(&channel->posted.rows);
    column_free(&channel->looking);
    column_free(&channel->together);
    free(channel);
}

static struct channel **channel_place(const struct history *h, int32_t sender, int32_t receiver,
                                      int32_t comm, int32_t tag) {
    uint64_t hash = mixed(mixed(0, (uint64_t)(uint32_t)sender << 32 | (uint32_t)receiver),
                          (uint64_t)(uint32_t)comm << 32 | (uint32_t)tag);
    for (uint64_t at = hash % h->channels_room;; at = (at + 1) % h->channels_room) {
        struct channel *here = h->channels[at];
        if (here == NULL || (here->sender == sender && here->receiver == receiver &&
                             here->comm == comm && here->tag == tag))
            return &h->channels[at];
    }
}

/* A program may use each tag once: channels with nothing in them are given up when room gets short. */
static void channels_tidy(struct history *h) {
    struct channel **old = h->channels;
    uint64_t room = h->channels_room, used = 0;
    for (uint64_t at = 0; at < room; at++) used += old[at] != NULL && !is_empty(old[at]);
    h->channels_room = 256;
    while (h->channels_room < used * 4) h->channels_room *= 2;
    h->channels = calloc(h->channels_room, sizeof *h->channels);
    if (h->channels == NULL) abort();
    h->channels_count = used;
    for (uint64_t at = 0; at < room; at++) {
        struct channel *each = old[at];
        if (each == NULL) continue;
        if (is_empty(each)) channel_free(each);
        else *channel_place(h, each->sender, each->receiver, each->comm, each->tag) = each;
    }
    free(old);
}

struct channel *channel_of(struct history *h, int32_t sender, int32_t receiver, int32_t comm,
                           int32_t tag) {
    if (h->channels_count * 2 >= h->channels_room) channels_tidy(h);
    struct channel **found = channel_place(h, sender, receiver, comm, tag);
    if (*found == NULL) {
        *found = new(sizeof **found);
        **found =
            (struct channel){.sender = sender, .receiver = receiver, .comm = comm, .tag = tag};
        h->channels_count++;
    }
    return *found;
}

struct succession *succession_of(struct history *h, int64_t comm) {
    while (h->successions.count <= (uint64_t)comm) PUSH(h->successions, struct succession *, NULL);
    struct succession **found = &AT(h->successions, struct succession *, comm);
    if (*found == NULL) {
        *found = new(sizeof **found);
        (*found)->comm = comm;
    }
    return *found;
}

struct took *took_from(const struct column *column, int64_t tick, struct took **end) {
    uint64_t first = first_by(column, sizeof(struct took), tick), last = first;
    while (last < column->count && AT(*column, struct took, last).tick == tick) last++;
    *end = (struct took *)column->data + last;
    return (struct took *)column->data + first;
}

struct took *took_at(const struct column *column, int64_t tick) {
    struct took *end, *each = took_from(column, tick, &end);
    while (each < end && each->done) each++;
    return each < end ? each : NULL;
}

/* ---- for crdebug ------------------------------------------------------------------------------- */

EXPORTED struct history *crdebug_history_new(int64_t eager, int64_t trees,
                                             const struct function *functions) {
    struct history *h = new(sizeof *h);
    h->eager = eager;
    h->trees = trees;
    h->functions = functions;
    channels_tidy(h);
    return h;
}

static void succession_free(struct succession *s) {
    if (s == NULL) return;
    for (uint64_t k = 0; k < s->ranks.count; k++) {
        column_free(&AT(s->entered, struct column, k));
        column_free(&AT(s->completed, struct column, k));
    }
    for (uint64_t k = 0; k < s->shapes.count; k++)
        column_free(&AT(s->shapes, struct shaped, k).numbers);
    struct column *columns[] = {&s->members, &s->ranks,    &s->entered, &s->completed,
                                &s->names,   &s->roots,    &s->posted,  &s->shape,
                                &s->shapes,  &s->blocking, &s->together};
    for (unsigned k = 0; k < sizeof columns / sizeof *columns; k++) column_free(columns[k]);
    history_window_free(s);
    free(s);
}

static void rank_free(struct rank *r) {
    /* the tables are columns throughout */
    struct column *columns = &r->sends.tick;
    for (unsigned k = 0; k < sizeof r->sends / sizeof *columns; k++) column_free(columns + k);
    columns = &r->receives.tick;
    for (unsigned k = 0; k < sizeof r->receives / sizeof *columns; k++) column_free(columns + k);
    column_free(&r->open);
    column_free(&r->grabbed);
    column_free(&r->grabs);
    column_free(&r->collectives);
    column_free(&r->started);
    column_free(&r->prepared);
    column_free(&r->parts);
    free(r);
}

EXPORTED void crdebug_needs_free(struct needs *needs);

EXPORTED void crdebug_history_free(struct history *h) {
    for (uint64_t k = 0; k < h->ranks.count; k++)
        if (AT(h->ranks, struct rank *, k)) rank_free(AT(h->ranks, struct rank *, k));
    for (uint64_t k = 0; k < h->successions.count; k++)
        succession_free(AT(h->successions, struct succession *, k));
    for (uint64_t k = 0; k < h->starts.count; k++)
        succession_free(AT(h->starts, struct succession *, k));
    history_together_free(h);
    for (uint64_t k = 0; k < h->needs.count; k++)
        crdebug_needs_free(AT(h->needs, struct needs *, k));
    for (uint64_t k = 0; k < h->channels_room; k++)
        if (h->channels[k]) channel_free(h->channels[k]);
    column_free(&h->ranks);
    column_free(&h->successions);
    column_free(&h->starts);
    column_free(&h->needs);
    column_free(&h->stale);
    free(h->needs_table);
    free(h->channels);
    free(h);
}

EXPORTED struct rank *crdebug_history_rank(struct history *h, int32_t rank) {
    return history_rank(h, rank);
}

EXPORTED struct succession *crdebug_history_succession(struct history *h, int64_t comm) {
    return succession_of(h, comm);
}

EXPORTED const struct column *crdebug_history_successions(struct history *h) {
    return &h->successions;
}

EXPORTED const struct column *crdebug_history_needs(struct history *h) { return &h->needs; }

/* Who takes part in the collectives of a communicator. */
EXPORTED void crdebug_history_members(struct history *h, int64_t comm, const int32_t *ranks,
                                      uint64_t count) {
    struct succession *s = succession_of(h, comm);
    s->members.count = 0;
    for (uint64_t k = 0; k < count; k++) PUSH(s->members, int32_t, ranks[k]);
}

/* What is not matched yet. what: 0 sends, 1 receives (rows of their tables), 2 probes (ticks). */
EXPORTED void crdebug_history_waiting(struct history *h, int32_t what, struct column *found) {
    found->count = 0;
    for (uint64_t at = 0; at < h->channels_room; at++) {
        const struct channel *channel = h->channels[at];
        if (channel == NULL) continue;
        const struct queue *queue = what ? &channel->posted : &channel->sent;
        uint64_t count = what == 2 ? channel->looking.count : queue_length(queue);
        for (uint64_t k = 0; k < count; k++) {
            int64_t row =
                what == 2 ? AT(channel->looking, struct look, k).tick : queue_rows(queue)[k];
            PUSH(*found, struct waiting,
                 ((struct waiting){channel->sender, channel->receiver, row}));
        }
    }
    if (what == 2) history_asked(h, found);
}
