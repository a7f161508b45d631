/* Makes many calls that return at once, and tells how long one takes: for bench_doing.py.

   passes CALLS: how many. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int value = 0;
    MPI_Init(&argc, &argv);
    if (argc != 2) {
        fprintf(stderr, "usage: passes CALLS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    long calls = strtol(argv[1], NULL, 10);
    double begun = MPI_Wtime();
    for (long n = 0; n < calls; n++) MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, 7, MPI_COMM_WORLD);
    printf("%.3f\n", (MPI_Wtime() - begun) / (double)calls * 1e9);
    MPI_Finalize();
}
