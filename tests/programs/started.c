// Requests that are started together and end one by one; receives that are cancelled; messages that are
// taken by matched probes and received in another order. Both ranks do the same.

#include "common.h"

enum { TOGETHER = 7 };

static void started_together(int other) {
    int in[3], out = my_rank, index;
    MPI_Request requests[TOGETHER];
    MPI_Recv_init(&in[0], 1, MPI_INT, other, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(&in[1], 1, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Recv_init(&in[2], 1, MPI_INT, other, 3, MPI_COMM_WORLD, &requests[2]);
    MPI_Ssend_init(&out, 1, MPI_INT, other, 1, MPI_COMM_WORLD, &requests[3]);
    MPI_Send_init(&out, 1, MPI_INT, other, 2, MPI_COMM_WORLD, &requests[4]);
    MPI_Send_init(&out, 1, MPI_INT, other, 3, MPI_COMM_WORLD, &requests[5]);
    MPI_Send_init(&out, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &requests[6]);
    for (step = 0; step < 2; step++) {
        MPI_Startall(TOGETHER, requests);
        // MPICH never tells of the one to MPI_PROC_NULL: it has none left then, too.
        do {
            MPI_Waitany(TOGETHER, requests, &index, MPI_STATUS_IGNORE);
        } while (index != MPI_UNDEFINED);
    }
    CHECK(in[0] == other && in[1] == other && in[2] == other, "%d %d %d came", in[0], in[1], in[2]);
    for (int i = 0; i < TOGETHER; i++) MPI_Request_free(&requests[i]);
}

static void cancelled(MPI_Request *request) {
    MPI_Status status;
    int flag;
    MPI_Cancel(request);
    MPI_Wait(request, &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag, "what nobody has sent was received");
}

static void cancelled_receives(int other) {
    int in, out = my_rank;
    MPI_Request request, again;
    MPI_Irecv(&in, 1, MPI_INT, other, 4, MPI_COMM_WORLD, &request);
    cancelled(&request);
    MPI_Recv_init(&in, 1, MPI_INT, other, 4, MPI_COMM_WORLD, &again);
    MPI_Start(&again);
    cancelled(&again);
    MPI_Startall(1, &again);
    cancelled(&again);
    MPI_Request_free(&again);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Isend(&out, 1, MPI_INT, other, 4, MPI_COMM_WORLD, &request);
    MPI_Recv(&in, 1, MPI_INT, other, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(in == other, "%d came", in);
}

// Nobody asks how these ended; but the message goes where MPI says.
static void cancelled_and_freed(int other) {
    int in = -1, out = my_rank, flag;
    MPI_Request request, again;
    MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Request_free(&request);
    MPI_Recv_init(&in, 1, MPI_INT, other, 6, MPI_COMM_WORLD, &again);
    MPI_Startall(1, &again);
    MPI_Cancel(&again);
    MPI_Request_free(&again);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Isend(&out, 1, MPI_INT, other, 6, MPI_COMM_WORLD, &again);
    MPI_Irecv(&in, 1, MPI_INT, other, 6, MPI_COMM_WORLD, &request);
    do MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
    while (!flag);
    MPI_Cancel(&request); // too late
    MPI_Request_free(&request);
    MPI_Wait(&again, MPI_STATUS_IGNORE);
    CHECK(in == other, "%d came", in);
}

static void matched_probes(void) {
    int in[2], out[2] = {1, 2};
    MPI_Comm reversed;
    MPI_Message first, second;
    MPI_Request sends[2], request;
    MPI_Status statuses[2];
    MPI_Comm_split(MPI_COMM_WORLD, 0, -my_rank, &reversed);
    int other = my_rank; /* the ranks are the other way round there */
    MPI_Isend(&out[0], 1, MPI_INT, other, 5, reversed, &sends[0]);
    MPI_Isend(&out[1], 1, MPI_INT, other, 5, reversed, &sends[1]);
    MPI_Mprobe(other, 5, reversed, &first, MPI_STATUS_IGNORE);
    MPI_Mprobe(MPI_ANY_SOURCE, 5, reversed, &second, MPI_STATUS_IGNORE);
    MPI_Imrecv(&in[1], 1, MPI_INT, &second, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Mrecv(&in[0], 1, MPI_INT, &first, MPI_STATUS_IGNORE);
    MPI_Waitall(2, sends, statuses); // gcc warns of the ignored ones of MPICH
    CHECK(in[0] == 1 && in[1] == 2, "%d and %d came", in[0], in[1]);
    MPI_Mprobe(MPI_PROC_NULL, 5, reversed, &first, MPI_STATUS_IGNORE);
    MPI_Mrecv(&in[0], 1, MPI_INT, &first, MPI_STATUS_IGNORE);
    MPI_Comm_free(&reversed);
}

int main(int argc, char **argv) {
    start_mpi(&argc, &argv);
    CHECK(rank_count == 2, "wanted: two ranks");
    started_together(1 - my_rank);
    cancelled_receives(1 - my_rank);
    cancelled_and_freed(1 - my_rank);
    matched_probes();
    if (my_rank == 0) puts("done");
    MPI_Finalize();
    return 0;
}
