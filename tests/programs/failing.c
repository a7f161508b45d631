// Calls that fail, with MPI_ERRORS_RETURN: rank 1 sends more than rank 0 has room for, in several ways;
// with --fit 1 it does not. What they return, rank 0 prints.

#include "common.h"

enum { TAG = 7 };

static void told(const char *call, int rc) {
    int class = MPI_SUCCESS;
    if (rc != MPI_SUCCESS) MPI_Error_class(rc, &class);
    printf("%s: %s\n", call,
           class == MPI_SUCCESS         ? "right"
           : class == MPI_ERR_TRUNCATE  ? "truncated"
           : class == MPI_ERR_RANK      ? "no such rank"
           : class == MPI_ERR_IN_STATUS ? "in status"
                                        : "another error");
}

// Where nothing fails, MPI may leave MPI_ERROR as it is.
static void receive_two(void) {
    int one = 0, mine = 4321;
    MPI_Status both[2] = {{.MPI_ERROR = mine}, {.MPI_ERROR = mine}};
    MPI_Request two[2];
    for (int i = 0; i < 2; i++) MPI_Irecv(&one, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &two[i]);
    told("MPI_Waitall", MPI_Waitall(2, two, both));
    for (int i = 0; i < 2; i++) told("status", both[i].MPI_ERROR == mine ? MPI_SUCCESS : both[i].MPI_ERROR);
}

static void receive(void) {
    int one = 0, flag = 0;
    MPI_Status status;
    MPI_Request request;
    told("MPI_Send", MPI_Send(&one, 1, MPI_INT, 99, TAG, MPI_COMM_WORLD));
    told("MPI_Irecv", MPI_Irecv(&one, 1, MPI_INT, 99, TAG, MPI_COMM_WORLD, &request));
    told("MPI_Recv", MPI_Recv(&one, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &status));
    printf("from %d\n", status.MPI_SOURCE);
    told("MPI_Recv", MPI_Recv(&one, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD, &status));
    MPI_Irecv(&one, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &request);
    told("MPI_Wait", MPI_Wait(&request, &status));
    MPI_Irecv(&one, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &request);
    int rc = MPI_SUCCESS;
    while (rc == MPI_SUCCESS && !flag) rc = MPI_Test(&request, &flag, &status);
    told("MPI_Test", rc);
    receive_two();
    receive_two(); // which fit
}

int main(int argc, char **argv) {
    long fit = 0;
    int two[2] = {1, 2};
    const struct option_spec options[] = {{"--fit", &fit, NULL}, {NULL, NULL, NULL}};
    parse_options(argc, argv, options);
    start_mpi(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (my_rank == 0) {
        receive();
    } else {
        for (int i = 0; i < 8; i++) MPI_Send(two, i > 5 || (i && fit) ? 1 : 2, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
