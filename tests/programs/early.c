// MPI ranks of which some end before the others, all of them well.
//
// --gone N        this rank ends as soon as it has left MPI
// --steps N       lines that each other rank writes after that
// --delay-us N    between two of them

#include "common.h"

static long gone = 1, steps = 200, delay_us = 10000;

// Every rank that is left passes here once in each step.
__attribute__((noinline)) static void work_step(void) {
    printf("rank %d: step %ld\n", my_rank, step);
    fflush(stdout);
    pause_us(delay_us);
}

int main(int argc, char **argv) {
    parse_options(argc, argv,
                  (struct option_spec[]){{"--gone", &gone, NULL},
                                         {"--steps", &steps, NULL},
                                         {"--delay-us", &delay_us, NULL},
                                         {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    exchange(0);
    MPI_Finalize();
    if (my_rank == gone) {
        return 0;
    }
    for (step = 1; step <= steps; step++) {
        work_step();
    }
    return 0;
}
