/* Collective calls: which calls of the members belong together.
 *
 * All members of a communicator call its collectives in the same order, blocking and nonblocking ones
 * alike (MPI 4.1, sections 6.1 and 6.12), so the n-th collective call of one member belongs to the
 * n-th of each other. Constructors of communicators and windows are collective over the parent, and
 * count too; fences of a window and its end are in an order of their own. */
#include "history.h"

static int64_t place_in(const struct succession *s, int32_t rank) {
    for (uint64_t k = 0; k < s->members.count; k++)
        if (AT(s->members, int32_t, k) == rank) return (int64_t)k;
    return rank;
}

/* `done` completed a posted collective that `entered` has posted. */
static void passed(struct history *h, struct succession *s, uint64_t number, uint64_t entered,
                   uint64_t done) {
    int32_t first = AT(s->ranks, int32_t, entered), second = AT(s->ranks, int32_t, done);
    int32_t root = AT(s->roots, int32_t, number);
    bool certain = true;
    switch (AT(s->shape, uint8_t, number)) {
    case S_FROM_ROOT: certain = first == root; break;
    case S_TO_ROOT: certain = second == root; break;
    case S_LOWER: certain = place_in(s, first) < place_in(s, second); break;
    case S_NOBODY: certain = false; break;
    default: break;
    }
    if (!certain && !h->trees) return;
    int64_t key = AT(AT(s->entered, struct column, entered), int64_t, number);
    int64_t value = AT(AT(s->completed, struct column, done), int64_t, number);
    needs_add(needs_of(h, first, second, certain ? W_LOOKED : W_TREE), key, value);
}

static uint64_t member(struct succession *s, int32_t rank) {
    uint64_t at = 0;
    while (at < s->ranks.count && AT(s->ranks, int32_t, at) != rank) at++;
    if (at == s->ranks.count) {
        PUSH(s->ranks, int32_t, rank);
        PUSH(s->entered, struct column, (struct column){0});
        PUSH(s->completed, struct column, (struct column){0});
    }
    return at;
}

/* The first to come tells what it is. */
static void begun(struct history *h, struct succession *s, const struct call *c, bool posted) {
    int32_t function = s->function ? s->function : c->function;
    int64_t number = (int64_t)s->names.count, shape = h->functions[function].shape;
    bool rooted = shape == S_FROM_ROOT || shape == S_TO_ROOT;
    int32_t root = rooted && c->peer >= 0 ? c->peer : -1;
    if (root < 0 && rooted) shape = S_ALL; /* between groups, or a root that is not known */
    /* All members say so, or none; it need not be a barrier then (MPI 4.1, section 12.5.1). */
    if (c->odd) shape = S_NOBODY;
    if (!posted && h->functions[function].special & F_PREPARES) shape = S_NOBODY;
    PUSH(s->names, int32_t, function);
    PUSH(s->roots, int32_t, root);
    PUSH(s->posted, uint8_t, posted);
    PUSH(s->shape, uint8_t, (uint8_t)shape);
    if (posted) return;
    PUSH(s->blocking, int64_t, number);
    uint64_t k = 0;
    for (; k < s->shapes.count; k++) {
        struct shaped *each = &AT(s->shapes, struct shaped, k);
        if (each->shape == shape && each->root == root) break;
    }
    if (k == s->shapes.count)
        PUSH(s->shapes, struct shaped, ((struct shaped){.shape = shape, .root = root}));
    PUSH(AT(s->shapes, struct shaped, k).numbers, int64_t, number);
}

void history_collective(struct history *h, struct rank *r, const struct call *c, int64_t comm) {
    struct succession *s = history_succession(h, comm);
    uint64_t own = member(s, c->rank), number = AT(s->entered, struct column, own).count;
    bool posted = c->kind == K_POST_COLLECTIVE;
    PUSH(AT(s->entered, struct column, own), int64_t, c->tick);
    PUSH(AT(s->completed, struct column, own), int64_t, posted ? NEVER : c->tick);
    if (number == s->names.count) begun(h, s, c, posted);
    if (!AT(s->posted, uint8_t, number)) return;
    PUSH(r->collectives, struct took, ((struct took){c->tick, comm, (int64_t)number, 0, c->slot}));
    for (uint64_t other = 0; other < s->ranks.count; other++) {
        struct column *done = &AT(s->completed, struct column, other);
        if (other != own && number < done->count && AT(*done, int64_t, number) != NEVER)
            passed(h, s, number, own, other);
    }
}

void history_collected(struct history *h, struct rank *r, const struct call *c, int64_t tick,
                       int32_t slot) {
    struct took *end, *took = took_from(&r->collectives, tick, &end);
    while (took < end && (took->done || took->slot != slot)) took++;
    if (took == end) return;
    struct succession *s = history_succession(h, took->what);
    uint64_t number = (uint64_t)took->number, own = member(s, c->rank);
    took->done = 1;
    AT(AT(s->completed, struct column, own), int64_t, number) = c->tick;
    for (uint64_t other = 0; other < s->ranks.count; other++)
        if (other != own && number < AT(s->entered, struct column, other).count)
            passed(h, s, number, other, own);
}
