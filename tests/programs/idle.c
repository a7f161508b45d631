// One byte to and fro between two MPI ranks, for benchmarks/bench_idle.py.
//
//   idle N      N times; prints `seconds S`

#include "common.h"

int main(int argc, char **argv) {
    long times = argc > 1 ? atol(argv[1]) : 1000;
    char byte = 0;
    start_mpi(&argc, &argv);
    CHECK(rank_count == 2, "two ranks are wanted, there are %d", rank_count);
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    for (step = 0; step < times; step++) {
        if (my_rank == 0) MPI_Send(&byte, 1, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(&byte, 1, MPI_CHAR, 1 - my_rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (my_rank == 1) MPI_Send(&byte, 1, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    }
    double took = MPI_Wtime() - began;
    if (my_rank == 0) printf("seconds %.6f\n", took);
    MPI_Finalize();
    return 0;
}
