/* A rank's log (clock.h), read: into a history, or call by call. */
#define _GNU_SOURCE 1
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "history_log.h"

#define NOBODY (-1)
#define DAMAGED (-2)
#define OTHER_JOB UINT32_MAX

/* ---- one request -------------------------------------------------------------------------------- */

static int32_t peer_of(const struct comm *comm, uint64_t body) {
    return coded(comm, body >> 28 & PEER_MOST);
}

int64_t log_world(const struct log *log) { return log->world; }

/* Of a message; the true value, where it has no room in the record itself. */
static int32_t own_tag(const struct crdebug_record *record) {
    uint32_t code = record->body & TAG_MOST;
    bool elsewhere = code == TAG_MOST && record->head & FLAG(CRDEBUG_MORE);
    return elsewhere ? (int32_t)((const uint32_t *)(record + 1))[4] : tag_of(code);
}

const struct crdebug_record *posting_at(const struct log *log, uint64_t place) {
    const struct crdebug_log *header = (const struct crdebug_log *)log->map;
    uint64_t begin = __atomic_load_n(&header->begin, __ATOMIC_ACQUIRE);
    if (place >= begin / 2) return record_at(log, place);
    const struct crdebug_record *areas =
        (const struct crdebug_record *)(log->map + CRDEBUG_LOG_HEADER) + 2 * log->capacity;
    const struct crdebug_record *old = areas + (begin & 1) * CRDEBUG_OLD, *end = old + CRDEBUG_OLD;
    while (old < end && old->body && old->body < (uint64_t)(end - old)) {
        if (old->head == place) return old + 1;
        old += 1 + old->body;
    }
    return NULL;
}

bool log_settled(const struct log *log, int64_t place, int64_t slot, int32_t *peer, int32_t *tag) {
    const struct crdebug_record *record = posting_at(log, (uint64_t)place);
    if (record == NULL) return false;
    if (slot) {
        const uint32_t *words = slot_of(record, slot);
        uint32_t code = __atomic_load_n(&words[CRDEBUG_SLOT_PEER], __ATOMIC_ACQUIRE);
        if (!(code & CRDEBUG_SLOT_DONE)) return false;
        *peer = coded(comm_at(&log->comms, words[CRDEBUG_SLOT_COMM], (uint64_t)place),
                      code & PEER_MOST);
        *tag = tag_of(words[CRDEBUG_SLOT_TAG]);
        return true;
    }
    uint64_t head = __atomic_load_n(&record->head, __ATOMIC_ACQUIRE);
    if (!(head & FLAG(CRDEBUG_DONE))) return false;
    *peer = peer_of(comm_at(&log->comms, record->body >> 48, (uint64_t)place), record->body);
    *tag = own_tag(record);
    return true;
}

/* ---- one call ----------------------------------------------------------------------------------- */

struct words { /* that follow a record */
    const uint32_t *at;
    uint64_t count;
};

static void plain(const struct comm *comm, uint64_t head, uint64_t body, struct words words,
                  struct call *c) {
    uint32_t size = (uint32_t)(head >> 32), tag = body & TAG_MOST, peer = body >> 28 & PEER_MOST;
    c->bytes = size;
    c->peer = peer_of(comm, body);
    c->tag = tag_of(tag);
    if (words.count < 4 || (size != SIZE_MOST && tag != TAG_MOST && peer != PEER_MOST)) return;
    c->bytes = (int64_t)(words.at[0] | (uint64_t)words.at[1] << 32);
    if (tag == TAG_MOST) c->tag = (int32_t)words.at[3];
    if (peer == PEER_MOST) c->peer = world_rank(comm, words.at[2]);
}

static void both(const struct comm *comm, uint64_t head, uint64_t body, struct words words,
                 struct call *c) {
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

/* slots: NULL, or gets which they are of an MPI_Startall. */
static void completed(const struct log *log, uint64_t posted, uint32_t special, uint64_t head,
                      struct words words, struct column *found, struct column *slots) {
    uint64_t size = head >> 32, first = 0, step = 1, count = 1;
    bool last =
        (special & F_ALL) && head & FLAG(CRDEBUG_PACKED); /* the last requests that were posted */
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
        int64_t tick = log_posted(log, posted - age);
        if (tick == 0) continue;
        PUSH(*found, int64_t, tick);
        if (slots != NULL) PUSH(*slots, int32_t, log_slot(log, posted - age));
    }
}

/* What MPI_Pready and those like it, or MPI_Parrived, say of which request. slots: as above; it is not
 * completed, and only the history is told. */
static void partitions(const struct log *log, uint64_t posted, uint64_t head, uint64_t body,
                       struct words words, struct call *c, struct column *found,
                       struct column *slots) {
    if (slots == NULL) return;
    found->count = slots->count = 0;
    completed(log, posted, 0, head, (struct words){0}, found, slots);
    c->completes = found->data;
    c->slots = slots->data;
    c->completes_count = found->count;
    c->low = c->high = tag_of(body & TAG_MOST);
    if (c->low != NONE) return;
    c->low = words.count ? (int32_t)words.at[0] : 0;
    c->high = words.count > 1 ? (int32_t)words.at[1] : -1;
    if (body >> 28 == 0) return;
    c->listed = (const int32_t *)words.at;
    c->low = 0;
    c->high = (int32_t)(body >> 28 < words.count ? body >> 28 : words.count);
}

uint64_t log_next(const struct log *log, struct cursor *at, const struct function *functions,
                  struct call *c, struct column *completes, struct column *slots) {
    const struct crdebug_record *record = record_at(log, at->place);
    uint64_t head = record->head, body = record->body, size = head >> 32;
    struct words words = {0};
    int32_t failed = 0;
    int64_t place = (int64_t)at->place++;
    if (head & FLAG(CRDEBUG_MORE)) {
        words.at = (const uint32_t *)(record + 1) + 1;
        uint64_t more = words.at[-1] & CRDEBUG_MORE_MOST;
        failed = (int32_t)(words.at[-1] >> CRDEBUG_FAILED_SHIFT);
        if (more > log->capacity) more = log->capacity; /* never, in a whole log */
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
                       .failed = failed,
                       .wild = wild_of((uint32_t)(head >> 9))};
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
        if (function->kind == K_PROBE && !(special & F_ARRIVED)) {
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
        for (uint64_t k = 0; k + 1 < size && k + 1 < words.count;
             k += 2) /* a first one, and how many */
            for (uint32_t n = 0; n < words.at[k + 1] && words.at[k] != OTHER_JOB; n++)
                PUSH(*completes, int64_t, words.at[k] + n);
        c->completes = completes->data;
        c->completes_count = completes->count;
    } else if (special & (F_READIES | F_ARRIVED)) {
        partitions(log, at->posted, head, body, words, c, completes, slots);
    } else if (function->kind == K_SENDRECV || function->kind == K_POST_SENDRECV) {
        both(comm, head, body, words, c);
    } else if (special & F_FREES) {
        if (size && size <= at->posted) c->bytes = log_posted(log, at->posted - size);
    } else if (function->kind != K_CANCEL) {
        plain(comm, head, body, words, c);
    }
    if (special & F_START) log_started(log, head >> 9, c);
    if (special & F_MATCHED_RECEIVE) {
        c->older = words.count ? (int32_t)words.at[0] : 0;
        if ((body >> 28 & PEER_MOST) == PROC_NULL) c->kind = K_OTHER;
    }
    if (special & F_PREPARES && words.count > 4) c->high = (int32_t)words.at[4];
    if (special & F_STARTALL) c->bytes = 0;
    if (special & F_OF_WINDOW) c->odd = (head & FLAG(CRDEBUG_ODD)) != 0;
    if (failed && failed <= CRDEBUG_ARGUMENT_ERRORS && c->kind != K_COMPLETE) c->kind = K_OTHER;
    at->tick += c->repeats;
    at->posted += posts;
    return posts;
}

/* ---- for crdebug -------------------------------------------------------------------------------- */

/* size: of all. A part of which the file has nothing is not there. */
static uint8_t *map(int file, uint64_t ring, uint64_t size) {
    const int there = MAP_SHARED | MAP_FIXED;
    uint64_t front = CRDEBUG_LOG_HEADER + ring;
    uint8_t *found =
        mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return NULL;
    if (mmap(found, front, PROT_READ, there, file, 0) != MAP_FAILED &&
        mmap(found + front, ring, PROT_READ, there, file, CRDEBUG_LOG_HEADER) != MAP_FAILED &&
        mmap(found + front + ring, size - front - ring, PROT_READ, there, file, (off_t)front) !=
            MAP_FAILED)
        return found;
    munmap(found, size);
    return NULL;
}

/* capacity: a power of two, of no less than a page. */
EXPORTED struct log *crdebug_log_open(int file, uint64_t capacity, int64_t rank, int64_t world) {
    struct log *log = calloc(1, sizeof *log);
    if (log == NULL) return NULL;
    log->capacity = capacity;
    log->size =
        CRDEBUG_LOG_HEADER + (2 * capacity + 2 * CRDEBUG_OLD) * sizeof(struct crdebug_record);
    log->map = map(file, capacity * sizeof(struct crdebug_record), log->size);
    if (log->map == NULL) {
        free(log);
        return NULL;
    }
    log->rank = rank;
    log->world = world;
    log->run = NOBODY;
    return log;
}

EXPORTED void crdebug_log_close(struct log *log) {
    for (uint64_t k = 0; k < log->comms.count; k++) {
        struct column *meanings = &AT(log->comms, struct column, k);
        for (uint64_t n = 0; n < meanings->count; n++)
            column_free(&AT(*meanings, struct comm, n).ranks);
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
    column_free(&log->cancelled);
    column_free(&log->prepared);
    column_free(&log->prepares);
    column_free(&log->old);
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
 * place of the definition of a communicator that was met, and is to be made; else -1; or -2, if what
 * comes next nobody has written who knows how. */
EXPORTED int64_t crdebug_log_read(struct log *log, struct history *history,
                                  const struct function *functions, uint64_t tail, uint64_t most) {
    struct call call;
    if (log->run != NOBODY) { /* it may have grown */
        struct cursor *mark =
            log->marks.count ? &AT(log->marks, struct cursor, log->marks.count - 1) : NULL;
        if (mark != NULL && mark->place == (uint64_t)log->run) log->marks.count--;
        log->at.place = (uint64_t)log->run;
        log->at.tick = log->run_tick;
        log->calls--;
        log->run = NOBODY;
    }
    if (history != NULL) history_rank(history, (int32_t)log->rank)->log = log;
    while (log->at.place < tail && most--) {
        struct cursor before = log->at;
        if (!log_is_sound(log, functions, tail)) return DAMAGED;
        uint64_t posts = log_next(log, &log->at, functions, &call, &log->completes, &log->slots);
        if (!call_is_sound(log, functions, &call)) {
            log->at = before;
            return DAMAGED;
        }
        if (call.function == DEFINITION) return (int64_t)before.place;
        if (log->calls++ % STEP == 0) PUSH(log->marks, struct cursor, before);
        for (; posts; posts--) PUSH(log->posted, int64_t, call.tick);
        if (functions[call.function].special & F_PREPARES)
            log_prepared(log, history, functions, &call);
        if (functions[call.function].special & F_OUTSIDE) PUSH(log->outside, int64_t, call.tick);
        if (call.kind == K_RMA) PUSH(log->one_sided, int64_t, call.tick);
        if (log->at.place >= tail && call.kind == K_NOTHING) {
            log->run = (int64_t)before.place;
            log->run_tick = before.tick;
        }
        if (history == NULL) continue;
        if (call.failed && call.kind == K_OTHER) { /* nobody noticed it */
            history_rank(history, call.rank)->last = call.tick;
            continue;
        }
        if (call.kind == K_CANCEL || log->cancels.count)
            log_cancels(log, history, functions, &call);
        if (functions[call.function].special & F_STARTALL) log_start_all(log, history, &call);
        else history_read(history, &call);
    }
    return NOBODY;
}

struct progress {
    uint64_t calls, place;
    int64_t tick;
    const struct column *outside, *one_sided;
};

EXPORTED void crdebug_log_progress(const struct log *log, struct progress *found) {
    *found =
        (struct progress){log->calls, log->at.place, log->at.tick, &log->outside, &log->one_sided};
}

/* A definition: its record, and the words that follow it. */
struct definition {
    uint64_t head, body, count;
    const uint32_t *words;
};

EXPORTED void crdebug_log_definition(const struct log *log, uint64_t place,
                                     struct definition *found) {
    const struct crdebug_record *record = record_at(log, place);
    const uint32_t *words = (const uint32_t *)(record + 1);
    uint32_t more = words[0] & CRDEBUG_MORE_MOST;
    bool whole = more < log->capacity;
    *found = (struct definition){record->head, record->body, whole ? 4 * more - 1 : 0, words + 1};
}
