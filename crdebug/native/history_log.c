/* A rank's log (clock.h), read: into a history, or call by call. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "clock.h"
#include "history_comms.h"

#define STEP 256 /* calls between two places from which reading can begin */
#define DEFINITION 0
#define NOBODY (-1)
#define OTHER_JOB UINT32_MAX
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

struct cancel { /* a request that MPI_Cancel was called for: its number, and where it was posted */
    uint64_t posted, place;
    int32_t slot;
};

struct log {
    const uint8_t *map;
    uint64_t size, records, calls; /* size: of the file; records: that it has room for */
    struct cursor at;
    int64_t run, run_tick; /* the last record is a run of calls that said no, which may grow: its place */
    int64_t rank;
    struct column posted;              /* int64_t: ticks */
    struct column marks;               /* struct cursor, every STEP calls */
    struct column comms;               /* by number, columns of struct comm */
    struct column outside, one_sided;  /* int64_t: ticks of such calls */
    struct column completes, slots;    /* int64_t, int32_t: of the call that was read last */
    struct column cancels;             /* struct cancel: of those that have not completed */
};

static const struct crdebug_record *record_at(const struct log *log, uint64_t place) {
    return (const struct crdebug_record *)(log->map + CRDEBUG_LOG_HEADER) + place;
}

/* ---- one request -------------------------------------------------------------------------------- */

static int32_t peer_of(const struct comm *comm, uint64_t body) {
    return coded(comm, body >> 28 & PEER_MOST);
}

/* What the record of an MPI_Startall says of one of its requests, from 1. */
static const uint32_t *slot_at(const struct log *log, uint64_t place, int64_t slot) {
    return (const uint32_t *)(record_at(log, place) + 1) + 1 + CRDEBUG_SLOT * (slot - 1);
}

bool log_settled(const struct log *log, int64_t place, int64_t slot, int32_t *peer, int32_t *tag) {
    const struct crdebug_record *record = record_at(log, (uint64_t)place);
    if (slot) {
        const uint32_t *words = slot_at(log, (uint64_t)place, slot);
        uint32_t code = __atomic_load_n(&words[CRDEBUG_SLOT_PEER], __ATOMIC_ACQUIRE);
        if (!(code & CRDEBUG_SLOT_DONE)) return false;
        *peer = coded(comm_at(&log->comms, words[CRDEBUG_SLOT_COMM], (uint64_t)place), code & PEER_MOST);
        *tag = tag_of(words[CRDEBUG_SLOT_TAG]);
        return true;
    }
    uint64_t head = __atomic_load_n(&record->head, __ATOMIC_ACQUIRE);
    if (!(head & FLAG(CRDEBUG_DONE))) return false;
    *peer = peer_of(comm_at(&log->comms, record->body >> 48, (uint64_t)place), record->body);
    *tag = tag_of(record->body & TAG_MOST);
    return true;
}

/* ---- one call ----------------------------------------------------------------------------------- */

struct words { /* that follow a record */
    const uint32_t *at;
    uint64_t count;
};

static void plain(const struct comm *comm, uint64_t head, uint64_t body, struct words words, struct call *c) {
    uint32_t size = (uint32_t)(head >> 32), tag = body & TAG_MOST, peer = body >> 28 & PEER_MOST;
    c->bytes = size;
    c->peer = peer_of(comm, body);
    c->tag = tag_of(tag);
    if (words.count < 4 || (size != SIZE_MOST && tag != TAG_MOST && peer != PEER_MOST)) return;
    c->bytes = (int64_t)(words.at[0] | (uint64_t)words.at[1] << 32);
    if (tag == TAG_MOST) c->tag = (int32_t)words.at[3];
    if (peer == PEER_MOST) c->peer = world_rank(comm, words.at[2]);
}

static void both(const struct comm *comm, uint64_t head, uint64_t body, struct words words, struct call *c) {
    uint32_t to, source, tag, tag2;
    if (head & FLAG(CRDEBUG_PACKED) || words.count < 2) {
        to = body >> 32 & 0xffff;
        source = body >> 16 & 0xffff;
        tag = tag2 = body & 0xffff;
    } else {
        to = words.at[0];
        tag = words.at[1];
        source = body >> 28 & PEER_MOST;
        tag2 = body & TAG_MOST;
    }
    c->bytes = (int64_t)(head >> 32);
    c->peer = coded(comm, to);
    c->tag = tag_of(tag);
    c->peer2 = coded(comm, source);
    c->tag2 = tag_of(tag2);
}

/* Of a request, by its number from 0: which it is of those that its call started, from 1; 0 if it is the
 * only one. */
static int32_t slot_of(const struct log *log, uint64_t number) {
    int64_t tick = AT(log->posted, int64_t, number);
    uint64_t first = number;
    while (first && AT(log->posted, int64_t, first - 1) == tick) first--;
    bool only = first == number && (number + 1 == log->posted.count ||
                                    AT(log->posted, int64_t, number + 1) != tick);
    return only ? 0 : (int32_t)(number - first + 1);
}

/* slots: NULL, or gets which they are of an MPI_Startall. */
static void completed(const struct log *log, uint64_t posted, uint32_t special, uint64_t head,
                      struct words words, struct column *found, struct column *slots) {
    uint64_t size = head >> 32, first = 0, step = 1, count = 1;
    bool last = (special & F_ALL) && head & FLAG(CRDEBUG_PACKED); /* the last requests that were posted */
    if (special & F_ALL) {
        count = size;
    } else if (special & F_SOME) {
        first = 1;
        step = 2;
        count = size;
    } else if (special & F_LOOKS) {
        return;
    }
    bool listed = (special & (F_ALL | F_SOME)) && !last;
    for (uint64_t k = 0; k < count; k++) {
        if (listed && first + k * step >= words.count) return;
        uint64_t age = listed ? words.at[first + k * step] : last ? size - k : size;
        if (age == 0 || age > posted) continue;
        PUSH(*found, int64_t, AT(log->posted, int64_t, posted - age));
        if (slots != NULL) PUSH(*slots, int32_t, slot_of(log, posted - age));
    }
}

/* A request that MPI_Start or MPI_Startall started; flags: of the record. */
static void started(uint64_t flags, struct call *c) {
    bool receive = flags & CRDEBUG_PACKED;
    c->kind = receive ? K_POST_RECV : K_POST_SEND;
    c->wild = receive && flags & (CRDEBUG_WILD_SOURCE | CRDEBUG_WILD_TAG);
    if (!receive) c->mode = flags & CRDEBUG_SYNCHRONOUS ? M_SYNCHRONOUS : flags & CRDEBUG_BUFFERED ? M_BUFFERED : 0;
}

/* Read the call at a cursor, and go past it. Returns how many requests it posted; for the definition
 * of a communicator, `function` is 0. */
static uint64_t next(const struct log *log, struct cursor *at, const struct function *functions,
                     struct call *c, struct column *completes, struct column *slots) {
    const struct crdebug_record *record = record_at(log, at->place);
    uint64_t head = record->head, body = record->body, size = head >> 32;
    struct words words = {0};
    int64_t place = (int64_t)at->place++;
    if (head & FLAG(CRDEBUG_MORE)) {
        words.at = (const uint32_t *)(record + 1) + 1;
        uint64_t more = words.at[-1];
        if (more > log->records - at->place) more = log->records - at->place; /* never, in a whole log */
        words.count = more ? 4 * more - 1 : 0;
        at->place += more;
    }
    *c = (struct call){.tick = at->tick + 1,
                       .repeats = 1,
                       .place = place,
                       .rank = (int32_t)log->rank,
                       .function = head & 0x1ff,
                       .site = head >> 16 & 0xffff,
                       .comm = C_NONE,
                       .peer = NONE,
                       .tag = NONE,
                       .peer2 = NONE,
                       .tag2 = NONE,
                       .wild = (head & FLAG(CRDEBUG_WILD_SOURCE | CRDEBUG_WILD_TAG)) != 0};
    if (c->function == DEFINITION) return 0;
    const struct function *function = &functions[c->function];
    uint32_t special = (uint32_t)function->special;
    const struct comm *comm = comm_at(&log->comms, body >> 48, (uint64_t)place);
    uint64_t posts = special & F_STARTALL ? size : special & F_POSTS ? 1 : 0;
    if (comm != NULL) c->comm = (int32_t)comm->id;
    c->kind = function->kind;
    if (head & FLAG(CRDEBUG_NO)) {
        c->repeats = (int64_t)size;
        c->kind = K_NOTHING;
        if (function->kind == K_PROBE) {
            c->peer = peer_of(comm, body);
            c->tag = tag_of(body & TAG_MOST);
        } else {
            c->comm = C_NONE;
        }
    } else if (function->kind == K_TIME) {
        c->comm = C_NONE;
        c->bytes = (int64_t)body;
    } else if (function->kind == K_COMPLETE) {
        completes->count = 0;
        if (slots != NULL) slots->count = 0;
        completed(log, at->posted, special, head, words, completes, slots);
        c->completes = completes->data;
        c->slots = slots != NULL ? slots->data : NULL;
        c->completes_count = completes->count;
    } else if (special & (F_EXPOSES | F_ACCESSES)) {
        completes->count = 0;
        for (uint64_t k = 0; k + 1 < size && k + 1 < words.count; k += 2) /* a first one, and how many */
            for (uint32_t n = 0; n < words.at[k + 1] && words.at[k] != OTHER_JOB; n++)
                PUSH(*completes, int64_t, words.at[k] + n);
        c->completes = completes->data;
        c->completes_count = completes->count;
    } else if (function->kind == K_SENDRECV || function->kind == K_POST_SENDRECV) {
        both(comm, head, body, words, c);
    } else if (function->kind != K_CANCEL && !(special & F_FREES)) {
        plain(comm, head, body, words, c);
    }
    if (special & F_START) started(head >> 9, c);
    if (special & F_MATCHED_RECEIVE) {
        c->older = words.count ? (int32_t)words.at[0] : 0;
        if ((body >> 28 & PEER_MOST) == PROC_NULL) c->kind = K_OTHER;
    }
    if (special & F_STARTALL) c->bytes = 0;
    if (special & F_OF_WINDOW) c->odd = (head & FLAG(CRDEBUG_ODD)) != 0;
    at->tick += c->repeats;
    at->posted += posts;
    return posts;
}

/* ---- requests ----------------------------------------------------------------------------------- */

/* All that an MPI_Startall started. */
static void start_all(const struct log *log, struct history *h, const struct call *call) {
    struct call one = *call;
    one.kind = K_OTHER;
    history_read(h, &one);
    uint64_t count = record_at(log, (uint64_t)call->place)->head >> 32;
    for (one.slot = 1; (uint64_t)one.slot <= count; one.slot++) {
        const uint32_t *words = slot_at(log, (uint64_t)call->place, one.slot);
        const struct comm *comm = comm_at(&log->comms, words[CRDEBUG_SLOT_COMM], (uint64_t)call->place);
        uint32_t peer = words[CRDEBUG_SLOT_PEER] & PEER_MOST;
        if (peer == PROC_NULL) continue;
        started(words[CRDEBUG_SLOT_PEER] >> 20, &one);
        one.comm = comm != NULL ? (int32_t)comm->id : C_NONE;
        one.peer = coded(comm, peer); /* none: a request that the layer does not know */
        one.tag = tag_of(words[CRDEBUG_SLOT_TAG]);
        one.bytes = words[CRDEBUG_SLOT_SIZE];
        history_read(h, &one);
    }
}

/* Where the call of a tick is on record. */
static uint64_t place_of(struct log *log, const struct function *functions, int64_t tick) {
    uint64_t later = first_by(&log->marks, sizeof(struct cursor), tick);
    struct cursor at = AT(log->marks, struct cursor, later - 1);
    struct column unused = {0};
    struct call call;
    do next(log, &at, functions, &call, &unused, NULL);
    while (call.function == DEFINITION || call.tick < tick);
    column_free(&unused);
    return (uint64_t)call.place;
}

static bool was_cancelled(const struct log *log, const struct function *functions,
                          const struct cancel *cancel) {
    uint64_t head = record_at(log, cancel->place)->head;
    if (!(functions[head & 0x1ff].special & F_STARTALL)) return head & FLAG(CRDEBUG_ODD);
    int64_t slot = cancel->slot ? cancel->slot : 1;
    return slot_at(log, cancel->place, slot)[CRDEBUG_SLOT_PEER] & CRDEBUG_SLOT_CANCELLED;
}

/* MPI_Cancel only asks: whether it was cancelled, the record says once it has completed. */
static void cancels(struct log *log, struct history *h, const struct function *functions,
                    const struct call *call) {
    uint64_t age = record_at(log, (uint64_t)call->place)->head >> 32, number = log->at.posted - age;
    if (call->kind == K_CANCEL && age && age <= log->at.posted) {
        uint64_t place = place_of(log, functions, AT(log->posted, int64_t, number));
        PUSH(log->cancels, struct cancel, ((struct cancel){number, place, slot_of(log, number)}));
    }
    if (call->kind != K_COMPLETE) return;
    for (uint64_t k = 0; k < log->cancels.count;) {
        struct cancel *each = &AT(log->cancels, struct cancel, k);
        int64_t tick = AT(log->posted, int64_t, each->posted);
        bool done = false;
        for (uint64_t n = 0; n < call->completes_count && !done; n++)
            done = call->completes[n] == tick && call->slots[n] == each->slot;
        if (done && was_cancelled(log, functions, each)) history_cancelled(h, call->rank, tick, each->slot);
        if (done)
            *each = AT(log->cancels, struct cancel, --log->cancels.count);
        else
            k++;
    }
}

/* ---- for crdebug -------------------------------------------------------------------------------- */

EXPORTED struct log *crdebug_log_open(int file, uint64_t size, int64_t rank) {
    struct log *log = size > CRDEBUG_LOG_HEADER ? calloc(1, sizeof *log) : NULL;
    if (log == NULL) return NULL;
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) {
        free(log);
        return NULL;
    }
    log->map = map;
    log->size = size;
    log->records = (size - CRDEBUG_LOG_HEADER) / sizeof(struct crdebug_record);
    log->rank = rank;
    log->run = NOBODY;
    return log;
}

EXPORTED void crdebug_log_close(struct log *log) {
    for (uint64_t k = 0; k < log->comms.count; k++) {
        struct column *meanings = &AT(log->comms, struct column, k);
        for (uint64_t n = 0; n < meanings->count; n++) column_free(&AT(*meanings, struct comm, n).ranks);
        column_free(meanings);
    }
    column_free(&log->posted);
    column_free(&log->marks);
    column_free(&log->comms);
    column_free(&log->outside);
    column_free(&log->one_sided);
    column_free(&log->completes);
    column_free(&log->slots);
    column_free(&log->cancels);
    munmap((void *)log->map, log->size);
    free(log);
}

/* What a number of a communicator means from here on. id: of all logs. ranks: of those that it can
 * name. */
EXPORTED void crdebug_log_define(struct log *log, uint64_t number, int64_t id, const int32_t *ranks,
                                 uint64_t count) {
    while (log->comms.count <= number) PUSH(log->comms, struct column, (struct column){0});
    struct column *meanings = &AT(log->comms, struct column, number);
    PUSH(*meanings, struct comm, ((struct comm){.place = log->at.place, .id = id}));
    struct comm *comm = &AT(*meanings, struct comm, meanings->count - 1);
    for (uint64_t k = 0; k < count; k++) PUSH(comm->ranks, int32_t, ranks[k]);
}

/* Read on to the tail, into a history if there is one, but no more than so many calls. Returns the
 * place of the definition of a communicator that was met, and is to be made; else -1. */
EXPORTED int64_t crdebug_log_read(struct log *log, struct history *history,
                                  const struct function *functions, uint64_t tail, uint64_t most) {
    struct call call;
    if (log->run != NOBODY) { /* it may have grown */
        struct cursor *mark = log->marks.count ? &AT(log->marks, struct cursor, log->marks.count - 1) : NULL;
        if (mark != NULL && mark->place == (uint64_t)log->run) log->marks.count--;
        log->at.place = (uint64_t)log->run;
        log->at.tick = log->run_tick;
        log->calls--;
        log->run = NOBODY;
    }
    if (history != NULL) history_rank(history, (int32_t)log->rank)->log = log;
    while (log->at.place < tail && most--) {
        struct cursor before = log->at;
        uint64_t posts = next(log, &log->at, functions, &call, &log->completes, &log->slots);
        if (call.function == DEFINITION) return (int64_t)before.place;
        if (log->calls++ % STEP == 0) PUSH(log->marks, struct cursor, before);
        for (; posts; posts--) PUSH(log->posted, int64_t, call.tick);
        if (functions[call.function].special & F_OUTSIDE) PUSH(log->outside, int64_t, call.tick);
        if (call.kind == K_RMA) PUSH(log->one_sided, int64_t, call.tick);
        if (log->at.place >= tail && call.kind == K_NOTHING) {
            log->run = (int64_t)before.place;
            log->run_tick = before.tick;
        }
        if (history == NULL) continue;
        if (call.kind == K_CANCEL || log->cancels.count) cancels(log, history, functions, &call);
        if (functions[call.function].special & F_STARTALL)
            start_all(log, history, &call);
        else
            history_read(history, &call);
    }
    return NOBODY;
}

/* Calls by their numbers, from 0; as many as are written to `calls`. completes: of all of them. */
EXPORTED uint64_t crdebug_log_calls(struct log *log, const struct function *functions, uint64_t first,
                                    uint64_t count, struct call *calls, struct column *completes) {
    struct column own = {0};
    uint64_t number = first - first % STEP, end = first + count < log->calls ? first + count : log->calls;
    completes->count = 0;
    if (first >= end) return 0;
    struct cursor at = AT(log->marks, struct cursor, first / STEP);
    while (number < end) {
        struct call call;
        next(log, &at, functions, &call, &own, NULL);
        if (call.function == DEFINITION || number++ < first) continue;
        for (uint64_t k = 0; k < call.completes_count; k++) PUSH(*completes, int64_t, call.completes[k]);
        calls[number - 1 - first] = call;
    }
    column_free(&own);
    return end - first;
}

struct progress {
    uint64_t calls, place;
    int64_t tick;
    const struct column *outside, *one_sided;
};

EXPORTED void crdebug_log_progress(const struct log *log, struct progress *found) {
    *found = (struct progress){log->calls, log->at.place, log->at.tick, &log->outside, &log->one_sided};
}

/* A definition: its record, and the words that follow it. */
struct definition {
    uint64_t head, body, count;
    const uint32_t *words;
};

EXPORTED void crdebug_log_definition(const struct log *log, uint64_t place, struct definition *found) {
    const struct crdebug_record *record = record_at(log, place);
    const uint32_t *words = (const uint32_t *)(record + 1);
    bool whole = place + 1 < log->records && place + 1 + words[0] <= log->records;
    *found = (struct definition){record->head, record->body, whole ? 4 * words[0] - 1 : 0, words + 1};
}
