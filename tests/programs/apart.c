// Rank 0 computes, in one tick, while the others send to it; then it receives what they sent.
//
// --rounds N   (6)

#include "common.h"

static long total;

__attribute__((noinline)) static void work(long value) {
    total += value;
}

__attribute__((noinline)) static void tell(void) {
    printf("rank %d sends %ld\n", my_rank, step);
    fflush(stdout);
}

int main(int argc, char **argv) {
    long rounds = 6;
    parse_options(argc, argv, (struct option_spec[]){{"--rounds", &rounds, NULL}, {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    for (step = 0; step < rounds; step++) {
        if (my_rank == 0) {
            work(step);
        } else {
            tell();
            long value = step;
            MPI_Send(&value, 1, MPI_LONG, 0, 7, MPI_COMM_WORLD);
        }
    }
    for (int other = 1; my_rank == 0 && other < rank_count; other++) {
        for (long wanted = 0; wanted < rounds; wanted++) {
            long got = -1;
            MPI_Recv(&got, 1, MPI_LONG, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(got == wanted, "rank %d sent %ld, not %ld", other, got, wanted);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d ends with %ld\n", my_rank, total);
    MPI_Finalize();
    return 0;
}
