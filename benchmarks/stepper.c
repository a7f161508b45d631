/* Lines to step over, and variables to look at: for bench_console.py. */

#include <mpi.h>
#include <stdio.h>

int rank;
long total;

static long work(long step) {
    long sum = 0;
    for (long i = 0; i < 1000000000; i++) {
        long term = i * step;
        term += rank;
        sum += term % 7;
        total = sum;
    }
    return sum;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    long sum = work(argc);
    printf("%ld\n", sum);
    MPI_Finalize();
    return 0;
}
