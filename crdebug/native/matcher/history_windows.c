/* Windows: who waits for whom where not all of a window's members come together.
 *
 * A start names the targets of an access epoch, a post the origins of an exposure epoch; of an origin
 * and a target, the n-th start belongs to the n-th post, and the complete and the wait that end them to
 * each other (MPI 4.1, section 12.5.2). A wait returns only once all origins have called complete. A
 * start may wait for the posts of its targets; where it does not, complete may, for what was put has to
 * be somewhere.
 *
 * A lock waits for the unlock of another member's, but which of them came first no record says: MPI
 * orders only what the program orders (12.5.3), so there is no rule for it. */
#include <string.h>

#include "history_kept.h"

enum step { POST, START, COMPLETE, WAIT };

struct
    exposure { /* of a target to an origin, in one window: the ticks of its steps, one after the other */
    int32_t origin, target;
    struct column ticks[4]; /* int64_t; by enum step */
};

/* `waiter` completes only once `needed` has been entered. */
static const struct rule {
    enum step waiter, needed;
    enum why why;
} rules[] = {{START, POST, W_POSTED}, {COMPLETE, POST, W_POSTED}, {WAIT, COMPLETE, W_EXPOSED}};
#define RULES (sizeof rules / sizeof *rules)

static int32_t who(const struct exposure *e, enum step step) {
    return step == START || step == COMPLETE ? e->origin : e->target;
}

static struct exposure *exposure_of(struct succession *window, int32_t origin, int32_t target) {
    uint64_t low = 0, high = window->exposures.count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const struct exposure *e = &AT(window->exposures, struct exposure, middle);
        if (e->origin < origin || (e->origin == origin && e->target < target)) low = middle + 1;
        else high = middle;
    }
    struct exposure *e =
        window->exposures.count ? &AT(window->exposures, struct exposure, low) : NULL;
    if (low < window->exposures.count && e->origin == origin && e->target == target) return e;
    PUSH(window->exposures, struct exposure, (struct exposure){0});
    e = &AT(window->exposures, struct exposure, low);
    memmove(e + 1, e, (window->exposures.count - 1 - low) * sizeof *e);
    *e = (struct exposure){.origin = origin, .target = target};
    return e;
}

static void stepped(struct history *h, struct exposure *e, enum step step, int64_t tick) {
    uint64_t number = e->ticks[step].count;
    PUSH(e->ticks[step], int64_t, tick);
    for (uint64_t k = 0; k < RULES; k++) {
        const struct rule *rule = &rules[k];
        const struct column *waiting = &e->ticks[rule->waiter], *needed = &e->ticks[rule->needed];
        if (rule->waiter != step && rule->needed != step) continue;
        if (number >= waiting->count || number >= needed->count || e->origin == e->target) continue;
        needs_add(needs_of(h, who(e, rule->needed), who(e, rule->waiter), rule->why),
                  AT(*needed, int64_t, number), AT(*waiting, int64_t, number));
    }
}

void history_window(struct history *h, const struct call *c) {
    int32_t special = h->functions[c->function].special;
    if (c->comm < 0) return;
    struct succession *window = succession_of(h, c->comm);
    if (special & (F_EXPOSES | F_ACCESSES)) {
        for (uint64_t k = 0; k < c->completes_count; k++) {
            int32_t other = (int32_t)c->completes[k];
            if (special & F_EXPOSES) stepped(h, exposure_of(window, other, c->rank), POST, c->tick);
            else stepped(h, exposure_of(window, c->rank, other), START, c->tick);
        }
        return;
    }
    enum step begin = special & F_ACCESSED ? START : POST,
              end = special & F_ACCESSED ? COMPLETE : WAIT;
    for (uint64_t k = 0; k < window->exposures.count; k++) {
        struct exposure *e = &AT(window->exposures, struct exposure, k);
        if (who(e, begin) == c->rank && e->ticks[end].count < e->ticks[begin].count)
            stepped(h, e, end, c->tick);
    }
}

bool window_is_closed(const struct place *p, const struct succession *window) {
    for (uint64_t k = 0; k < window->exposures.count; k++) {
        const struct exposure *e = &AT(window->exposures, struct exposure, k);
        if (e->origin >= p->ranks || e->target >= p->ranks) return false;
        uint64_t posts = first_at(&e->ticks[POST], p->ticks[e->target] + 1);
        for (int step = START; step <= WAIT; step++)
            if (first_at(&e->ticks[step], p->ticks[who(e, (enum step)step)] + 1) != posts)
                return false;
    }
    return true;
}

void history_window_free(struct succession *window) {
    for (uint64_t k = 0; k < window->exposures.count; k++)
        for (int step = POST; step <= WAIT; step++)
            column_free(&AT(window->exposures, struct exposure, k).ticks[step]);
    column_free(&window->exposures);
}

/* Completions for which a rank has made no call that is on record: waiter, tick, and why, as numbers. */
EXPORTED void crdebug_history_unposted(struct history *h, int32_t absent, struct column *found) {
    found->count = 0;
    for (uint64_t at = 0; at < h->successions.count; at++) {
        const struct succession *window = AT(h->successions, struct succession *, at);
        for (uint64_t k = 0; window != NULL && k < window->exposures.count; k++) {
            const struct exposure *e = &AT(window->exposures, struct exposure, k);
            for (uint64_t n = 0; n < RULES; n++) {
                const struct column *waiting = &e->ticks[rules[n].waiter];
                uint64_t number = e->ticks[rules[n].needed].count;
                if (who(e, rules[n].needed) != absent || e->origin == e->target ||
                    number >= waiting->count)
                    continue;
                PUSH(*found, int64_t, who(e, rules[n].waiter));
                PUSH(*found, int64_t, AT(*waiting, int64_t, number));
                PUSH(*found, int64_t, (int64_t)rules[n].why);
            }
        }
    }
}

/* Whom a rank waits for in the step of a window that it is in, and that is not on record: COMPLETE for
 * the posts of its targets, WAIT for the completes of its origins. For START those of its targets whose
 * posts are there. */
EXPORTED void crdebug_history_unexposed(struct history *h, int64_t comm, int32_t rank, int32_t step,
                                        struct column *found) {
    const struct succession *window = succession_of(h, comm);
    enum step own = (enum step)step, needed = own == WAIT ? COMPLETE : POST,
              begun = own == WAIT ? POST : START;
    found->count = 0;
    for (uint64_t k = 0; k < window->exposures.count; k++) {
        const struct exposure *e = &AT(window->exposures, struct exposure, k);
        uint64_t number = e->ticks[own].count;
        bool there = e->ticks[needed].count > number;
        if (who(e, own) != rank || e->origin == e->target) continue;
        if (own == START ? there : !there && e->ticks[begun].count > number)
            PUSH(*found, int64_t, who(e, needed));
    }
}
