// Every collective and many communicators, with results that are checked.

#include "jitter.h"

static void all_of_them(MPI_Comm comm) {
    int rank, size, sum = 0, mine, all[64], given[64];
    MPI_Request request;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    mine = rank + 1 + (int)step;
    int total = size * (size + 1) / 2 + size * (int)step;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == total, "allreduce: %d", sum);
    sum = mine;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == total, "allreduce in place: %d", sum);
    MPI_Reduce(&mine, &sum, 1, MPI_INT, MPI_SUM, size - 1, comm);
    CHECK(rank < size - 1 || sum == total, "reduce: %d", sum);
    sum = mine;
    MPI_Bcast(&sum, 1, MPI_INT, 0, comm);
    CHECK(sum == 1 + step, "bcast: %d", sum);
    MPI_Gather(&mine, 1, MPI_INT, all, 1, MPI_INT, 0, comm);
    CHECK(rank || all[size - 1] == size + (int)step, "gather: %d", all[size - 1]);
    if (rank == 0) {
        MPI_Scatter(all, 1, MPI_INT, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, 0, comm);
    } else {
        MPI_Scatter(NULL, 0, MPI_DATATYPE_NULL, &sum, 1, MPI_INT, 0, comm);
        CHECK(sum == mine, "scatter: %d", sum);
    }
    MPI_Allgather(&mine, 1, MPI_INT, all, 1, MPI_INT, comm);
    CHECK(all[0] == 1 + step, "allgather: %d", all[0]);
    for (int i = 0; i < size; i++) {
        given[i] = 100 * rank + i;
    }
    MPI_Alltoall(given, 1, MPI_INT, all, 1, MPI_INT, comm);
    CHECK(all[size - 1] == 100 * (size - 1) + rank, "alltoall: %d", all[size - 1]);
    MPI_Scan(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(rank < size - 1 || sum == total, "scan: %d", sum);
    MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(sum == total, "iallreduce: %d", sum);
    MPI_Ibarrier(comm, &request);
    for (int flag = 0; !flag;) {
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(comm);
}

int main(int argc, char **argv) {
    MPI_Comm half, twin, reversed, later, bridge, merged, alone;
    MPI_Group group, evens;
    MPI_Request request;
    start_jitter(argc, argv);
    for (step = 0; step < rounds; step++) {
        int side = my_rank * 2 >= rank_count, sum, flag;
        all_of_them(MPI_COMM_WORLD);
        MPI_Comm_split(MPI_COMM_WORLD, side, 0, &half);
        all_of_them(half);
        MPI_Comm_dup(half, &twin);
        MPI_Comm_split(MPI_COMM_WORLD, 0, -my_rank, &reversed);
        all_of_them(reversed);
        MPI_Comm_idup(MPI_COMM_WORLD, &later, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        all_of_them(later);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, side ? 0 : (rank_count + 1) / 2, 5, &bridge);
        int there, opposite;
        MPI_Comm_rank(half, &opposite);
        MPI_Comm_remote_size(bridge, &there);
        sum = my_rank;
        if (opposite < there) {
            MPI_Sendrecv_replace(&sum, 1, MPI_INT, opposite, 3, opposite, 3, bridge, MPI_STATUS_IGNORE);
            CHECK((sum * 2 >= rank_count) == !side, "%d from the other side", sum);
        }
        MPI_Intercomm_merge(bridge, side, &merged);
        all_of_them(merged);
        MPI_Comm_group(MPI_COMM_WORLD, &group);
        int range[1][3] = {{0, rank_count - 1, 2}};
        MPI_Group_range_incl(group, 1, range, &evens);
        MPI_Comm_create(MPI_COMM_WORLD, evens, &alone);
        CHECK((alone == MPI_COMM_NULL) == my_rank % 2, "a communicator of the wrong ranks");
        if (alone != MPI_COMM_NULL) {
            all_of_them(alone);
            MPI_Comm_free(&alone);
        }
        MPI_Group_free(&group);
        MPI_Group_free(&evens);
        MPI_Comm_test_inter(bridge, &flag);
        CHECK(flag, "no intercommunicator");
        MPI_Comm_free(&merged);
        MPI_Comm_free(&bridge);
        MPI_Comm_free(&later);
        MPI_Comm_free(&reversed);
        MPI_Comm_free(&twin);
        MPI_Comm_free(&half);
    }
    report_seen();
    return 0;
}
