/* The layer between a rank and its MPI: what its parts share, and the path that every call takes.
 *
 * All state is in private memory and belongs to the one thread that has called MPI_Init; calls of
 * other threads pass through uncounted, and end the recording (crdebug_clock.refused). */
#ifndef CRDEBUG_PMPI_H
#define CRDEBUG_PMPI_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "clock.h"
#include "pmpi_calls.h" /* generated: enum crdebug_call, CRDEBUG_TABLE */
#include "pmpi_has.h"   /* generated: HAS_MPI_..., of what is newer than MPI-3.1 */

#define EXPORTED __attribute__((visibility("default")))
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define ADDRESS(site) ((site) & ((UINT64_C(1) << 48) - 1))
#define TYPES(type, second, op) ((uint64_t)((type) | (second) << 6 | (op) << 12) << 48)
#define SITE site_of((uint64_t)(uintptr_t)__builtin_return_address(0))

/* ---- MPI's constants ---------------------------------------------------------------------------- */

/* Where they are addresses of the MPI library's data, they are found at MPI_Init: this library is
 * also loaded into programs without an MPI, and before one that is loaded later. */
struct constants {
    MPI_Comm world, self, comm_null;
    MPI_Request request_null;
    MPI_Message message_null, message_no_proc;
    MPI_Datatype type_null, packed;
};
extern struct constants mpi;

/* Where a call returns to in the program: of one from Fortran, not the binding in between. The
 * bindings' code lies in this range, and other code may, too. */
extern uintptr_t binding_from, binding_size;
uint64_t caller_of_binding(uint64_t site);
static inline uint64_t site_of(uint64_t site) {
    return LIKELY(site - binding_from >= binding_size) ? site : caller_of_binding(site);
}

/* ---- the clock ---------------------------------------------------------------------------------- */

extern struct crdebug_clock crdebug_own; /* crdebug_clock, by a name that nobody can preempt */
extern struct crdebug_log *log_header;
extern struct crdebug_record *log_records; /* the ring, and behind it the same memory once more */
extern uint64_t log_mask, *site_table;
extern __thread int depth __attribute__((tls_model("initial-exec")));
extern int *owner; /* the depth of the thread that may call; NULL outside Init .. Finalize */
#define C crdebug_own

void crdebug_hold(void);
void compare_bytes(void);
void progress(unsigned *patience);
void let_mpi_work(void);
void connect_all(void);
bool outside(void); /* a call that is not counted: the MPI's own, or another thread's */

static inline bool enter(void) {
    if (UNLIKELY(&depth != owner || depth)) return outside();
    depth = 1;
    if (UNLIKELY(C.look_size)) compare_bytes();
    if (UNLIKELY(C.now == C.stop)) crdebug_hold();
    C.now++;
    return true;
}

void wipe_stack(void); /* what calls have left there, and in registers */
static inline void leave(void) {
    if (UNLIKELY(C.look_size)) compare_bytes();
    if (UNLIKELY(C.now == C.stop)) crdebug_hold();
    if (UNLIKELY(C.wipes)) wipe_stack();
    C.now++;
    depth = 0;
}

/* ---- records ------------------------------------------------------------------------------------ */

#define NOBODY UINT64_MAX /* the place of a record that was not made */
enum { TAG_ANY = 1, PEER_NULL = 1, PEER_ANY = 2, PEER_ROOT = 3, BIAS = 4 };
#define TAG_MOST ((1u << 28) - 1)  /* this, or more: the true values follow */
#define PEER_MOST ((1u << 20) - 1)
#define SIZE_MOST UINT32_MAX
#define COMM_MOST 0xffffu

#define SITE_SHIFT 16
#define SIZE_SHIFT 32
#define FLAG(flag) ((uint64_t)(flag) << 9)
#define HEAD_CALL(head) ((unsigned)(head) & 0x1ff)
#define HEAD_SIZE(head) ((uint32_t)((head) >> SIZE_SHIFT))
#define BODY_TAG(body) ((uint32_t)(body) & TAG_MOST)
#define BODY_PEER(body) ((uint32_t)((body) >> 28) & PEER_MOST)
#define BODY_COMM(body) ((uint32_t)((body) >> 48))

/* A record in the making. site: an address, with TYPES. words: what follows it; NULL: that is in `few`, which goes
 * with a note that is copied. */
struct note {
    uint64_t head, body, site;
    uint32_t count, failed; /* failed: 0, or how (mpi_errors.py) */
    uint32_t few[4];
    const uint32_t *words;
};

static inline const uint32_t *words_of(const struct note *note) {
    return note->words ? note->words : note->few;
}

static inline uint32_t peer_code(int rank) {
    if (LIKELY(rank >= 0))
        return (uint32_t)rank + BIAS < PEER_MOST ? (uint32_t)rank + BIAS : PEER_MOST;
    return rank == MPI_ANY_SOURCE ? PEER_ANY : rank == MPI_PROC_NULL ? PEER_NULL : PEER_ROOT;
}

static inline uint32_t tag_code(int tag) {
    if (UNLIKELY(tag < 0)) return TAG_ANY;
    return (uint32_t)tag + BIAS < TAG_MOST ? (uint32_t)tag + BIAS : TAG_MOST;
}

static inline int rank_of(uint32_t code) {
    return code >= BIAS ? (int)(code - BIAS) : code == PEER_ANY ? MPI_ANY_SOURCE : MPI_PROC_NULL;
}

static inline int tag_of(uint32_t code) { return code >= BIAS ? (int)(code - BIAS) : MPI_ANY_TAG; }

void note_large(struct note *note, uint64_t bytes, uint32_t peer, uint32_t tag);

/* peer and tag: codes. */
static inline struct note note_of(unsigned call, uint64_t site, uint32_t comm, uint32_t peer,
                                  uint32_t tag, uint64_t bytes) {
    uint64_t size = LIKELY(bytes < SIZE_MOST) ? bytes : SIZE_MOST;
    struct note note = {.head = call | size << SIZE_SHIFT,
                        .body = (uint64_t)comm << 48 | (uint64_t)peer << 28 | tag,
                        .site = site};
    return note;
}

static inline bool note_is_large(const struct note *note) {
    return note->head >> SIZE_SHIFT == SIZE_MOST || BODY_PEER(note->body) == PEER_MOST ||
           BODY_TAG(note->body) == TAG_MOST;
}

/* What is recorded at a place, which may be a part of one that crosses the ring's end. */
static inline struct crdebug_record *record_at(uint64_t place) {
    return log_records + (place & log_mask);
}
static inline uint64_t first_place(void) {
    return __atomic_load_n(&log_header->begin, __ATOMIC_RELAXED) / 2;
}
/* The same of a posting, which may be from before the record begins; NULL if it is not there. */
struct crdebug_record *posting_at(uint64_t place);

void went_back(void); /* to be told as soon as `behind` has become true */

/* Something recorded lies ahead, to be repeated. */
static inline bool behind(void) {
    return C.cursor != log_header->tail ||
           (C.repeat && HEAD_SIZE(record_at(C.cursor - 1)->head) != C.repeat);
}

/* The record that the next call must repeat, or NULL when it is new. */
const struct crdebug_record *expected_slow(void);
static inline const struct crdebug_record *expected(void) {
    return LIKELY(C.mode == CRDEBUG_COUNTS || !behind()) ? NULL : expected_slow();
}

/* Before the MPI is asked: is this call the recorded one? Returns its record, NULL when it is new. */
const struct crdebug_record *begin_slow(const struct note *note);
static inline const struct crdebug_record *begin(const struct note *note) {
    return LIKELY(C.mode == CRDEBUG_COUNTS || !behind()) ? NULL : begin_slow(note);
}

/* A rank may be saved inside the MPI in a call that it records, and be brought back when the call is on
 * record. Then what the MPI answers does not count: the call begins once more. record: of the call when it
 * asked the MPI. */
static inline bool brought_back(const struct crdebug_record *record) {
    return UNLIKELY(record == NULL && expected() != NULL);
}

/* The call is done, and rc is what it returns: record it, or go past its record. Returns the record's
 * place, or NOBODY. */
uint64_t finish_slow(struct note *note);
uint64_t append(struct note *note);
uint32_t failure_of(int rc); /* as the log has it (mpi_errors.py) */
uint32_t failure_of_class(int class); /* without the MPI */
static inline uint64_t finish(struct note *note, int rc) {
    if (UNLIKELY(C.mode == CRDEBUG_COUNTS)) return NOBODY;
    if (UNLIKELY(rc != MPI_SUCCESS)) note->failed = failure_of(rc);
    if (UNLIKELY(behind())) return finish_slow(note);
    return append(note);
}

/* The answer was no: one more of a run of equal ones. */
void finish_no(struct note *note);
/* Does the record say no to this call? */
bool says_no(const struct crdebug_record *record);
/* The k-th of the words that follow a record; 0 behind their end. */
uint32_t word_of(const struct crdebug_record *record, unsigned k);
uint32_t *word_at(struct crdebug_record *record, unsigned k);
void refuse(unsigned reason);
void log_the_end(void); /* when the process ends, from now on */
void log_no_end(void); /* what was said of it does not hold */
void log_is_over(void); /* MPI_Finalize has returned */
/* While the layer asks the MPI about what the program has given, no error is fatal, for the MPI has to say
 * it of the program's own call. spared: there was one. */
extern __thread bool asks, spared __attribute__((tls_model("initial-exec")));
static inline void ask(void) {
    asks = true;
    spared = false;
}
static inline bool answered(int rc) {
    asks = false;
    return rc == MPI_SUCCESS;
}
bool log_open(int rank, int world);
bool log_room(uint64_t end); /* up to this place */
FILE *log_beside(const char *suffix); /* a file beside the log, to write; NULL if it cannot be */
void told_no(struct note *note, int *flag); /* by the log: MPI is not asked, but goes on */
uint64_t mix(uint64_t hash, uint64_t value);

/* ---- what the rank is in ------------------------------------------------------------------------- */

void doing_words(const uint32_t *words, uint32_t count);
/* Of several requests: those that are active. ages: how far back each was posted. */
void doing_requests(const uint32_t *ages, int count);
/* Say what the MPI is asked, before it is. comm: 0, or of a file its communicator. */
static inline void doing_in(const struct note *note, uint32_t comm) {
#ifdef CRDEBUG_WITHOUT_DOING /* benchmarks/bench_doing.py: what is this function's cost? */
    (void)note, (void)comm;
    return;
#endif
    C.doing.head = note->head;
    C.doing.body = note->body | (uint64_t)comm << 48;
    C.doing_site = note->site;
    C.doing_count = note->count;
    if (UNLIKELY(note->count)) doing_words(words_of(note), note->count);
    __atomic_store_n(&C.doing_now, C.now, __ATOMIC_RELEASE);
    if (UNLIKELY(C.mode == CRDEBUG_COUNTS)) return;
    log_header->doing = C.doing;
    log_header->doing_site = note->site;
    __atomic_store_n(&log_header->doing_now, C.now, __ATOMIC_RELEASE);
}
static inline void doing(const struct note *note) { doing_in(note, 0); }

/* ---- communicators and types -------------------------------------------------------------------- */

struct comm_entry {
    MPI_Comm handle;
    uint32_t number, inter;
    int rank; /* ours */
    struct comm_entry *next;
    uint64_t site, now; /* where it was made, and when; 0 if it was met otherwise */
};
extern struct comm_entry *last_comm;
struct comm_entry *comm_slow(MPI_Comm comm);
/* A communicator the layer has not seen yet is defined in the log at this moment. */
static inline struct comm_entry *comm_entry(MPI_Comm comm) {
    return LIKELY(last_comm && last_comm->handle == comm) ? last_comm : comm_slow(comm);
}
static inline uint32_t comm_number(MPI_Comm comm) { return comm_entry(comm)->number; }
void comm_made(MPI_Comm comm); /* just created; MPI_COMM_NULL is nothing */
uint32_t comm_promise(MPI_Comm parent); /* a duplicate that will be there later: its number */
/* Now it is; where and when it was asked for. */
void comm_keep(uint32_t number, MPI_Comm comm, uint64_t site, uint64_t now);
void comm_gone(MPI_Comm comm); /* about to be freed */
/* An MPI_File that was opened over a communicator: its number, or 0; and what to ask of it later. */
void file_made(MPI_File file, uint32_t comm);
uint32_t file_comm(MPI_File file);
void file_gone(MPI_File file);

/* What is not freed by MPI_Finalize is told there, from MPI_Init on. called: in a callback, by the program
 * or the MPI. Of each kind; one, with the clock when it was made. */
void unfreed_begin(void);
void unfreed_finalizing(void);
void unfreed_called(void);
void comms_tell_unfreed(void);
void requests_tell_unfreed(void);
void tell_unfreed(const char *kind, uint64_t site, uint64_t now);

/* size: in bytes. code: of the basic type of all its elements (mpi_types.py), or 0. */
struct type_entry {
    MPI_Datatype type;
    int size;
    uint32_t code, known;
};
extern struct type_entry types[256];
const struct type_entry *type_slow(MPI_Datatype type);
void types_forget(void);
uint32_t made_type(MPI_Datatype type, bool *made); /* the code of one that the program has made */
uint32_t op_code(MPI_Op op);
static inline const struct type_entry *type_entry(MPI_Datatype type) {
    const struct type_entry *entry = &types[((uintptr_t)type >> 4 ^ (uintptr_t)type >> 10) % 256];
    return LIKELY(entry->type == type && entry->known) ? entry : type_slow(type);
}
static inline uint64_t bytes_of(int64_t count, MPI_Datatype type) {
    return (uint64_t)count * (uint64_t)(int64_t)type_entry(type)->size;
}
static inline uint32_t type_code(MPI_Datatype type) { return type_entry(type)->code; }
/* Of a collective, where half of the arguments may be without meaning. */
uint64_t bytes_if(const void *buffer, int64_t count, MPI_Datatype type, int64_t other,
                  MPI_Datatype other_type, MPI_Comm comm);
uint32_t type_if(const void *buffer, MPI_Datatype type, MPI_Datatype other_type, MPI_Comm comm);
/* The code of the target's type; CRDEBUG_UNEQUAL if there is more data than room for it. */
uint32_t room_code(int64_t count, MPI_Datatype type, int64_t target_count, MPI_Datatype target_type,
                   bool gets);
/* Where a process gives itself as much as it takes from itself: the code of the other type if it is
 * another one, CRDEBUG_UNEQUAL if the other half has another number of bytes. root: at which both halves
 * are there, or EVERYBODY. */
uint32_t half_code(const void *buffer, int64_t count, MPI_Datatype type, const void *other_buffer,
                   int64_t other_count, MPI_Datatype other_type, int root, MPI_Comm comm);

/* ---- choices that crdebug makes ----------------------------------------------------------------- */

/* The source of a receive or probe that may leave it open. */
static inline int chosen(int source) {
    return UNLIKELY(C.choice) && source == MPI_ANY_SOURCE ? (int)C.choice - 1 : source;
}
/* The same of the one that has got its message, or will: the next one is the MPI's. */
static inline int chosen_for_good(int source) {
    int from = chosen(source);
    if (source == MPI_ANY_SOURCE) C.choice = 0;
    return from;
}

/* ---- requests ----------------------------------------------------------------------------------- */

enum request_flags {
    R_RECV = 1,
    R_WILD = 2, /* the sender or the tag is open */
    R_PERSISTENT = 4,
    R_ACTIVE = 8,
    R_COMM = 16, /* its communicator is there when it completes */
    R_WATCH = 32, /* the log is told when it completes: behind an open one, or cancelled */
    R_SETTLED = 64, /* the log has it */
    R_DEFERRED = 128, /* not posted yet: its shadow is started at the tail of the log */
    R_DEAD = 256, /* it was cancelled, says the log: it is never posted */
    R_OWN_SHADOW = 512, /* the shadow is persistent, and ours to free */
    R_OWN_HANDLE = 2048, /* so is what the application has for a request of its own */
    R_SENDS = 4096, /* a receive with a sending half that is a request of its own, and under way */
    R_TOGETHER = 8192, /* of a persistent collective, or of a message of partitions */
    R_CANCEL = 16384, /* MPI_Cancel was called for it */
    R_NEW = 32768, /* the MPI has it, the log has not yet */
    R_SHARED =
        1024, /* a handle that MPI gives more than once: of posts to and from MPI_PROC_NULL */
};

struct request {
    /* crdebug reads these (clock.py), so they come first, in this order. */
    struct request *next;
    uint64_t number; /* of the posting */
    uint64_t record; /* its record, or NOBODY */
    uint64_t site, now; /* where it was made, and when */
    uint32_t flags, slot; /* slot: in a record of many, which; else 0 */

    MPI_Request handle; /* as the application has it */
    MPI_Request shadow; /* what MPI works on instead, while R_ACTIVE and shadowed */
    uint32_t shadowed, comm_promised;
    MPI_Request sending; /* R_SENDS: it is complete when both are */
    void *copy; /* of what goes, or NULL; ours to free */
    struct request *earlier, *later; /* of the watched ones, in the order of posting */
    MPI_Comm *new_comm;
    void *buffer; /* of a receive that is wild or persistent: what it was posted with */
    int count, source, tag;
    unsigned call; /* that prepared a persistent one */
    MPI_Datatype type;
    MPI_Comm comm;
    uint64_t bytes;
};
_Static_assert(offsetof(struct request, slot) == 44, "clock.py has other places");

extern uint64_t posted, shadows;
struct request *request_find(MPI_Request handle);
struct request *request_new(MPI_Request handle, unsigned flags);
void request_drop(struct request *request);
/* Of a receive of what a matched probe took; `words` of the note is for the caller to set. */
struct note matched_receive(unsigned call, uint64_t site, uint64_t bytes, MPI_Message message);
void requests_unsettle(void); /* the log has been cut: what is still posted is open again */
/* A request that a call has just given the application; counted also if it is none. */
struct request *request_posted(MPI_Request handle, unsigned flags, uint64_t record);
void request_prepared(MPI_Request handle, unsigned call, const void *buffer, int count,
                      MPI_Datatype type, int peer, int tag, MPI_Comm comm);
/* The same of a persistent collective or a message of partitions; counted also if it is none. */
void request_prepared_together(MPI_Request handle, MPI_Comm comm, int peer, unsigned call,
                               uint64_t bytes);
/* Watch an active receive: what it was posted with must be in it. */
void request_watch(struct request *request);
/* A receive that must not be posted now: it gets a persistent request instead. */
int request_defer(struct request *request, unsigned flag);
bool request_may_be_asked(const struct request *request); /* whether it is done */
bool request_was_received(const struct request *request); /* says the log */
void requests_sweep(unsigned most); /* what has arrived, the log is told */
void requests_went_back(void); /* what is posted, is posted as the log says */
/* A call has posted it, R_NEW, and finished: this is its record. before: `times_back` where the MPI was
 * asked to post it. */
void request_recorded(struct request *request, uint64_t record, uint64_t before);
void requests_caught_up(void); /* what was deferred is posted */
extern struct request *watched;
extern unsigned unsettled, deferred;
extern uint64_t times_back; /* how often we saw that we were brought back */
/* How far back it was posted; 0 if it was not, or is not active. */
static inline uint32_t request_age(const struct request *request) {
    if (request && request->flags & R_SHARED) return 0;
    return request && request->flags & R_ACTIVE ? (uint32_t)(posted - request->number + 1) : 0;
}
/* Is its sending half still under way? */
bool request_sends_slow(struct request *request);
static inline bool request_sends(struct request *request) {
    return UNLIKELY(request && request->flags & R_SENDS) && request_sends_slow(request);
}
/* The same of a handle, as long as requests are followed. */
static inline uint32_t handle_age(MPI_Request handle) {
    return C.mode == CRDEBUG_COUNTS ? 0 : request_age(request_find(handle));
}
/* It completed; the status must be valid if the request is wild. Drops it unless it is persistent. */
void request_completed(struct request *request, MPI_Status *status);

/* ---- completing (pmpi_wait.c) ------------------------------------------------------------------- */

/* What MPI works on, of what the application has. */
MPI_Request *real_of(struct request *request, MPI_Request *handle);
/* After the MPI has completed that: the application's handle, and our entry. */
void done(struct request *request, MPI_Request *handle, MPI_Status *status);
/* Wait for what the log says was done, as long as it says so: it may be cut meanwhile. */
bool wait_recorded(struct request *request, MPI_Request *real, MPI_Status *status, int *rc);
bool is_open(const struct request *request);

/* ---- Fortran ------------------------------------------------------------------------------------ */

void *wrapper_of(const char *name); /* of an MPI function that is wrapped, or NULL */
void find_bindings(void);
bool from_fortran(uint64_t site); /* the call has come through the MPI's Fortran bindings */

/* ---- one-sided ---------------------------------------------------------------------------------- */

enum epoch_event {
    E_ACCESS,
    E_FENCE,
    E_LOCK,
    E_FLUSH,
    E_UNLOCK,
    E_START,
    E_COMPLETE,
    E_POST,
    E_WAITED,
    E_FREE
};
#define EVERYBODY (-3) /* of a lock, a flush, an unlock; no rank, and not MPI_PROC_NULL */
void epoch(MPI_Win win, enum epoch_event event, int target); /* EVERYBODY where there is none */
void window_made(MPI_Win win, MPI_Comm comm); /* over comm */
uint32_t window_number(MPI_Win win); /* in the log, where it is as a communicator */
/* The processes of a group follow the record, as of a communicator; to be freed when it is made. */
uint32_t *note_group(struct note *note, MPI_Group group);

#endif
