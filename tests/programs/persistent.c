// Requests that are started again and again, from senders that are open; and receives cancelled.

#include "jitter.h"

int main(int argc, char **argv) {
    int values[16] = {0}, mine = 0, out, indices[16];
    double time = 0;
    MPI_Request requests[16];
    MPI_Status statuses[16];
    start_jitter(argc, argv);
    int count = rank_count - 1;
    if (my_rank == 0) {
        for (int i = 0; i < count; i++) {
            MPI_Recv_init(&values[i], 1, MPI_INT, i % 2 ? i + 1 : MPI_ANY_SOURCE, i % 2 ? 3 : 4,
                          MPI_COMM_WORLD, &requests[i]);
        }
    } else {
        MPI_Send_init(&mine, 1, MPI_INT, 0, my_rank % 2 ? 4 : 3, MPI_COMM_WORLD, &requests[0]);
    }
    for (step = 0; step < rounds; step++) {
        if (my_rank) {
            mine = my_rank * 1000 + (int)step;
            ask();
            jitter();
            MPI_Start(&requests[0]);
            MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
            CHECK(requests[0] != MPI_REQUEST_NULL, "the persistent request is gone");
        } else {
            if (step % 2) {
                MPI_Startall(count, requests);
            } else {
                for (int i = 0; i < count; i++) {
                    MPI_Start(&requests[i]);
                }
            }
            ask();
            for (int left = count; left;) {
                MPI_Waitsome(count, requests, &out, indices, statuses);
                for (int i = 0; i < out; i++) {
                    int source = statuses[i].MPI_SOURCE;
                    CHECK(values[indices[i]] == source * 1000 + (int)step, "%d from rank %d",
                          values[indices[i]], source);
                    note(indices[i]);
                    note(source);
                }
                left -= out;
            }
            MPI_Request request;
            MPI_Status status;
            int cancelled, value;
            MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &request);
            MPI_Cancel(&request);
            MPI_Wait(&request, &status);
            MPI_Test_cancelled(&status, &cancelled);
            CHECK(cancelled, "what nobody sends has been received");
            time = MPI_Wtime();
            seen = fnv(seen, &time, sizeof time);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int i = 0; i < (my_rank ? 1 : count); i++) {
        MPI_Request_free(&requests[i]);
    }
    report_seen();
    return 0;
}
