// MPI ranks whose main thread ends and leaves the work to another one.
//
// --steps N       of that thread
// --delay-us N    between two of them

#include "common.h"

static long steps = 1000000000, delay_us = 1000;

// Passed in each step.
__attribute__((noinline)) static void work_step(void) { pause_us(delay_us); }

static void *work(void *unused) {
    for (step = 1; step <= steps; step++) {
        work_step();
    }
    MPI_Finalize();
    exit(0);
    return unused;
}

int main(int argc, char **argv) {
    int provided;
    pthread_t thread;
    parse_options(argc, argv,
                  (struct option_spec[]){
                      {"--steps", &steps, NULL}, {"--delay-us", &delay_us, NULL}, {NULL, NULL, NULL}});
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (pthread_create(&thread, NULL, work, NULL) != 0) {
        return 3;
    }
    pthread_exit(NULL);
}
