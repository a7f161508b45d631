// Two ranks make some calls; with --other N rank 0 makes the N-th of them with another argument.

#include "common.h"

enum { TAG = 7, OTHER_TAG = 5 };
enum { NONE, SEND_TAG, SEND_COUNT, SEND_DEST, SEND_COMM, CALL, EXCHANGED, WAITED, STARTED, ROOT, ANYBODY };

int main(int argc, char **argv) {
    long other = NONE;
    int two[2] = {1, 2}, got[2];
    MPI_Comm copy;
    MPI_Request requests[2];
    const struct option_spec options[] = {{"--other", &other, NULL}, {NULL, NULL, NULL}};
    parse_options(argc, argv, options);
    start_mpi(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    int peer = 1 - my_rank;
    if (my_rank != 0) other = NONE;
    if (my_rank == 0) {
        int tag = other == SEND_TAG ? OTHER_TAG : TAG, count = other == SEND_COUNT ? 2 : 1;
        int dest = other == SEND_DEST ? MPI_PROC_NULL : 1;
        MPI_Comm comm = other == SEND_COMM ? copy : MPI_COMM_WORLD;
        if (other == CALL) MPI_Ssend(two, count, MPI_INT, dest, tag, comm);
        else MPI_Send(two, count, MPI_INT, dest, tag, comm);
    } else {
        MPI_Recv(got, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Sendrecv(two, 1, MPI_INT, peer, other == EXCHANGED ? OTHER_TAG : TAG, got, 1, MPI_INT, peer, TAG,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 2; i++) MPI_Irecv(&got[i], 1, MPI_INT, peer, i, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < 2; i++) MPI_Send(two, 1, MPI_INT, peer, i, MPI_COMM_WORLD);
    MPI_Wait(&requests[other == WAITED], MPI_STATUS_IGNORE);
    MPI_Wait(&requests[other != WAITED], MPI_STATUS_IGNORE);
    for (int i = 0; i < 2; i++)
        MPI_Send_init(two, 1, MPI_INT, peer, i, MPI_COMM_WORLD, &requests[other == STARTED ? 1 - i : i]);
    MPI_Startall(2, requests);
    for (int i = 0; i < 2; i++) MPI_Recv(got, 1, MPI_INT, peer, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Bcast(two, 2, MPI_INT, other == ROOT, copy);
    MPI_Send(two, 1, MPI_INT, peer, TAG, copy);
    MPI_Recv(got, 1, MPI_INT, other == ANYBODY ? MPI_ANY_SOURCE : peer, TAG, copy, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
