// Makes many calls that need nobody, and between them rank 0 gets a message from each of the others, in
// whatever order; a receive that is posted in the beginning gets its message in the end.

#include "jitter.h"

enum { TAG = 5, LAST = 6 };

static long calls = 1000;

static NOINLINE void work_step(void) {
    int value = my_rank * 1000 + (int)step;
    MPI_Status status;
    for (long call = 0; call < calls; call++) {
        MPI_Wtime();
    }
    if (my_rank) {
        jitter();
        MPI_Send(&value, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    }
    for (int rank = 1; my_rank == 0 && rank < rank_count; rank++) {
        MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &status);
        CHECK(value == status.MPI_SOURCE * 1000 + (int)step, "%d from %d", value, status.MPI_SOURCE);
        note(value);
    }
}

int main(int argc, char **argv) {
    const struct option_spec options[] = {{"--rounds", &rounds, NULL},
                                          {"--jitter-us", &jitter_us, NULL},
                                          {"--calls", &calls, NULL},
                                          {NULL, NULL, NULL}};
    int last = -1;
    MPI_Request request;
    parse_options(argc, argv, options);
    start_mpi(&argc, &argv);
    MPI_Irecv(&last, 1, MPI_INT, MPI_ANY_SOURCE, LAST, MPI_COMM_WORLD, &request);
    for (step = 0; step < rounds; step++) {
        work_step();
    }
    MPI_Send(&my_rank, 1, MPI_INT, (my_rank + 1) % rank_count, LAST, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(last == (my_rank + rank_count - 1) % rank_count, "rank %d came last", last);
    report_seen();
    return 0;
}
