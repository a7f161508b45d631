// Random delays, so that messages arrive in another order in each run; and a hash of what was seen.
// The programs that include this one print what depends on the order: two runs differ. Delays come
// from the clock and leave nothing in memory: a run from a checkpoint on has other ones.

#ifndef CRDEBUG_TESTS_JITTER_H
#define CRDEBUG_TESTS_JITTER_H

#include "common.h"

#define NOINLINE __attribute__((noinline)) // a place for breakpoints

static long rounds = 10, jitter_us = 2000;
static long asked; // who sends waits until rank 0 has posted its receives
static uint64_t seen = FNV_START;

static const struct option_spec jitter_options[] = {{"--rounds", &rounds, NULL},
                                                    {"--jitter-us", &jitter_us, NULL},
                                                    {"--asked", &asked, NULL},
                                                    {NULL, NULL, NULL}};

static UNUSED void start_jitter(int argc, char **argv) {
    parse_options(argc, argv, jitter_options);
    start_mpi(&argc, &argv);
}

static UNUSED NOINLINE void jitter(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t chance = ((uint64_t)now.tv_nsec + (uint64_t)my_rank) * UINT64_C(6364136223846793005);
    if (jitter_us) {
        pause_us((long)((chance >> 33) % (uint64_t)jitter_us));
    }
}

static UNUSED void ask(void) {
    enum { ASK = 4711 };
    if (!asked) return;
    if (my_rank) MPI_Recv(NULL, 0, MPI_INT, 0, ASK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int rank = 1; my_rank == 0 && rank < rank_count; rank++)
        MPI_Send(NULL, 0, MPI_INT, rank, ASK, MPI_COMM_WORLD);
}

static UNUSED NOINLINE void note(long value) { seen = fnv(seen, &value, sizeof value); }

static UNUSED void report_seen(void) {
    char line[64];
    snprintf(line, sizeof line, "%016" PRIx64, seen);
    report(line);
    MPI_Finalize();
}

#endif
