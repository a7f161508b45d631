// Rank 0 sends to rank 1 under tags that come from outside MPI: --from 0 the kernel's random numbers,
// 1 the clock, 2 the processor's counter of cycles.

#include "common.h"

#include <sys/random.h>
#include <x86intrin.h>

enum { RANDOM, CLOCK, CYCLES, ROUNDS = 4 };

static int tag_from(long outside) {
    uint64_t value = 0;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (outside == RANDOM) CHECK(getrandom(&value, sizeof value, 0) == sizeof value, "no random number");
    if (outside == CLOCK) value = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    if (outside == CYCLES) value = __rdtsc();
    return (int)(value % 1000003);
}

int main(int argc, char **argv) {
    long outside = RANDOM;
    const struct option_spec options[] = {{"--from", &outside, NULL}, {NULL, NULL, NULL}};
    parse_options(argc, argv, options);
    start_mpi(&argc, &argv);
    for (step = 0; step < ROUNDS; step++) {
        int data = 0;
        if (my_rank == 0) MPI_Send(&data, 1, MPI_INT, 1, tag_from(outside), MPI_COMM_WORLD);
        if (my_rank == 1)
            MPI_Recv(&data, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
