// Rank 0 receives from whoever comes first, in every way in which MPI lets it.

#include "jitter.h"

enum { WAYS = 13, TAG = 5 };

static NOINLINE void took(int value, const MPI_Status *status) {
    CHECK(value == status->MPI_SOURCE * 1000 + (int)step, "%d from rank %d", value, status->MPI_SOURCE);
    CHECK(status->MPI_TAG == TAG + (int)step % 3, "tag %d", status->MPI_TAG);
    note(status->MPI_SOURCE);
}

static void receive_one(int way) {
    int value = -1, flag = 0, tag = way % 2 ? MPI_ANY_TAG : TAG + (int)step % 3;
    MPI_Status status;
    MPI_Request request;
    MPI_Message message;
    switch (way) {
    case 0:
    case 1:
        MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status);
        break;
    case 2:
        MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, &status);
        CHECK(request == MPI_REQUEST_NULL, "the request is still there");
        break;
    case 3:
        MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &request);
        for (long no = 0; !flag; no++) {
            MPI_Test(&request, &flag, &status);
            note(no);
        }
        CHECK(request == MPI_REQUEST_NULL, "the request is still there");
        break;
    case 4:
    case 5:
        MPI_Probe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status);
        MPI_Recv(&value, 1, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
        break;
    case 6:
    case 7:
        for (long no = 0; !flag; no++) {
            MPI_Iprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &flag, &status);
            note(no);
        }
        MPI_Recv(&value, 1, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
        break;
    case 8:
        MPI_Mprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
        MPI_Mrecv(&value, 1, MPI_INT, &message, &status);
        break;
    case 9:
        while (!flag) {
            MPI_Improbe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &flag, &message, &status);
            note(flag);
        }
        MPI_Imrecv(&value, 1, MPI_INT, &message, &request);
        MPI_Wait(&request, &status);
        break;
    case 10:
        MPI_Sendrecv(&value, 1, MPI_INT, 0, 99, &flag, 1, MPI_INT, 0, 99, MPI_COMM_WORLD, &status);
        CHECK(flag == -1, "rank 0 got %d from itself", flag);
        MPI_Sendrecv(&flag, 1, MPI_INT, MPI_PROC_NULL, 98, &value, 1, MPI_INT, MPI_ANY_SOURCE, tag,
                     MPI_COMM_WORLD, &status);
        break;
    case 11:
        MPI_Sendrecv_replace(&value, 1, MPI_INT, MPI_PROC_NULL, 98, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD,
                             &status);
        break;
    case 12:
        MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &request);
        for (long no = 0; !flag; no++) {
            MPI_Request_get_status(request, &flag, &status);
            note(no);
        }
        CHECK(request != MPI_REQUEST_NULL, "the request is gone");
        MPI_Wait(&request, &status);
        break;
    }
    took(value, &status);
}

int main(int argc, char **argv) {
    start_jitter(argc, argv);
    for (step = 0; step < rounds * WAYS; step++) {
        if (my_rank) {
            int value = my_rank * 1000 + (int)step;
            jitter();
            MPI_Send(&value, 1, MPI_INT, 0, TAG + (int)step % 3, MPI_COMM_WORLD);
        } else {
            for (int rank = 1; rank < rank_count; rank++) {
                receive_one((int)step % WAYS);
            }
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    report_seen();
    return 0;
}
