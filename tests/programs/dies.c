// MPI ranks of which one ends badly.
//
// --rank N        which one
// --step N        in which step; 0: never
// --how HOW       exit (without MPI_Finalize), segv, overflow (of its stack), fpe, abort, assert,
//                 mpi-abort, mpi-error (a message for a rank that is not there), or kill (by SIGKILL)
// --status N      of exit
// --steps N       steps of the others
// --delay-us N    pause after each step

#include "common.h"

#include <assert.h>

static long steps = 100, delay_us = 1000, rank, when = 20, status = 7;
static const char *how = "exit";
static volatile long last_words, zero;

__attribute__((noinline)) static int deep(int calls) {
    volatile char room[1000];
    room[0] = (char)calls;
    return calls < INT32_MAX ? deep(calls + 1) + room[0] : 0;
}

// What is on the stack where it ends is another thing each time.
__attribute__((noinline)) static void die(void) {
    volatile struct timespec remains[64];
    for (int i = 0; i < 64; i++) {
        clock_gettime(CLOCK_MONOTONIC, (struct timespec *)&remains[i]);
    }
    last_words = step;
    if (strcmp(how, "exit") == 0) {
        exit((int)status);
    } else if (strcmp(how, "segv") == 0) {
        *(volatile int *)8 = 1;
    } else if (strcmp(how, "overflow") == 0) {
        last_words = deep(0);
    } else if (strcmp(how, "fpe") == 0) {
        last_words = step / zero;
    } else if (strcmp(how, "abort") == 0) {
        abort();
    } else if (strcmp(how, "assert") == 0) {
        assert(step < 0);
    } else if (strcmp(how, "mpi-abort") == 0) {
        MPI_Abort(MPI_COMM_WORLD, (int)status);
    } else if (strcmp(how, "mpi-error") == 0) {
        MPI_Send(&when, 1, MPI_LONG, rank_count, 0, MPI_COMM_WORLD);
    } else {
        kill(getpid(), SIGKILL);
    }
}

// Every rank passes here once in each step.
__attribute__((noinline)) static void work_step(void) {
    if (step == when && my_rank == rank) {
        die();
    }
    exchange(0);
}

int main(int argc, char **argv) {
    parse_options(argc, argv,
                  (struct option_spec[]){{"--rank", &rank, NULL},
                                         {"--step", &when, NULL},
                                         {"--how", NULL, &how},
                                         {"--status", &status, NULL},
                                         {"--steps", &steps, NULL},
                                         {"--delay-us", &delay_us, NULL},
                                         {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    for (step = 1; step <= steps; step++) {
        work_step();
        pause_us(delay_us);
    }
    report("survived");
    MPI_Finalize();
    return 0;
}
