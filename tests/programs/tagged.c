// Rank 1 sends to rank 0, which receives from anybody, under tags that have no room in a record. In the
// order of what rank 0 does: a receive, one that is posted, and one after a probe.

#include "common.h"

enum { TAG = 0x7fffffd8, ROUNDS = 3 };

int main(int argc, char **argv) {
    int value = 0;
    MPI_Request request;
    MPI_Status status;
    start_mpi(&argc, &argv);
    for (step = 0; step < ROUNDS; step++) {
        int tag = TAG + (int)step;
        if (my_rank == 1) {
            value = (int)step;
            for (int i = 0; i < 3; i++) MPI_Send(&value, 1, MPI_INT, 0, tag, MPI_COMM_WORLD);
        } else {
            MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status);
            CHECK(value == step && status.MPI_TAG == tag, "received %d, tag %x", value, status.MPI_TAG);
            MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, &status);
            CHECK(value == step && status.MPI_TAG == tag, "received %d, tag %x", value, status.MPI_TAG);
            MPI_Probe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status);
            MPI_Recv(&value, 1, MPI_INT, status.MPI_SOURCE, tag, MPI_COMM_WORLD, &status);
            CHECK(value == step && status.MPI_TAG == tag, "received %d, tag %x", value, status.MPI_TAG);
        }
    }
    MPI_Finalize();
    return 0;
}
