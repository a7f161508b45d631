/* The layer's log: recording, repeating, and noticing that a call is another one than recorded. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "pmpi.h"

#define CAPACITY (UINT64_C(1) << 26) /* 1 GiB of address space; the file is sparse */
#define LEAST_ROOM (UINT64_C(1) << 18) /* bytes that are taken from the disk at once, from and to */
#define MOST_ROOM (UINT64_C(1) << 22)
#define MOST_LEFT (UINT64_C(1) << 26) /* bytes of the disk that are left to others, see leaves_enough() */
#ifndef MADV_POPULATE_WRITE /* of Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif
#define FEW 64                       /* words of a message to the disk that are compared */

struct crdebug_log *log_header;
struct crdebug_record *log_records;

static uint64_t *site_table;
static char log_path[4096];
static struct {
    uint64_t address;
    uint32_t number;
} known_sites[1024];

uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

void refuse(unsigned reason) {
    if (C.refused) return;
    C.refused = reason;
    if (C.mode == CRDEBUG_RECORDS) log_header->refused = reason;
    C.mode = CRDEBUG_COUNTS;
}

/* ---- the file ----------------------------------------------------------------------------------- */

/* No more than the process may write into one file: to try would end it, by SIGXFSZ. */
static uint64_t capacity(void) {
    const char *text = getenv("CRDEBUG_TIME_RECORDS");
    unsigned long long wanted = text ? strtoull(text, NULL, 10) : 0;
    struct rlimit limit;
    uint64_t records = wanted ? wanted : CAPACITY, fit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return records;
    if (limit.rlim_cur <= CRDEBUG_LOG_HEADER) return 0;
    fit = (limit.rlim_cur - CRDEBUG_LOG_HEADER) / sizeof(struct crdebug_record);
    return fit < records ? fit : records;
}

/* Whether the disk has so many bytes and some more: a log that took all of it would stop the job,
 * whose output goes to the same disk and waits for space. */
static bool leaves_enough(size_t wanted) {
    struct statvfs disk;
    if (statvfs(log_path, &disk) != 0) return true;
    uint64_t left = (uint64_t)disk.f_blocks * disk.f_frsize / 32;
    if (left > MOST_LEFT) left = MOST_LEFT;
    return (uint64_t)disk.f_bavail * disk.f_frsize >= wanted + left;
}

static bool allocate(char *begin, size_t size) {
    int failed;
    do failed = madvise(begin, size, MADV_POPULATE_WRITE);
    while (failed && (errno == EINTR || errno == EAGAIN));
    if (!failed || errno != EINVAL) return !failed;
    int file = open(log_path, O_RDWR | O_CLOEXEC); /* an older kernel */
    if (file < 0) return false;
    failed = posix_fallocate(file, begin - (char *)log_header, (off_t)size);
    close(file);
    return !failed;
}

/* Have the disk give its space for a part of the file now: to write where it has none left is SIGBUS
 * (mmap(2)). So a part of which this is not true is never written to. Other ranks do the same at the
 * same time: what was taken too much is given back, as is the part that came before a failure. */
static bool take_space(char *from, char *to) {
    const uintptr_t page = 4096;
    char *begin = (char *)((uintptr_t)from & ~(page - 1));
    char *fresh = (char *)(((uintptr_t)from + page - 1) & ~(page - 1));
    size_t size = ((size_t)(to - begin) + page - 1) & ~(size_t)(page - 1);
    if (!leaves_enough(size)) return false;
    if (allocate(begin, size) && leaves_enough(0)) return true;
    if (fresh < begin + size) madvise(fresh, (size_t)(begin + size - fresh), MADV_REMOVE);
    return false;
}

/* For so many records, and more: steps grow with the log, and shrink for good as the disk gets full.
 * False, for good, when there is none. */
static bool make_room(uint64_t records) {
    static uint64_t most = MOST_ROOM / sizeof(struct crdebug_record);
    uint64_t step = LEAST_ROOM / sizeof(struct crdebug_record), end = records;
    if (records > log_header->capacity) {
        refuse(CRDEBUG_LOG_FULL);
        return false;
    }
    if (step < C.cursor) step = C.cursor;
    if (step > most) step = most;
    for (;; step = most = step / 2) {
        end = C.cursor + step < log_header->capacity ? C.cursor + step : log_header->capacity;
        if (end < records) end = records;
        if (take_space((char *)(log_records + C.cursor), (char *)(log_records + end))) break;
        if (step == 0) {
            refuse(CRDEBUG_NO_SPACE);
            return false;
        }
    }
    log_header->room = end;
    return true;
}

bool log_open(int rank, int world) {
    const char *directory = getenv("CRDEBUG_TIME");
    unsigned reason = CRDEBUG_LOG_FILE;
    struct stat found;
    if (directory == NULL) directory = CRDEBUG_TIME_DIR;
    if (stat(directory, &found) != 0 || !S_ISDIR(found.st_mode)) return false;
    snprintf(log_path, sizeof log_path, "%s/%d", directory, rank);
    int file = open(log_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || fstat(file, &found) != 0) goto failed;
    uint64_t records = capacity();
    if (found.st_size > CRDEBUG_LOG_HEADER)
        records = ((uint64_t)found.st_size - CRDEBUG_LOG_HEADER) / sizeof(struct crdebug_record);
    size_t size = CRDEBUG_LOG_HEADER + records * sizeof(struct crdebug_record);
    if (records == 0 || ftruncate(file, (off_t)size) != 0) {
        reason = records == 0 || errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? CRDEBUG_NO_SPACE
                                                                                      : CRDEBUG_LOG_FILE;
        goto failed;
    }
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) goto failed;
    close(file);
    file = -1;
    struct crdebug_log *header = mapped;
    log_header = header;
    if (!take_space(mapped, (char *)mapped + CRDEBUG_LOG_HEADER)) {
        reason = CRDEBUG_NO_SPACE;
        goto unmap;
    }
    if (header->abi == 0) {
        *header = (struct crdebug_log){.size = CRDEBUG_LOG_HEADER,
                                       .rank = rank,
                                       .world = world,
                                       .capacity = records,
                                       .first_now = C.now - 1,
                                       .tail_now = C.now - 1,
                                       .calls = CRDEBUG_TABLE};
        /* last: whoever looks at a rank that stands in the midst of this sees no log yet */
        __atomic_store_n(&header->abi, CRDEBUG_CLOCK_ABI, __ATOMIC_RELEASE);
    } else if (header->abi != CRDEBUG_CLOCK_ABI || header->calls != CRDEBUG_TABLE ||
               header->rank != rank || header->world != world) {
        goto unmap;
    }
    site_table = (uint64_t *)((char *)mapped + 4096);
    log_records = (struct crdebug_record *)((char *)mapped + CRDEBUG_LOG_HEADER);
    const char *enforce = getenv("CRDEBUG_ENFORCE"); /* for a run without crdebug */
    if (enforce != NULL && *enforce == '0') C.enforce = CRDEBUG_ASK_ANEW;
    return true;
unmap:
    munmap(mapped, size);
    log_header = NULL;
failed:
    if (file >= 0) close(file);
    refuse(reason);
    return false;
}

static uint32_t site_number(uint64_t address) {
    unsigned place = (unsigned)(mix(0, address) % 1024);
    if (LIKELY(known_sites[place].address == address)) return known_sites[place].number;
    uint32_t number = 0;
    while (number < log_header->sites && site_table[number] != address) number++;
    if (number == log_header->sites) {
        if (number == CRDEBUG_SITES) return CRDEBUG_SITES - 1; /* the last is shared */
        site_table[number] = address;
        log_header->sites = number + 1;
    }
    known_sites[place].address = address;
    known_sites[place].number = number;
    return number;
}

/* ---- the words that follow a record ------------------------------------------------------------- */

static uint32_t followers(const struct crdebug_record *record) {
    return record->head & FLAG(CRDEBUG_MORE) ? (uint32_t)record[1].head & CRDEBUG_MORE_MOST : 0;
}

static uint32_t failed_of(const struct crdebug_record *record) {
    return record->head & FLAG(CRDEBUG_MORE) ? (uint32_t)record[1].head >> CRDEBUG_FAILED_SHIFT : 0;
}

void note_failed(struct note *note, int rc) {
    static const int classes[] = {CRDEBUG_ERRORS};
    int class, count = sizeof classes / sizeof *classes;
    note->failed = CRDEBUG_OTHER_ERROR;
    if (PMPI_Error_class(rc, &class) != MPI_SUCCESS) return;
    for (int i = 0; i < count; i++)
        if (classes[i] == class) note->failed = (uint32_t)i + 1;
}

uint32_t *word_at(struct crdebug_record *record, unsigned k) {
    return (uint32_t *)(record + 1) + 1 + k;
}

uint32_t word_of(const struct crdebug_record *record, unsigned k) {
    return k + 1 < 4 * followers(record) ? ((const uint32_t *)(record + 1))[1 + k] : 0;
}

void note_large(struct note *note, uint64_t bytes, uint32_t peer, uint32_t tag) {
    note->few[0] = (uint32_t)bytes;
    note->few[1] = (uint32_t)(bytes >> 32);
    note->few[2] = peer;
    note->few[3] = tag;
    note->count = 4;
}

/* ---- repeating ---------------------------------------------------------------------------------- */

static void caught_up(void) {
    C.replaying = 0;
    if (deferred) requests_caught_up();
}

static bool in_a_run(void) { return C.repeat && HEAD_SIZE(log_records[C.cursor - 1].head) != C.repeat; }

/* crdebug has cut the log here, and set all of its header but for what stands in the way. */
static bool cut_from_outside(void) {
    const struct crdebug_record *last = &log_records[C.cursor];
    if (in_a_run() || C.cursor + 1 != log_header->tail) return false;
    if (last->head != CRDEBUG_CUT_HEAD || last->body != CRDEBUG_CUT_BODY) return false;
    log_header->tail = C.cursor;
    caught_up();
    requests_unsettle();
    return true;
}

/* Seen for the first time: we are not where we were. */
void went_back(void) {
    if (cut_from_outside() || C.replaying) return;
    if (watched) requests_went_back();
    C.replaying = 1;
}

static void cut(void) {
    if (C.repeat) {
        struct crdebug_record *run = &log_records[C.cursor - 1];
        run->head = (uint32_t)run->head | C.repeat << SIZE_SHIFT;
    }
    log_header->tail = C.cursor;
    log_header->refused = CRDEBUG_NOT_REFUSED;
    log_header->cuts++;
    caught_up();
    log_header->tail_now = (C.now - 1) & ~UINT64_C(1);
    requests_unsettle();
}

/* Which of a call's words is the first that is not the recorded one; `none` if all are. */
static uint32_t other_word(const struct crdebug_record *record, const struct note *note, uint32_t none) {
    for (uint32_t k = 0; k < note->count && k < FEW; k++)
        if (word_of(record, k) != words_of(note)[k]) return k;
    return none;
}

static bool same_words(const struct crdebug_record *record, const struct note *note) {
    return other_word(record, note, FEW) == FEW;
}

static void diverge(const struct crdebug_record *wanted, const struct note *note) {
    volatile struct crdebug_clock *clock = &crdebug_own;
    unsigned patience = 0;
    C.words_from = other_word(wanted, note, 0) & ~3u;
    for (uint32_t k = 0; k < 4; k++) {
        C.expected_words[k] = word_of(wanted, C.words_from + k);
        C.actual_words[k] = C.words_from + k < note->count ? words_of(note)[C.words_from + k] : 0;
    }
    C.expected = *wanted;
    C.actual = (struct crdebug_record){note->head, note->body};
    C.expected_failed = (uint16_t)failed_of(wanted);
    C.actual_failed = (uint16_t)note->failed;
    C.diverged_now = C.now;
    C.diverged = 1;
    clock->held = CRDEBUG_AT_DIVERGENCE;
    while (clock->diverged) progress(&patience);
    clock->held = CRDEBUG_FREE;
    cut();
}

const struct crdebug_record *expected_slow(void) {
    if (UNLIKELY(C.enforce != CRDEBUG_ENFORCE)) {
        if (C.enforce == CRDEBUG_BRANCH) C.enforce = CRDEBUG_ENFORCE;
        cut();
        return NULL;
    }
    went_back();
    if (!behind()) return NULL;
    return &log_records[in_a_run() ? C.cursor - 1 : C.cursor];
}

bool says_no(const struct crdebug_record *record) { return record->head & FLAG(CRDEBUG_NO); }

#define SAME_HEAD \
    (0x1ff | FLAG(CRDEBUG_WILD_SOURCE | CRDEBUG_WILD_TAG | CRDEBUG_PACKED) | ~UINT64_C(0) << SIZE_SHIFT)
#define TAG_BITS ((uint64_t)TAG_MOST)
#define PEER_BITS ((uint64_t)PEER_MOST << 28)

/* Where the call leaves the sender or the tag open, the record has what it was. */
static bool same(const struct crdebug_record *record, uint64_t head, uint64_t body) {
    uint64_t bits = ~UINT64_C(0);
    if ((record->head ^ head) & SAME_HEAD) return false;
    if (head & FLAG(CRDEBUG_WILD_SOURCE) && BODY_PEER(body) == PEER_ANY) bits &= ~PEER_BITS;
    if (head & FLAG(CRDEBUG_WILD_TAG) && BODY_TAG(body) == TAG_ANY) bits &= ~TAG_BITS;
    if (head & FLAG(CRDEBUG_WILD_SOURCE) && BODY_PEER(record->body) == PEER_ANY) bits &= ~PEER_BITS;
    if (head & FLAG(CRDEBUG_WILD_TAG) && BODY_TAG(record->body) == TAG_ANY) bits &= ~TAG_BITS;
    return ((record->body ^ body) & bits) == 0;
}

const struct crdebug_record *begin_slow(const struct note *note) {
    const struct crdebug_record *record = expected();
    if (record == NULL) return NULL;
    if (same(record, note->head, note->body) && !says_no(record) && same_words(record, note))
        return record;
    diverge(record, note);
    return NULL;
}

uint64_t finish_slow(struct note *note) {
    const struct crdebug_record *record = expected();
    if (record == NULL) return append(note);
    bool equal = !says_no(record) &&
                 (HEAD_CALL(note->head) == CALL_Wtime ? HEAD_CALL(record->head) == CALL_Wtime
                                                      : same(record, note->head, note->body));
    if (!equal || !same_words(record, note) || failed_of(record) != note->failed) {
        diverge(record, note);
        return append(note);
    }
    uint64_t place = C.cursor;
    C.repeat = 0;
    C.cursor = place + 1 + followers(record);
    if (!behind()) caught_up();
    return place;
}

/* ---- recording ---------------------------------------------------------------------------------- */

uint64_t append(struct note *note) {
    uint64_t place = C.cursor;
    uint32_t more = note->count || UNLIKELY(note->failed) ? (1 + note->count + 3) / 4 : 0;
    if (UNLIKELY(C.mode == CRDEBUG_COUNTS)) return NOBODY;
    if (UNLIKELY(unsettled)) requests_sweep(16);
    if (UNLIKELY(place + 1 + more > log_header->room) && !make_room(place + 1 + more)) return NOBODY;
    struct crdebug_record *record = &log_records[place];
    record->head = note->head | (more ? FLAG(CRDEBUG_MORE) : 0) |
                   (uint64_t)site_number(note->site) << SITE_SHIFT;
    record->body = note->body;
    if (more) {
        uint32_t *words = (uint32_t *)(record + 1);
        memset(words, 0, more * sizeof *record);
        words[0] = more | note->failed << CRDEBUG_FAILED_SHIFT;
        if (note->count) memcpy(words + 1, words_of(note), note->count * sizeof *words);
    }
    C.repeat = 0;
    C.cursor = place + 1 + more;
    /* The definition of a communicator takes no tick. */
    log_header->tail_now = HEAD_CALL(note->head) == CALL_none ? log_header->tail_now : C.now + 1;
    __asm__ volatile("" ::: "memory"); /* who sees the tail, sees what is before it */
    log_header->tail = C.cursor;
    return place;
}

void finish_no(struct note *note) {
    const uint64_t least = 0x1ff | FLAG(CRDEBUG_NO);
    if (C.mode == CRDEBUG_COUNTS) return;
    note->head = (uint32_t)note->head | FLAG(CRDEBUG_NO);
    const struct crdebug_record *record = expected();
    if (record != NULL) {
        if ((record->head ^ note->head) & least || record->body != note->body) {
            diverge(record, note);
        } else {
            if (record == &log_records[C.cursor]) {
                C.cursor++;
                C.repeat = 0;
            }
            C.repeat++;
            if (!behind()) caught_up();
            return;
        }
    }
    if (C.repeat) {
        struct crdebug_record *run = &log_records[C.cursor - 1];
        uint64_t head = note->head | (uint64_t)site_number(note->site) << SITE_SHIFT;
        if ((uint32_t)run->head == (uint32_t)head && run->body == note->body &&
            C.repeat < SIZE_MOST - 1) {
            run->head += UINT64_C(1) << SIZE_SHIFT;
            C.repeat++;
            log_header->tail_now = C.now + 1;
            return;
        }
    }
    note->head |= UINT64_C(1) << SIZE_SHIFT;
    if (append(note) != NOBODY) C.repeat = 1;
}
