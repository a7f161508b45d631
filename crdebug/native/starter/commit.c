/* What makes a restart final, done for the action script: it needs nobody who may die meanwhile.
 *
 * A plan is a file of words, each ended by a null byte (crdebug/checkpoint/commit.py writes it):
 *   kill PID START            end this process, and wait until it can do nothing any more
 *   file PATH COPY SIZE MODE  give it its content back: COPY's, or ("") its first SIZE bytes
 *   bind COPY PATH            have processes in these mounts see COPY in the place of PATH
 *   rename FROM TO            publish the job's record
 *   end                       the plan is whole
 * All of it can be done again, from its start, as often as it takes. Copies are cloned where the
 * file system can (ioctl_ficlone(2)), copied by the kernel where it can, and keep their holes. */
#define _GNU_SOURCE 1
#include "starter.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 1 << 20, PATIENCE = 60 }; /* bytes; seconds for killed processes to end */

static char said[4400];

static int failed(const char *format, ...) {
    int error = errno;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(said, sizeof said, format, arguments);
    va_end(arguments);
    if (error && length >= 0 && length < (int)sizeof said)
        snprintf(said + length, sizeof said - (size_t)length, ": %s", strerror(error));
    for (char *at = said; *at; at++)
        if (*at == '\n') *at = ' ';
    return -1;
}

const char *why_not_carried_out(void) { return said; }

/* ---- processes ---------------------------------------------------------------------------------- */

struct status {
    char state;
    unsigned long flags;
    unsigned long long start;
};

/* 0, or -1 if the process or thread is gone. proc(5): the name is in parentheses and may hold
 * anything. */
static int read_status(const char *path, struct status *status) {
    char text[1024];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    text[got > 0 ? got : 0] = 0;
    const char *behind = strrchr(text, ')');
    if (behind == NULL) return -1;
    return sscanf(
               behind + 1,
               " %c %*s %*s %*s %*s %*s %lu %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
               &status->state, &status->flags, &status->start) == 3
               ? 0
               : -1;
}

static int has_entries(const char *path) {
    DIR *directory = opendir(path);
    int found = 0;
    if (directory == NULL) return 0;
    for (struct dirent *entry; !found && (entry = readdir(directory)) != NULL;)
        found = entry->d_name[0] != '.';
    closedir(directory);
    return found;
}

/* A zombie has closed its files and runs no more, whether or not its parent or its tracer has taken
 * note. PID 1 of a container becomes one only after all others are gone, which their tracers have to
 * see; by then it has no files any more (kernel/exit.c, do_exit). */
static int thread_has_ended(const char *task, const char *tid) {
    enum { EXITING = 4 }; /* PF_EXITING of the kernel's include/linux/sched.h */
    char path[160];
    struct status status;
    snprintf(path, sizeof path, "%.64s/%.20s/stat", task, tid);
    if (read_status(path, &status) != 0 || status.state == 'Z' || status.state == 'X') return 1;
    snprintf(path, sizeof path, "%.64s/%.20s/fd", task, tid);
    return status.flags & EXITING && !has_entries(path);
}

static int has_ended(const char *pid, unsigned long long start) {
    char path[64];
    struct status status;
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    if (read_status(path, &status) != 0 || status.start != start) return 1;
    snprintf(path, sizeof path, "/proc/%.20s/task", pid);
    DIR *tasks = opendir(path);
    if (tasks == NULL) return 1;
    int ended = 1;
    for (struct dirent *entry; ended && (entry = readdir(tasks)) != NULL;)
        ended = entry->d_name[0] == '.' || thread_has_ended(path, entry->d_name);
    closedir(tasks);
    return ended;
}

static void end_process(const char *pid, unsigned long long start) {
    int process = (int)syscall(SYS_pidfd_open, atoi(pid), 0);
    if (process < 0) return;
    if (!has_ended(pid, start)) syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
    close(process);
}

static int await_end(const char *pid, unsigned long long start) {
    struct timespec now, until, pause = {.tv_nsec = 200000};
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PATIENCE;
    while (!has_ended(pid, start)) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        errno = 0;
        if (now.tv_sec > until.tv_sec) return failed("process %s was killed and does not end", pid);
        nanosleep(&pause, NULL); /* nobody but its parent is told */
    }
    return 0;
}

/* ---- files -------------------------------------------------------------------------------------- */

static int copy_range(int from, int to, off_t at, off_t end) {
    static char block[BLOCK];
    int by_kernel = 1;
    while (at < end) {
        loff_t in = at, out = at;
        ssize_t got = -1;
        if (by_kernel) got = copy_file_range(from, &in, to, &out, (size_t)(end - at), 0);
        if (got <= 0 && by_kernel) { /* not between these file systems */
            by_kernel = 0;
            continue;
        }
        if (!by_kernel) {
            size_t wanted = end - at < BLOCK ? (size_t)(end - at) : BLOCK;
            got = pread(from, block, wanted, at);
            if (got == 0) errno = EIO; /* it was as long as that a moment ago */
            if (got <= 0) return -1;
            for (ssize_t done = 0, now; done < got; done += now)
                if ((now = pwrite(to, block + done, (size_t)(got - done), at + done)) < 0)
                    return -1;
        }
        at += got;
    }
    return 0;
}

static int copy(int from, int to) {
    struct stat details;
    if (fstat(from, &details) != 0 || ftruncate(to, 0) != 0) return -1;
    if (ioctl(to, FICLONE, from) == 0) return 0;
    if (ftruncate(to, details.st_size) != 0) return -1;
    for (off_t at = 0, hole; at < details.st_size; at = hole) {
        at = lseek(from, at, SEEK_DATA);
        if (at < 0) return errno == ENXIO ? 0 : -1; /* nothing but a hole is left */
        hole = lseek(from, at, SEEK_HOLE);
        if (hole < 0 || copy_range(from, to, at, hole) != 0) return -1;
    }
    return 0;
}

/* No symbolic link is on the path: it is the kernel's own, and who may write to one of its directories
 * could have put one there since (crdebug/node/plain_paths.py). */
static int open_straight(const char *path, int flags) {
    char name[NAME_MAX + 1];
    int directory = open("/", O_PATH | O_CLOEXEC);
    while (directory >= 0) {
        struct stat details;
        size_t length = strcspn(path += strspn(path, "/"), "/");
        int last = path[length] == 0, below = -1, error;
        if (length < sizeof name) {
            memcpy(name, path, length);
            name[length] = 0;
            below = openat(directory, name,
                           (last ? flags | O_NONBLOCK : O_PATH) | O_NOFOLLOW | O_CLOEXEC);
        } else {
            errno = ENAMETOOLONG;
        }
        if (below >= 0 && (fstat(below, &details) != 0 || (!last && S_ISLNK(details.st_mode)))) {
            close(below);
            below = -1;
            errno = ELOOP;
        }
        error = errno;
        close(directory);
        errno = error;
        if (last || below < 0) return below;
        directory = below;
        path += length;
    }
    return -1;
}

static int put_back(const char *path, const char *copied, off_t size, mode_t mode) {
    struct stat details;
    int result = -1, from = -1, to = open_straight(path, O_RDWR);
    if (to >= 0 && fstat(to, &details) == 0) {
        errno = EINVAL;
        if (!S_ISREG(details.st_mode)) result = -1;
        else if (*copied == 0) result = details.st_size > size ? ftruncate(to, size) : 0;
        else if ((from = open(copied, O_RDONLY | O_CLOEXEC)) >= 0) result = copy(from, to);
        if (result == 0 && (details.st_mode & 07777) != mode) result = fchmod(to, mode);
    }
    if (result != 0) failed("cannot roll back %s", path);
    if (from >= 0) close(from);
    if (to >= 0) close(to);
    return result;
}

/* ---- the plan ----------------------------------------------------------------------------------- */

static char *words, *at, *end;

static char *next(void) {
    if (at >= end) return NULL;
    char *word = at;
    at += strlen(at) + 1;
    return word;
}

/* How many words follow the first one, by its name; -1: there is no such. */
static int arguments_of(const char *name) {
    static const struct {
        const char *name;
        int count;
    } known[] = {{"kill", 2}, {"file", 4}, {"bind", 2}, {"rename", 2}, {"end", 0}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0) return known[i].count;
    return -1;
}

static int read_plan(const char *path) {
    struct stat details;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &details) != 0) return failed("cannot read %s", path);
    size_t size = (size_t)details.st_size;
    words = malloc(size + 1);
    if (words == NULL || read(file, words, size) != (ssize_t)size)
        return failed("cannot read %s", path);
    close(file);
    errno = 0;
    if (size < 4 || memcmp(words + size - 4, "end", 4) != 0) return failed("%s is not whole", path);
    end = words + size;
    return 0;
}

static int carry_out_one(char **word) {
    if (strcmp(word[0], "kill") == 0) return await_end(word[1], strtoull(word[2], NULL, 10));
    if (strcmp(word[0], "file") == 0)
        return put_back(word[1], word[2], (off_t)strtoll(word[3], NULL, 10),
                        (mode_t)strtoul(word[4], NULL, 8));
    if (strcmp(word[0], "bind") == 0)
        return mount(word[1], word[2], NULL, MS_BIND, NULL) == 0 ? 0 : failed("bind %s", word[2]);
    if (strcmp(word[0], "rename") == 0)
        return rename(word[1], word[2]) == 0 ? 0 : failed("cannot write %s", word[2]);
    return 0;
}

int carry_out(const char *path) {
    if (read_plan(path) != 0) return -1;
    /* All are killed before the first is waited for; and no file changes before all have ended. */
    for (int round = 0; round < 2; round++) {
        at = words;
        for (char *word[5]; (word[0] = next()) != NULL;) {
            int count = arguments_of(word[0]);
            errno = 0;
            if (count < 0) return failed("%s holds '%s'", path, word[0]);
            for (int i = 1; i <= count; i++)
                if ((word[i] = next()) == NULL) return failed("%s is not whole", path);
            if (round == 0 && strcmp(word[0], "kill") == 0)
                end_process(word[1], strtoull(word[2], NULL, 10));
            if (round == 1 && carry_out_one(word) != 0) return -1;
        }
    }
    return 0;
}
