/* A rank's log while it is read: history_log.c; for its requests history_requests.c; for some of its calls
 * history_chosen.c. */
#ifndef CRDEBUG_HISTORY_LOG_H
#define CRDEBUG_HISTORY_LOG_H

#include "clock.h"
#include "history_comms.h"

#define DEFINITION 0
#define STEP 256 /* calls between two places from which reading can begin */
#define PROC_NULL 1
#define TAG_MOST ((1u << 28) - 1) /* this, or more: the true values follow */
#define PEER_MOST ((1u << 20) - 1)
#define SIZE_MOST UINT32_MAX
#define FLAG(flag) ((uint64_t)(flag) << 9)

struct cursor {
    int64_t tick;
    uint64_t place; /* in records */
    uint64_t posted; /* requests so far */
};

struct
    cancel { /* a request that MPI_Cancel was called for: its number, where it was posted, and when */
    uint64_t posted, place;
    int32_t slot;
    int64_t tick;
};

struct span { /* ticks: of an MPI_Cancel, and of the call by which that request was complete */
    int64_t from, to;
};

struct prepared { /* by a call of F_PREPARES: what its starts are */
    int32_t kind, comm, peer, tag;
    int64_t bytes;
};

struct
    old { /* a request from before the record begins: its number, and what `posted` has of others */
    uint64_t number;
    int64_t tick;
    uint64_t place;
    int32_t slot;
};

struct log {
    const uint8_t *map; /* the header, the ring, the ring once more, the two areas: see clock.h */
    uint64_t size, capacity, calls; /* size: of the map; capacity: of the ring, in records */
    struct cursor begin, at; /* what is read; begin: from where on */
    int64_t run,
        run_tick; /* the last record is a run of calls that said no, which may grow: its place */
    int64_t rank, world;
    struct column posted; /* int64_t: ticks; of the requests from begin.posted on */
    struct column old; /* struct old, by number */
    struct column marks; /* struct cursor, every STEP calls */
    struct column comms; /* by number, columns of struct comm */
    struct column outside, one_sided; /* int64_t: ticks of such calls */
    struct column completes, slots; /* int64_t, int32_t: of the call that was read last */
    struct column cancels; /* struct cancel: of those that have not completed */
    struct column cancelled; /* struct span: of those that have */
    struct column prepared; /* struct prepared */
    struct column prepares; /* struct call: of these */
};

/* What a receive with these flags leaves open. */
static inline int32_t wild_of(uint32_t flags) {
    return (int32_t)((flags & CRDEBUG_WILD_SOURCE ? W_SOURCE : 0) |
                     (flags & CRDEBUG_WILD_TAG ? W_TAG : 0));
}

static inline const struct crdebug_record *record_at(const struct log *log, uint64_t place) {
    return (const struct crdebug_record *)(log->map + CRDEBUG_LOG_HEADER) +
           (place & (log->capacity - 1));
}

/* The same of a posting, which may be from before the record begins; NULL if it is not there. */
const struct crdebug_record *posting_at(const struct log *log, uint64_t place);
/* The tick of a request's posting, 0 if it is not known any more. */
int64_t log_posted(const struct log *log, uint64_t number);
/* Where the call of a tick is on record; -1 if that is not known any more. */
int64_t log_place(const struct log *log, const struct function *functions, int64_t tick);
/* Is there, at a tick, a request that MPI_Cancel was called for, and that is not complete? */
bool log_cancelling(const struct log *log, int64_t tick);

/* What the record of an MPI_Startall says of one of its requests, from 1. */
static inline const uint32_t *slot_of(const struct crdebug_record *record, int64_t slot) {
    return (const uint32_t *)(record + 1) + 1 + CRDEBUG_SLOT * (slot - 1);
}

/* Could the layer have written the record that is read next, or this call? history_sound.c */
bool log_is_sound(const struct log *log, const struct function *functions, uint64_t tail);
bool call_is_sound(const struct log *log, const struct function *functions,
                   const struct call *call);

/* Read the call at a cursor, and go past it. Returns how many requests it posted; for the definition
 * of a communicator, `function` is 0. completes: what the call's own refers to; slots: NULL, or which they
 * are of an MPI_Startall. */
uint64_t log_next(const struct log *log, struct cursor *at, const struct function *functions,
                  struct call *call, struct column *completes, struct column *slots);
/* Of a request, by its number from 0: which it is of those that its call started, from 1; 0 if it is the
 * only one. */
int32_t log_slot(const struct log *log, uint64_t number);
/* A request that MPI_Start or MPI_Startall started; flags: of the record. */
void log_started(const struct log *log, uint64_t flags, struct call *call);
/* All that an MPI_Startall started, into the history. */
void log_start_all(const struct log *log, struct history *history, const struct call *call);
/* What a call has prepared, to be started. */
void log_prepared(struct log *log, struct history *history, const struct function *functions,
                  const struct call *call);
/* MPI_Cancel only asks: whether it was cancelled, the record says once it has completed. So it has, too,
 * in an MPI_Request_free of a receive; of a send nobody knows then. */
void log_cancels(struct log *log, struct history *history, const struct function *functions,
                 struct call *call);

#endif
