/* What the layer between a rank and its MPI shares with crdebug: a clock in the rank's private
 * memory, which a restore takes back with everything else, and a log in a shared file outside of
 * the checkpoint, which stays (crdebug/native/recorder/clock.py mirrors this file, with its version).
 *
 * `cursor` is in the clock and `tail` in the log: behind the tail the rank repeats what was
 * recorded, at the tail it records.
 *
 * The records are a ring: their places only grow, and the record of a place is at this place modulo the
 * capacity, which is a power of two. While crdebug gives up what is oldest, the record never ends. Of
 * what is given up, the records of receives that are still open are copied to one of two small areas
 * behind the ring, each as a record {its place, how many records} and these; {0, 0} ends them. `begin`
 * says at once where the record begins and which area holds. */
#ifndef CRDEBUG_CLOCK_H
#define CRDEBUG_CLOCK_H

#include <stdint.h>

#define CRDEBUG_CLOCK_ABI 6u
#define CRDEBUG_TIME_DIR "/dev/shm/crdebug/time" /* one file a rank; or where $CRDEBUG_TIME says */
/* Set if all ranks are to have connections before MPI_Init returns, see pmpi_connect.c. */
#define CRDEBUG_CONNECT_VARIABLE "CRDEBUG_CONNECT"
#define CRDEBUG_NEVER UINT64_MAX
#define CRDEBUG_SITES 65536
#define CRDEBUG_LOG_HEADER (4096 + CRDEBUG_SITES * 8)
#define CRDEBUG_OLD (UINT64_C(1) << 16) /* records in each of the two areas behind the ring */
#define CRDEBUG_PAGE UINT64_C(256) /* records in a page of memory */
#define CRDEBUG_DOING 15 /* words */
#define CRDEBUG_OPS 14
#define CRDEBUG_BUCKETS 4096

enum crdebug_mode { CRDEBUG_COUNTS = 0, CRDEBUG_RECORDS = 1 };

/* Why nothing is recorded (any more). */
enum crdebug_refused {
    CRDEBUG_NOT_REFUSED = 0,
    CRDEBUG_THREADS = 1, /* MPI calls from more than one thread */
    CRDEBUG_LOG_FULL = 2,
    CRDEBUG_LOG_FILE = 3, /* it cannot be made, or is another layer's */
    CRDEBUG_COMMS = 4, /* more communicators than the log can number */
    CRDEBUG_MEMORY = 5,
    CRDEBUG_NEWER = 6, /* a call of MPI-4 that is not in the table */
    CRDEBUG_NO_SPACE = 7, /* the disk is full, or a quota, or a file may not be so large */
    CRDEBUG_GIVEN_UP = 8, /* what was recorded there is not there any more */
};

enum crdebug_held { CRDEBUG_FREE = 0, CRDEBUG_AT_STOP = 1, CRDEBUG_AT_DIVERGENCE = 2 };

/* From MPI_Finalize no snapshot in memory leads back. A rank of a job that has nothing else waits in
 * front of it, as long as `stop` is there, which it sets itself. */
enum crdebug_last { CRDEBUG_GOES = 0, CRDEBUG_WAITS = 1, CRDEBUG_IS_THERE = 2 };

enum crdebug_enforce {
    CRDEBUG_ASK_ANEW = 0, /* forget what lies behind the cursor, and record from here */
    CRDEBUG_ENFORCE = 1,
    CRDEBUG_BRANCH = 2, /* as 0 at the next call, which then makes it 1 */
};

/* One call, or what belongs to one. Fields of `head`, from the lowest bit:
 *    9 bits call     its number in the table, crdebug/native/recorder/mpi_calls.py
 *    7 bits flags    enum crdebug_flags
 *   16 bits site     index into the header's table of sites: return addresses, of which the upper 16 bits
 *                    say what is sent: 6 bits the type, 6 that of what is received besides, 4 the operation
 *                    (mpi_types.py)
 *   32 bits size     bytes of the message; of a completion, how far back the posting call is (1: the
 *                    last); of a run of calls that said no, their number
 * and of `body` (of MPI_Wtime the value; of a run of calls that said no, 48 bits that tell equal ones):
 *   28 bits tag      0 none, 1 any, else tag + 4; of a Wait*, Test* the index; of MPI_Win_lock
 *                    whether it excludes others (1)
 *   20 bits peer     0 none, 1 MPI_PROC_NULL, 2 any, 3 MPI_ROOT, else rank in the communicator + 4
 *   16 bits comm     its number in this log, defined by a record of the call 0; so are windows
 * A packed one (two halves, of equal tag and size) has tag, source, destination of 16 bits each.
 * With CRDEBUG_MORE 32-bit words follow in records of their own, of which the first is the number
 * of these records; and, in its upper 8 bits, how the call failed, if it did (mpi_errors.py). */
struct crdebug_record {
    uint64_t head, body;
};

enum crdebug_flags {
    CRDEBUG_MORE = 1,
    CRDEBUG_WILD_SOURCE = 2,
    CRDEBUG_WILD_TAG = 4,
    CRDEBUG_DONE = 8, /* a posted receive: it completed before the tail */
    CRDEBUG_NO = 16, /* the answer was no */
    CRDEBUG_ODD =
        32, /* cancelled; or MPI_UNDEFINED; or, of a window's fence, that it ends no epoch */
    CRDEBUG_PACKED =
        64, /* two halves in one; or, of a Waitall, the last requests that were posted; or,
                            of a started request, a receive */
};

#define CRDEBUG_FAILED_SHIFT 24
#define CRDEBUG_ARGUMENT_ERRORS \
    25 /* up to this: an argument was wrong, and nothing was communicated */
#define CRDEBUG_MORE_MOST ((UINT32_C(1) << CRDEBUG_FAILED_SHIFT) - 1)

/* A started send is no receive: its two flags for what a receive leaves open say which kind it is of. */
#define CRDEBUG_SYNCHRONOUS CRDEBUG_WILD_SOURCE
#define CRDEBUG_BUFFERED CRDEBUG_WILD_TAG
/* Both: a collective, or a message of partitions. The tag is the number of the call that prepared it,
 * from 1, among all of this log that prepare such. */
#define CRDEBUG_TOGETHER (CRDEBUG_SYNCHRONOUS | CRDEBUG_BUFFERED)

/* MPI_Startall: words for each of its requests, and the bits of the first of them. */
enum crdebug_slot {
    CRDEBUG_SLOT_PEER,
    CRDEBUG_SLOT_TAG,
    CRDEBUG_SLOT_COMM,
    CRDEBUG_SLOT_SIZE,
    CRDEBUG_SLOT
};
#define CRDEBUG_SLOT_DONE (UINT32_C(1) << 31) /* the receive completed before the tail */
#define CRDEBUG_SLOT_CANCELLED (UINT32_C(1) << 30)
#define CRDEBUG_SLOT_FLAGS(flags) ((uint32_t)(flags) << 20) /* as of a single one */

/* The last record of a log that was cut from outside, while the rank stood elsewhere: a rank that
 * comes to it forgets it, and records. */
#define CRDEBUG_CUT_HEAD (UINT64_C(16) << 9) /* CRDEBUG_NO, of no call */
#define CRDEBUG_CUT_BODY UINT64_C(0x6572656820747563)

#define CRDEBUG_FAILED_NOW(failed) ((uint64_t)(failed) << 56)
#define CRDEBUG_ABORTS UINT32_MAX /* MPI_Abort */

struct crdebug_log {
    uint32_t abi;
    uint32_t size; /* of this header: where the records begin */
    int32_t rank, world;
    uint64_t capacity; /* in records, of the ring */
    uint64_t tail; /* a place */
    uint64_t tail_now; /* where the clock stands when all of them are done */
    uint64_t first_now; /* where it stood before the first of them */
    uint64_t calls; /* which table numbered the calls */
    uint32_t refused, sites;
    uint32_t cuts, reserved; /* cuts: how often it was cut at the cursor */
    uint64_t room; /* in records: up to here the disk has space for this file */
    uint64_t
        begin; /* twice the first place that is on record, and which of the areas holds: 0, 1 */
    /* As in the clock, for whoever looks when the rank is gone; CRDEBUG_FAILED_NOW is or'ed into doing_now
     * where the MPI ends the process in this call, which failed so (mpi_errors.py).
     * How it has ended outside of all calls: `left` by exit, before MPI_Finalize, its status + 1, or
     * CRDEBUG_ABORTS; outside_failed: a call that is not counted has failed so. ended_now: the clock then; when
     * it is not tail_now, that was in another course. */
    struct crdebug_record doing;
    uint64_t doing_now, doing_site;
    uint64_t ended_now, outside_site;
    uint32_t left, outside_failed;
    char outside[40]; /* its name */
};

struct crdebug_clock {
    uint32_t abi;
    uint32_t size;
    int32_t rank; /* in MPI_COMM_WORLD, -1 before MPI_Init */
    int32_t world;
    uint64_t now; /* half ticks: odd inside a counted call */
    uint64_t stop; /* hold when `now` is this, before it grows */
    uint32_t held; /* enum crdebug_held */
    uint32_t mode;
    uint64_t cursor; /* the next record */
    uint64_t repeat; /* of the run of equal answers before the cursor: how many were given */
    uint32_t initialized; /* between MPI_Init and MPI_Finalize */
    int32_t thread_level;
    uint32_t open_epochs; /* one-sided: with accesses that may not have been done yet */
    uint32_t refused;
    uint32_t enforce;
    uint32_t diverged; /* set back to 0 from outside: forget the log behind the cursor, go on */
    uint64_t diverged_now;
    struct crdebug_record expected, actual;
    uint64_t pending_wild; /* posted receives whose sender is open */
    uint64_t calls; /* which table numbers the calls */
    /* It repeats, and knows: what it has posted is posted as the log says. A held rank that is behind
     * its log sees so itself; nobody may be let go before. */
    uint32_t replaying;
    uint16_t expected_failed, actual_failed; /* how; 0: it did not */
    /* Of the words that follow the two records the four with the first that differs, from this one on
     * (the first four, if none does); 0 where there are none. */
    uint32_t words_from;
    uint32_t last; /* enum crdebug_last; CRDEBUG_WAITS is set from outside */
    uint32_t expected_words[4], actual_words[4];
    /* Set from outside: the rank, in the communicator and plus 1, from which the next receive or probe
     * takes its message that leaves the sender open, and that is not recorded yet; 0: the MPI chooses. */
    uint32_t choice;
    /* Set from outside: what calls have left on the stack is overwritten when they return, so that what
     * the program has not initialised is the same each time, whatever the MPI has done meanwhile. */
    uint32_t wipes;
    /* The address of CRDEBUG_BUCKETS pointers to the requests that the program holds: struct request in
     * pmpi.h. 0 before the first. */
    uint64_t requests;
    /* crdebug asks in which calls, and between which, these bytes change; while it does not, look_size
     * is 0. Looked at where a call begins, and where it ends. */
    uint64_t look_at;
    uint32_t look_size, look_known; /* known: look_seen is of them */
    uint64_t look_seen; /* what they were, hashed: mix() of each 8 of them, from 0 */
    uint64_t look_changed; /* the clock when they changed last; CRDEBUG_NEVER: they have not */
    /* What was asked of the MPI last, written before it was asked, also while nothing is recorded: as a
     * record says it, with what the program gave (so a wild receive is open), and without a site. Of two
     * halves, what is received; the words are the peer, the tag and the bytes of what is sent. Of
     * several requests, words say how far back each one was posted that is active. Of an MPI_File the
     * communicator is that of its processes, as is the one of a window. doing_now is the clock inside
     * the call: when it is not `now`, this is of another call. */
    struct crdebug_record doing;
    uint64_t doing_now;
    uint64_t doing_site; /* where the call returns to */
    uint64_t doing_op; /* of a reduction */
    uint32_t doing_count; /* how many words there are; the first of them are here */
    uint32_t doing_words[CRDEBUG_DOING];
    uint64_t ops[CRDEBUG_OPS]; /* MPI's own, in the order of clock.py; 0 where it has none */
};

#endif
