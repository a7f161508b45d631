/* The calls of all ranks, and which receive got which send: what timeline/matching.py asks.
 * native/matcher/library.py mirrors the structures. */
#ifndef CRDEBUG_HISTORY_H
#define CRDEBUG_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))
#define NEVER (INT64_C(1) << 62) /* the tick of what has not completed */
#define NONE INT32_MIN           /* no peer, no tag */
#define UNKNOWN (-1)             /* source or tag of a wild receive that has not completed */
#define UNMATCHED (-1)

/* In the order of timeline/calls.py, timeline/collectives.py and timeline/tables.py. */
enum kind {
    K_SEND,
    K_RECV,
    K_SENDRECV,
    K_POST_SEND,
    K_POST_RECV,
    K_POST_SENDRECV,
    K_READY,
    K_COMPLETE,
    K_NOTHING,
    K_PROBE,
    K_COLLECTIVE,
    K_POST_COLLECTIVE,
    K_COMM,
    K_RMA,
    K_TIME,
    K_CANCEL,
    K_OTHER
};
enum shape { S_ALL, S_FROM_ROOT, S_TO_ROOT, S_LOWER, S_NOBODY };
enum why { W_RECEIVED, W_SYNCHRONOUS, W_RENDEZVOUS, W_LOOKED, W_TREE, W_EXPOSED, W_POSTED };
enum mode { M_STANDARD, M_BUFFERED, M_SYNCHRONOUS, M_PARTITIONS };

/* What is particular to some functions. */
enum special {
    F_POSTS = 1,
    F_MATCHED_PROBE = 2,
    F_MATCHED_RECEIVE = 4,
    F_START = 8,
    F_STARTALL = 16,
    F_ALL = 32,        /* Waitall, Testall */
    F_SOME = 64,       /* Waitsome, Testsome */
    F_LOOKS = 128,     /* Request_get_status: what it is about is still to be completed */
    F_FREES = 256,     /* Request_free: its record has no peer */
    F_BY_GROUP = 512,  /* collective over a group that no record names */
    F_BEGIN = 1024,    /* MPI_Init*: collective over all ranks */
    F_END = 2048,      /* MPI_Finalize */
    F_OUTSIDE = 4096,  /* talks with the launcher, or with other jobs */
    F_OF_WINDOW = 1
        << 13, /* collective over a window, or over the communicator that it is made of */
    F_EXPOSES = 1 << 14,   /* Win_post, for a group */
    F_ACCESSES = 1 << 15,  /* Win_start, for a group */
    F_EXPOSED = 1 << 16,   /* Win_wait, Win_test: ends what the posts began */
    F_ACCESSED = 1 << 17,  /* Win_complete: ends what the start began */
    F_PREPARES = 1 << 18,  /* what is a request of several ranks together: see history_prepare */
    F_RECEIVES = 1 << 19,  /* Precv_init */
    F_READIES = 1 << 20,   /* Pready*: `completes` is the request that it is about */
    F_ARRIVED = 1 << 21,   /* Parrived: the same */
    F_SAME_SIZE = 1 << 22, /* a collective in which all members give as many bytes */
};

struct function {
    int32_t kind, shape, mode, special;
};

struct column { /* that grows; of elements of one size */
    void *data;
    uint64_t count, room;
};

/* Communicators that have no record. */
enum { C_NONE = -1, C_BEGIN = 0, C_END = 1, C_SELF = 2 };

/* What a receive leaves open; bits. */
enum { W_SOURCE = 1, W_TAG = 2 };

struct call { /* timeline/calls.py: Call */
    /* bytes: of MPI_Wtime the value's bits; of MPI_Request_free the tick of what posted it, or 0 */
    int64_t tick, repeats, bytes;
    int64_t place; /* of its record, or -1 */
    const int64_t *completes; /* ticks; of F_EXPOSES and F_ACCESSES the ranks of the group */
    uint64_t completes_count;
    int32_t rank, function, kind, site, comm, peer, tag, peer2, tag2, wild;
    int32_t odd; /* of a window's fence: it ends no epoch */
    int32_t mode; /* of a started send: enum mode; else it is that of the function */
    int32_t
        older; /* F_MATCHED_RECEIVE: so many of the same envelope were taken before, and are not received */
    int32_t slot; /* of one that MPI_Startall started: which; from 1 */
    const int32_t *slots; /* of what it completes; NULL if there is none */
    /* Partitions, from low to high; or so many of `listed`. Of F_PREPARES high says how many there are. */
    int32_t low, high;
    const int32_t *listed;
    int32_t failed; /* how, or 0: mpi_errors.py */
};

/* Entries (key, value), ordered by key: "`waiter` completes its call of tick `value` only if
 * `entered` has entered that of tick `key`". Minima of blocks keep a question short. */
struct needs {
    int64_t entered, waiter, why;
    struct column keys, values; /* int64_t */
    struct column minima; /* int64_t; of the leading blocks, the others are computed when needed */
};

struct sends { /* of one rank; timeline/tables.py */
    struct column tick, done, bytes; /* int64_t */
    struct column peer, comm, tag, partner, slot; /* int32_t */
    struct column mode, cancelled; /* uint8_t */
};

struct receives {
    struct column tick, done; /* int64_t */
    struct column peer, comm, tag, partner; /* int32_t */
    struct column wild, cancelled; /* uint8_t */
};

struct succession { /* the collectives of one communicator, in order; timeline/collectives.py */
    int64_t comm;
    struct column members; /* int32_t; empty while unknown */
    struct column ranks; /* int32_t: who takes part, in the order of coming */
    struct column entered, completed; /* struct column of int64_t, as in `ranks` */
    struct column names, roots; /* int32_t: number of the function; -1 where there is no root */
    struct column posted, shape; /* uint8_t */
    struct column shapes; /* struct shaped */
    struct column blocking; /* int64_t: numbers of those that complete in themselves */
    struct column exposures; /* struct exposure, by origin and target; of a window */
    struct column together; /* int32_t: the persistent ones that are prepared on it, in order */
    int32_t function; /* of the starts of a persistent one: that prepared it; else 0 */
};

struct shaped {
    int64_t shape, root;
    struct column numbers; /* int64_t */
};

struct open { /* a wild receive of which it is not known what it got */
    int64_t row, place, slot;
};

struct
    took { /* a call that took what a matched probe found; or posted a collective; or started many */
    int64_t tick, what, number, done, slot;
};

struct log;

struct rank {
    int64_t last; /* the last tick on record */
    int64_t blind; /* it started requests of which the record does not say what they are */
    struct sends sends;
    struct receives receives;
    struct column open; /* struct open */
    struct column grabbed; /* int32_t: receives that matched probes took */
    struct column grabs; /* struct took: by tick, the receive */
    struct column collectives; /* struct took: posted ones: communicator and number */
    struct column
        started; /* struct took: by MPI_Startall: a row, and its slot; below 0 of a send */
    struct column prepared; /* int32_t: by communicator, how many persistent collectives */
    struct column parts; /* struct part: starts of messages of partitions, by tick */
    struct log *log;
};

struct queue { /* rows of a table, oldest first */
    struct column rows; /* int32_t */
    uint64_t first;
};

struct
    look { /* a probe that said yes before its send was read; receives of the channel before it */
    int64_t before, tick;
};

struct channel { /* what is not matched yet */
    int32_t sender, receiver, comm, tag;
    struct queue sent, posted;
    struct column looking; /* struct look */
    int32_t prepared[2]; /* messages of partitions, by its sender, its receiver */
    struct column together; /* int32_t: these, in order */
};

struct history {
    int64_t eager, trees;
    const struct function *functions;
    struct column ranks; /* struct rank * */
    struct column successions; /* struct succession *, by communicator */
    struct column needs; /* struct needs *, in the order of being made */
    struct column stale; /* struct waiting: pairs of ranks that were matched anew */
    struct column together; /* struct together * */
    struct column starts; /* struct succession *: of the persistent collectives among them */
    struct needs **needs_table;
    struct channel **channels;
    uint64_t needs_room, channels_room, channels_count;
};

/* Two ranks and a row of a table (or a tick), of what waits. */
struct waiting {
    int64_t sender, receiver, what;
};

void *column_more(struct column *column, size_t size);
void column_free(struct column *column);
/* Index of the first element that is not less, of elements in order by the number that they begin
 * with. What is asked for is most often near the end. */
static inline uint64_t first_by(const struct column *column, size_t size, int64_t value) {
    const char *data = column->data;
    uint64_t high = column->count, low = high, step = 1;
    while (low && *(const int64_t *)(data + (low - 1) * size) >= value) {
        high = low - 1;
        low = high > step ? high - step : 0;
        step *= 2;
    }
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (*(const int64_t *)(data + middle * size) < value) low = middle + 1;
        else high = middle;
    }
    return low;
}
uint64_t first_at(const struct column *column, int64_t value); /* of int64_t */
#define PUSH(column, type, value) (*(type *)column_more(&(column), sizeof(type)) = (value))
#define AT(column, type, index) (((type *)(column).data)[index])

uint64_t needs_add(struct needs *needs, int64_t key, int64_t value);
void needs_put(struct needs *needs, uint64_t at, int64_t value);
void needs_clear(struct needs *needs);

uint64_t queue_length(const struct queue *queue);
int32_t *queue_rows(const struct queue *queue);
void queue_append(struct queue *queue, int32_t row);
int32_t queue_pop(struct queue *queue);
bool queue_take(struct queue *queue, int32_t row); /* from anywhere; false if it is not in it */

/* These are made when they are asked for the first time. */
struct rank *history_rank(struct history *history, int32_t rank);
struct needs *needs_of(struct history *history, int32_t entered, int32_t waiter, enum why why);
struct channel *channel_of(struct history *history, int32_t sender, int32_t receiver, int32_t comm,
                           int32_t tag);
struct succession *succession_of(struct history *history, int64_t comm);

/* What a call took, by the tick of the call: all of it, up to `end`; and the first that is not done yet. */
struct took *took_from(const struct column *column, int64_t tick, struct took **end);
struct took *took_at(const struct column *column, int64_t tick);

void history_read(struct history *history, const struct call *call);
/* A request completed as a cancelled one. slot: 0, or of which in an MPI_Startall. */
void history_cancelled(struct history *history, int32_t rank, int64_t tick, int32_t slot);
void history_collective(struct history *history, struct rank *rank, const struct call *call,
                        int64_t comm);
/* Of a window: a call of some of its members. */
void history_window(struct history *history, const struct call *call);
void history_window_free(struct succession *window);
/* A posted one, of the call at `tick`, has completed. */
void history_collected(struct history *h, struct rank *rank, const struct call *call, int64_t tick,
                       int32_t slot);
/* The row of a send, or -1. */
int32_t history_send(struct history *h, struct rank *rank, const struct call *call, int64_t done);

/* What persistent requests of several ranks are together (history_together.c). The number of what a call
 * prepares, below C_NONE, which is then the `comm` of calls that start it, and of its messages; 0 if
 * nobody else takes part. */
int32_t history_prepare(struct history *h, const struct call *call);
struct succession *history_succession(struct history *h, int64_t comm);
void history_begun(struct history *h, struct rank *rank, const struct call *call);
void history_partition(struct history *h, struct rank *rank, const struct call *call);
/* The row of what a start has sent, once all of it was ready; else -1. */
int32_t history_sent_whole(const struct rank *rank, int64_t tick, int32_t slot);
/* Partitions that had arrived, though it is not known that they were ready: struct waiting. */
void history_asked(const struct history *h, struct column *found);
void history_together_free(struct history *h);
/* The peer and the tag that the record of a posting says by now; false while it does not. */
int64_t log_world(const struct log *log); /* how many ranks there are */
bool log_settled(const struct log *log, int64_t place, int64_t slot, int32_t *peer, int32_t *tag);

#endif
