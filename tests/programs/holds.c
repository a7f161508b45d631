// Requests and communicators of each kind, held where rank 0 comes to `here`; it takes 3 ranks.

#include "common.h"

#define WORLD MPI_COMM_WORLD
enum { LARGE = 1 << 20 };

__attribute__((noinline)) static void here(int value) { step = value; }

int main(int argc, char **argv) {
    int small[4] = {0}, token = 0;
    char *large = calloc(2, LARGE);
    MPI_Request requests[8];
    MPI_Comm odd, copy;
    start_mpi(&argc, &argv);
    MPI_Comm_split(WORLD, my_rank % 2, -my_rank, &odd);
    MPI_Comm_dup(WORLD, &copy);
    for (int i = 0; i < 8; i++) requests[i] = MPI_REQUEST_NULL;
    if (my_rank == 0) {
        MPI_Irecv(&small[0], 1, MPI_INT, 1, 5, WORLD, &requests[0]);
        MPI_Irecv(&small[1], 1, MPI_INT, MPI_ANY_SOURCE, 6, WORLD, &requests[1]);
        MPI_Irecv(&small[2], 1, MPI_INT, 2, 7, WORLD, &requests[2]);
        MPI_Isend(large, LARGE, MPI_CHAR, 2, 8, WORLD, &requests[3]);
        MPI_Recv_init(&small[3], 1, MPI_INT, 1, 9, WORLD, &requests[4]);
        MPI_Ibarrier(WORLD, &requests[5]);
    }
    if (my_rank == 2) MPI_Send(&token, 1, MPI_INT, 0, 7, WORLD);
    for (int i = 0; i < 3; i++) {  // the MPI may give one request for all of them
        MPI_Request sent[2];
        MPI_Isend(&token, 1, MPI_INT, my_rank, 10, WORLD, &sent[0]);
        MPI_Isend(&token, 1, MPI_INT, my_rank, 10, WORLD, &sent[1]);
        MPI_Recv(&small[3], 1, MPI_INT, my_rank, 10, WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(&small[3], 1, MPI_INT, my_rank, 10, WORLD, MPI_STATUS_IGNORE);
        MPI_Waitall(2, sent, MPI_STATUSES_IGNORE);
    }
    MPI_Barrier(copy);
    MPI_Comm_free(&copy);
    if (my_rank == 0) {
        here(1);
        for (int rank = 1; rank < 3; rank++) MPI_Send(&token, 1, MPI_INT, rank, 11, WORLD);
    } else {
        MPI_Recv(&token, 1, MPI_INT, 0, 11, WORLD, MPI_STATUS_IGNORE);
    }
    if (my_rank > 0) {
        MPI_Send(&token, 1, MPI_INT, 0, my_rank == 1 ? 5 : 6, WORLD);
        MPI_Ibarrier(WORLD, &requests[5]);
    }
    if (my_rank == 2) MPI_Recv(large + LARGE, LARGE, MPI_CHAR, 0, 8, WORLD, MPI_STATUS_IGNORE);
    if (my_rank == 0) MPI_Request_free(&requests[4]);
    MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
    if (my_rank == 0) here(2);
    MPI_Comm_free(&odd);
    free(large);
    MPI_Finalize();
    return 0;
}
