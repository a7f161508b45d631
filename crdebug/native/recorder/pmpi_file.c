/* The layer's log as a file: made and mapped, its space on the disk, and where in it a place is. */
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

#define CAPACITY (UINT64_C(1) << 26) /* a file of 1 GiB, which is sparse; a power of two */
#define LEAST_ROOM (UINT64_C(1) << 18) /* bytes that are taken from the disk at once, from and to */
#define MOST_ROOM (UINT64_C(1) << 22)
#define MOST_LEFT \
    (UINT64_C(1) << 26) /* bytes of the disk that are left to others, see leaves_enough() */
#ifndef MADV_POPULATE_WRITE /* of Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

struct crdebug_log *log_header;
struct crdebug_record *log_records;
uint64_t log_mask, *site_table;

static char log_path[4096];

static size_t file_size(uint64_t records) {
    return CRDEBUG_LOG_HEADER + (records + 2 * CRDEBUG_OLD) * sizeof(struct crdebug_record);
}

/* The greatest power of two that is not more; 0 for less than a page. */
static uint64_t power_of_two(uint64_t records) {
    uint64_t power = CRDEBUG_PAGE;
    while (power <= records / 2) power *= 2;
    return power <= records ? power : 0;
}

/* No more than the process may write into one file: to try would end it, by SIGXFSZ. */
static uint64_t capacity(void) {
    const char *text = getenv("CRDEBUG_TIME_RECORDS");
    unsigned long long wanted = text ? strtoull(text, NULL, 10) : 0;
    struct rlimit limit;
    uint64_t records = wanted > CRDEBUG_PAGE ? wanted : wanted ? CRDEBUG_PAGE : CAPACITY, fit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        if (limit.rlim_cur <= file_size(0)) return 0;
        fit = (limit.rlim_cur - file_size(0)) / sizeof(struct crdebug_record);
        if (fit < records) records = fit;
    }
    return power_of_two(records);
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
    size_t place = (size_t)(begin - (char *)log_header),
           again = 0; /* again: at the ring's beginning */
    size_t end = CRDEBUG_LOG_HEADER + log_header->capacity * sizeof(struct crdebug_record);
    if (log_header->capacity && place + size > end) again = place + size - end;
    failed = posix_fallocate(file, (off_t)place, (off_t)(size - again));
    if (!failed && again) failed = posix_fallocate(file, CRDEBUG_LOG_HEADER, (off_t)again);
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
bool log_room(uint64_t records) {
    static uint64_t most = MOST_ROOM / sizeof(struct crdebug_record);
    uint64_t step = LEAST_ROOM / sizeof(struct crdebug_record), end = records;
    /* What shares a page with the first record stays as it is, see take_space(). */
    uint64_t limit = first_place() / CRDEBUG_PAGE * CRDEBUG_PAGE + log_header->capacity;
    if (records > limit) {
        refuse(CRDEBUG_LOG_FULL);
        return false;
    }
    if (step < C.cursor) step = C.cursor;
    if (step > most) step = most;
    for (;; step = most = step / 2) {
        end = C.cursor + step < limit ? C.cursor + step : limit;
        if (end < records) end = records;
        char *from = (char *)record_at(C.cursor);
        if (take_space(from, from + (end - C.cursor) * sizeof(struct crdebug_record))) break;
        if (step == 0) {
            refuse(CRDEBUG_NO_SPACE);
            return false;
        }
    }
    log_header->room = end;
    return true;
}

/* The header, the ring, the ring once more, and the two areas; NULL if that cannot be. */
static void *map(int file, uint64_t records) {
    const int both = PROT_READ | PROT_WRITE, there = MAP_SHARED | MAP_FIXED;
    size_t ring = records * sizeof(struct crdebug_record), front = CRDEBUG_LOG_HEADER + ring;
    char *found =
        mmap(NULL, file_size(records) + ring, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) return NULL;
    if (mmap(found, front, both, there, file, 0) != MAP_FAILED &&
        mmap(found + front, ring, both, there, file, CRDEBUG_LOG_HEADER) != MAP_FAILED &&
        mmap(found + front + ring, file_size(records) - front, both, there, file, (off_t)front) !=
            MAP_FAILED)
        return found;
    munmap(found, file_size(records) + ring);
    return NULL;
}

FILE *log_beside(const char *suffix) {
    char path[sizeof log_path + 16];
    snprintf(path, sizeof path, "%s.%s", log_path, suffix);
    return fopen(path, "we");
}

/* Where the code of this process is, for whoever looks for the lines of calls when it is gone: /proc/PID/maps,
 * the lines of code. */
static void write_maps(void) {
    char line[4096];
    FILE *from = fopen("/proc/self/maps", "re"), *to = from ? log_beside("maps") : NULL;
    while (to && fgets(line, sizeof line, from))
        if (strstr(line, " r-xp ")) fputs(line, to);
    if (to) fclose(to);
    if (from) fclose(from);
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
    if ((uint64_t)found.st_size > file_size(0)) {
        records = ((uint64_t)found.st_size - file_size(0)) / sizeof(struct crdebug_record);
        if (records != power_of_two(records)) goto failed;
    }
    if (records == 0 || ftruncate(file, (off_t)file_size(records)) != 0) {
        reason = records == 0 || errno == ENOSPC || errno == EDQUOT || errno == EFBIG
                     ? CRDEBUG_NO_SPACE
                     : CRDEBUG_LOG_FILE;
        goto failed;
    }
    void *mapped = map(file, records);
    if (mapped == NULL) goto failed;
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
        write_maps();
    } else if (header->abi != CRDEBUG_CLOCK_ABI || header->calls != CRDEBUG_TABLE ||
               header->rank != rank || header->world != world || header->capacity != records) {
        goto unmap;
    }
    site_table = (uint64_t *)((char *)mapped + 4096);
    log_records = (struct crdebug_record *)((char *)mapped + CRDEBUG_LOG_HEADER);
    log_mask = records - 1;
    const char *enforce = getenv("CRDEBUG_ENFORCE"); /* for a run without crdebug */
    if (enforce != NULL && *enforce == '0') C.enforce = CRDEBUG_ASK_ANEW;
    return true;
unmap:
    munmap(mapped, file_size(records) + records * sizeof(struct crdebug_record));
    log_header = NULL;
failed:
    if (file >= 0) close(file);
    refuse(reason);
    return false;
}

struct crdebug_record *posting_at(uint64_t place) {
    if (place >= first_place()) return record_at(place);
    struct crdebug_record *areas = log_records + 2 * log_header->capacity;
    struct crdebug_record *old = areas + (log_header->begin & 1) * CRDEBUG_OLD,
                          *end = old + CRDEBUG_OLD;
    for (; old < end && old->body; old += 1 + old->body)
        if (old->head == place) return old + 1;
    return NULL;
}
