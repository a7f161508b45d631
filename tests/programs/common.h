// What the programs under test share: options, exact arithmetic, and checks that name the rank.
//
// The programs check their own state, and print only what does not depend on time, so that the
// output of a run with checkpoints and restarts must equal an undisturbed run's, byte for byte.

#ifndef CRDEBUG_TESTS_COMMON_H
#define CRDEBUG_TESTS_COMMON_H

#include <errno.h>
#include <inttypes.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))

// The step that the program is in. A breakpoint at work_step and `print step` tell where a rank is;
// it is a global so that it can be printed in any frame.
static volatile long step;
static int my_rank;
static int rank_count;

// ---- checks -----------------------------------------------------------------------------------

// Says what is wrong, where and in which step, and ends the whole job with status 3.
__attribute__((format(printf, 2, 3), noreturn)) static UNUSED void fail_at(int line,
                                                                          const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "rank %d, step %ld, line %d: FAILED: %s\n", my_rank, step, line, text);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 3);
    abort();
}

#define FAIL(...) fail_at(__LINE__, __VA_ARGS__)
#define CHECK(condition, ...)            \
    do {                                 \
        if (!(condition)) {              \
            fail_at(__LINE__, __VA_ARGS__); \
        }                                \
    } while (0)

// ---- threads ----------------------------------------------------------------------------------

// The number of the system call that a thread of ours waits in, -1 if in none.
static UNUSED long system_call_of(pid_t tid) {
    char path[64], text[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)tid);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL, "%s: %s", path, strerror(errno));
    if (!fgets(text, sizeof text, file)) {
        text[0] = 0;
    }
    fclose(file);
    return text[0] >= '0' && text[0] <= '9' ? strtol(text, NULL, 10) : -1;
}

// ---- options ----------------------------------------------------------------------------------

// An option with a value: a number, or a text when `text` is set. A list ends with a null name.
struct option_spec {
    const char *name;
    long *number;
    const char **text;
};

static UNUSED void parse_options(int argc, char **argv, const struct option_spec *specs) {
    for (int i = 1; i < argc; i += 2) {
        const struct option_spec *spec = specs;
        while (spec->name && strcmp(spec->name, argv[i]) != 0) {
            spec++;
        }
        if (!spec->name || i + 1 == argc) {
            fprintf(stderr, "%s: %s '%s'; options, each with a value:", argv[0],
                    spec->name ? "no value after" : "unknown option", argv[i]);
            for (spec = specs; spec->name; spec++) {
                fprintf(stderr, " %s", spec->name);
            }
            fputc('\n', stderr);
            exit(2);
        }
        if (spec->text) {
            *spec->text = argv[i + 1];
            continue;
        }
        char *end;
        errno = 0;
        *spec->number = strtol(argv[i + 1], &end, 10);
        if (errno || end == argv[i + 1] || *end) {
            fprintf(stderr, "%s: '%s' is not a number for %s\n", argv[0], argv[i + 1], argv[i]);
            exit(2);
        }
    }
}

// ---- exact arithmetic -------------------------------------------------------------------------

#define FNV_START UINT64_C(14695981039346656037)

// FNV-1a, 64 bits, continued from `hash`.
static UNUSED uint64_t fnv(uint64_t hash, const void *data, size_t size) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    }
    return hash;
}

// A linear congruential sequence modulo 2^64: x becomes factor * x + term.
struct lcg {
    uint64_t factor, term;
};

// The sequence's map applied `count` times, as one map; O(log count).
static UNUSED struct lcg lcg_power(struct lcg map, uint64_t count) {
    struct lcg result = {1, 0};
    while (count) {
        if (count & 1) {
            result = (struct lcg){map.factor * result.factor, map.factor * result.term + map.term};
        }
        map = (struct lcg){map.factor * map.factor, map.factor * map.term + map.term};
        count >>= 1;
    }
    return result;
}

// ---- MPI --------------------------------------------------------------------------------------

static UNUSED void start_mpi(int *argc, char ***argv) {
    int provided;
    MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
    CHECK(provided >= MPI_THREAD_FUNNELED, "MPI has no thread support (%d)", provided);
}

// A value from the left neighbour for ours, and a sum over all ranks, both checked: every rank
// must be in the same step, so a rank that lost or repeated one shows at once.
static UNUSED uint64_t exchange(uint64_t value) {
    uint64_t mine[2] = {(uint64_t)step, value}, theirs[2] = {0, 0}, sum = 0;
    int right = (my_rank + 1) % rank_count, left = (my_rank + rank_count - 1) % rank_count;
    MPI_Sendrecv(mine, 2, MPI_UINT64_T, right, 7, theirs, 2, MPI_UINT64_T, left, 7, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    CHECK(theirs[0] == mine[0], "rank %d is in step %" PRIu64, left, theirs[0]);
    MPI_Allreduce(mine, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == mine[0] * (uint64_t)rank_count, "the sum of all steps is %" PRIu64, sum);
    return theirs[1];
}

// One line for each rank, in the order of ranks, printed by rank 0: the launcher may mix lines of
// different ranks, and output that is to be compared must not depend on that.
static UNUSED void report(const char *text) {
    char line[256] = "";
    snprintf(line, sizeof line, "%s", text);
    char *lines = my_rank == 0 ? calloc((size_t)rank_count, sizeof line) : NULL;
    MPI_Gather(line, sizeof line, MPI_CHAR, lines, sizeof line, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (my_rank == 0) {
        for (int rank = 0; rank < rank_count; rank++) {
            printf("rank %d: %s\n", rank, lines + (size_t)rank * sizeof line);
        }
        fflush(stdout);
    }
    free(lines);
}

// ---- time -------------------------------------------------------------------------------------

// Only to make a run longer; nothing that is printed depends on it. Inlined, it would begin for a
// debugger wherever the compiler has put its first instruction: before the loop that calls it, say.
__attribute__((noinline)) static UNUSED void pause_us(long microseconds) {
    struct timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000};
    while (microseconds > 0 && nanosleep(&left, &left) == -1) {
        CHECK(errno == EINTR, "nanosleep: %s", strerror(errno));
    }
}

#endif
