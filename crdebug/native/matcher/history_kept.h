/* What of a history is needed behind a place from which on the record begins. */
#ifndef CRDEBUG_HISTORY_KEPT_H
#define CRDEBUG_HISTORY_KEPT_H

#include "history_log.h"

struct kept { /* a call, or what is needed of one */
    struct call call;
    int64_t of; /* the posting that it completes, or is about; 0 if there is none */
    int32_t of_slot;
};

struct place { /* of all ranks: the last tick before it */
    struct history *h;
    const int64_t *ticks;
    int32_t ranks;
    struct column *found; /* struct kept */
};

static inline bool is_past(const struct place *p, int32_t rank, int64_t tick) {
    return rank >= 0 && rank < p->ranks && tick <= p->ticks[rank];
}

/* To be filled in; valid until the next. */
struct call *keep(const struct place *p, int32_t rank, int64_t tick, enum kind kind);
void keep_of(const struct place *p, int64_t of,
             int32_t slot); /* the last one is about that posting */
/* That a posting was completed, if it was before the place. */
void keep_done(const struct place *p, int32_t rank, int64_t done, int64_t of, int32_t slot);
int32_t function_with(const struct history *h, int32_t special);
void keep_collectives(const struct place *p, const struct succession *s, int32_t comm);
/* What persistent requests of several ranks are together; false if that cannot be. */
bool keep_together(const struct place *p);
/* Has every post and start before the place ended before it? */
bool window_is_closed(const struct place *p, const struct succession *window);

#endif
