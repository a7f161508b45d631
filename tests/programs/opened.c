// Rank 0 stops itself with receives posted for whoever comes, the others before they send: as when a
// checkpoint was taken there. Receives from known ranks are among them, and one is cancelled.

#include <dlfcn.h>

#include "../../crdebug/native/recorder/clock.h"
#include "jitter.h"

enum { OPEN = 4, KNOWN = 2 };

int main(int argc, char **argv) {
    int values[64], index, cancelled;
    MPI_Request requests[64], never;
    MPI_Status status;
    start_jitter(argc, argv);
    struct crdebug_clock *clock = dlsym(RTLD_DEFAULT, "crdebug_clock");
    int others = rank_count - 1, count = (OPEN + KNOWN) * others;
    MPI_Barrier(MPI_COMM_WORLD);
    if (my_rank) {
        if (clock) {
            clock->stop = clock->stop == CRDEBUG_NEVER ? clock->now : clock->stop;
        }
        for (int i = 0; i < OPEN + KNOWN; i++) {
            int value = my_rank * 1000 + i;
            jitter();
            MPI_Send(&value, 1, MPI_INT, 0, i < OPEN ? 7 : 9, MPI_COMM_WORLD);
        }
    } else {
        if (clock && clock->stop == CRDEBUG_NEVER) {
            clock->stop = clock->now + 2 * (uint64_t)count + 2;
        }
        MPI_Recv_init(&values[0], 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &requests[0]);
        MPI_Start(&requests[0]);
        for (int i = 1; i < count; i++) {
            int known = i % (OPEN + KNOWN) >= OPEN ? 1 + i / (OPEN + KNOWN) : MPI_ANY_SOURCE;
            MPI_Irecv(&values[i], 1, MPI_INT, known, known == MPI_ANY_SOURCE ? 7 : 9, MPI_COMM_WORLD,
                      &requests[i]);
        }
        for (step = 0; step < count; step++) {
            MPI_Waitany(count, requests, &index, &status);
            CHECK(values[index] / 1000 == status.MPI_SOURCE, "%d from rank %d", values[index],
                  status.MPI_SOURCE);
            note(index);
            note(values[index]);
        }
        MPI_Irecv(&values[0], 1, MPI_INT, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &never);
        MPI_Cancel(&never);
        MPI_Wait(&never, &status);
        MPI_Test_cancelled(&status, &cancelled);
        CHECK(cancelled, "what nobody sends has been received");
        CHECK(requests[0] != MPI_REQUEST_NULL, "the persistent request is gone");
        MPI_Request_free(&requests[0]);
    }
    report_seen();
    return 0;
}
