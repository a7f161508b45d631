// Rank 0 tests for a message that rank 1 sends only once rank 0 has tested for it often enough, and says
// how often the MPI was asked for other messages meanwhile. To be linked with -rdynamic.

#include "common.h"

enum { TESTS = 20000, TAG = 7 };

static long looks;

int PMPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status) {
    (void)source, (void)tag, (void)comm, (void)status;
    looks++;
    *flag = 0;
    return MPI_SUCCESS;
}

static void ask(void) {
    int value = 0, flag = 0;
    MPI_Request request;
    MPI_Irecv(&value, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD, &request);
    for (int i = 0; i < TESTS; i++) {
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        CHECK(!flag, "a message before it was sent");
    }
    MPI_Send(&value, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(value == TESTS, "received %d", value);
    printf("%ld\n", looks);
}

int main(int argc, char **argv) {
    int value = TESTS, go;
    start_mpi(&argc, &argv);
    if (my_rank == 0) {
        ask();
    } else {
        MPI_Recv(&go, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&value, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
