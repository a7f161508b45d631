// Rank 0 takes two messages in each way that asks what has come; they are from rank 1, then rank 2. With
// --skip WAY rank 1 sends none in that way, and rank 2 both; or, where the receive is posted before, rank 1
// sends it once there is a file --wait-for. So it ends its access at last. Prints who came first.

#include "common.h"

enum { WAYS = 6, TAG = 5, NEXT = 6 };

static long skip = -1;
static const char *wait_for;

static void wait_until_told(void) {
    while (wait_for && access(wait_for, F_OK)) pause_us(1000);
}

// Inside the call that the test cuts, if the record says that it found something.
static void take(int way, int *value, MPI_Status *status) {
    MPI_Request request;
    MPI_Message message;
    int flag = 0;
    switch (way) {
    case 0: MPI_Probe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, status); break;
    case 1:
        while (!flag) MPI_Iprobe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &flag, status);
        break;
    case 2: MPI_Mprobe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &message, status); break;
    case 3:
        while (!flag) MPI_Improbe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &flag, &message, status);
        break;
    default: MPI_Irecv(value, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &request);
    }
    switch (way) {
    case 0:
    case 1: MPI_Recv(value, 1, MPI_INT, status->MPI_SOURCE, TAG, MPI_COMM_WORLD, status); return;
    case 2:
    case 3: MPI_Mrecv(value, 1, MPI_INT, &message, status); return;
    }
    while (!flag && way == 4) MPI_Testall(1, &request, &flag, status);
    while (!flag && way == 5) MPI_Request_get_status(request, &flag, status);
    if (way == 5) MPI_Wait(&request, status);
}

static void round_of(int way) {
    int first = 0, value = 0;
    MPI_Status status;
    switch (my_rank) {
    case 0:
        take(way, &value, &status);
        first = status.MPI_SOURCE;
        MPI_Send(&value, 1, MPI_INT, 2, NEXT, MPI_COMM_WORLD);
        take(way, &value, &status);
        printf("way %d: %d came first\n", way, first);
        break;
    case 1:
        if (way == skip && way >= 4) wait_until_told();
        if (way != skip || way >= 4) MPI_Send(&my_rank, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
        break;
    case 2:
        if (way == skip && way < 4) MPI_Send(&my_rank, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
        MPI_Recv(&value, 1, MPI_INT, 0, NEXT, MPI_COMM_WORLD, &status);
        MPI_Send(&my_rank, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void expose(void) {
    MPI_Win win;
    MPI_Group all, other;
    int one = 1 - my_rank, flag = 0;
    MPI_Win_create(NULL, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    if (my_rank < 2) MPI_Group_incl(all, 1, &one, &other);
    if (my_rank == 0) {
        MPI_Win_post(other, 0, win);
        while (!flag) MPI_Win_test(win, &flag);
    } else if (my_rank == 1) {
        MPI_Win_start(other, 0, win);
        wait_until_told();
        MPI_Win_complete(win);
    }
    MPI_Win_free(&win);
}

int main(int argc, char **argv) {
    const struct option_spec options[] = {
        {"--skip", &skip, NULL}, {"--wait-for", NULL, &wait_for}, {NULL, NULL, NULL}};
    parse_options(argc, argv, options);
    start_mpi(&argc, &argv);
    CHECK(rank_count == 3, "wanted: three ranks");
    for (step = 0; step < WAYS; step++) {
        round_of((int)step);
    }
    expose();
    MPI_Finalize();
    return 0;
}
