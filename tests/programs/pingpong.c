// Two ranks send one byte to and fro; prints the nanoseconds of half a round trip.

#include "common.h"

int main(int argc, char **argv) {
    long rounds = 100000, bytes = 1;
    const struct option_spec options[] = {
        {"--rounds", &rounds, NULL}, {"--bytes", &bytes, NULL}, {NULL, NULL, NULL}};
    struct timespec from, to;
    parse_options(argc, argv, options);
    start_mpi(&argc, &argv);
    char *data = calloc((size_t)bytes, 1);
    CHECK(data && rank_count == 2, "wanted: two ranks and memory");
    for (step = -rounds / 10; step < rounds; step++) {
        if (step == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            clock_gettime(CLOCK_MONOTONIC, &from);
        }
        if (my_rank == 0) {
            MPI_Send(data, (int)bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(data, (int)bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(data, (int)bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(data, (int)bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (my_rank == 0) {
        double elapsed = 1e9 * (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec);
        printf("%.1f\n", elapsed / 2 / (double)rounds);
    }
    MPI_Finalize();
    return 0;
}
