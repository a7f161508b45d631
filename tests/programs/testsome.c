// Many requests at once: which are complete, and how often none is, is taken into the result.

#include "jitter.h"

enum { WAYS = 7, MANY = 3 };

static int values[64];
static MPI_Request requests[64];
static MPI_Status statuses[64];

static NOINLINE void took(int index, const MPI_Status *status) {
    CHECK(index >= 0 && index < MANY * (rank_count - 1), "index %d", index);
    CHECK(values[index] == status->MPI_SOURCE * 1000 + status->MPI_TAG, "%d from rank %d, tag %d",
          values[index], status->MPI_SOURCE, status->MPI_TAG);
    note(index);
    note(status->MPI_SOURCE);
}

static void collect(int way, int count) {
    int index, flag, out, indices[64], left = count;
    while (left) {
        flag = 0;
        switch (way) {
        case 0:
            MPI_Waitany(count, requests, &index, statuses);
            took(index, statuses);
            left--;
            break;
        case 1:
            MPI_Testany(count, requests, &index, &flag, statuses);
            note(flag);
            if (flag) {
                took(index, statuses);
                left--;
            }
            break;
        case 2:
        case 3:
            if (way == 2) {
                MPI_Waitsome(count, requests, &out, indices, statuses);
            } else {
                MPI_Testsome(count, requests, &out, indices, statuses);
            }
            note(out);
            for (int i = 0; i < out; i++) {
                took(indices[i], &statuses[i]);
            }
            left -= out;
            break;
        case 4:
            for (index = 0; index < count; index++) {
                flag = 0;
                if (requests[index] != MPI_REQUEST_NULL) {
                    MPI_Test(&requests[index], &flag, statuses);
                    note(flag);
                }
                if (flag) {
                    took(index, statuses);
                    left--;
                }
            }
            break;
        case 5:
        case 6:
            if (way == 5) {
                MPI_Waitall(count, requests, statuses);
            } else {
                for (long no = 0; !flag; no++) {
                    MPI_Testall(count, requests, &flag, statuses);
                    note(no);
                }
            }
            for (index = 0; index < count; index++) {
                took(index, &statuses[index]);
            }
            left = 0;
            break;
        }
    }
    for (index = 0; index < count; index++) {
        CHECK(requests[index] == MPI_REQUEST_NULL, "request %d is still there", index);
    }
    MPI_Waitany(count, requests, &index, statuses);
    CHECK(index == MPI_UNDEFINED, "index %d of no request", index);
    MPI_Testsome(count, requests, &out, indices, MPI_STATUSES_IGNORE);
    CHECK(out == MPI_UNDEFINED, "%d of no requests", out);
}

int main(int argc, char **argv) {
    start_jitter(argc, argv);
    for (step = 0; step < rounds * WAYS; step++) {
        int count = MANY * (rank_count - 1);
        if (my_rank) {
            ask();
            for (int i = 0; i < MANY; i++) {
                int value = my_rank * 1000 + i;
                jitter();
                MPI_Send(&value, 1, MPI_INT, 0, i, MPI_COMM_WORLD);
            }
        } else {
            for (int i = 0; i < count; i++) {
                // every second round with senders that are open, the other with known ones
                int source = step / WAYS % 2 ? MPI_ANY_SOURCE : 1 + i / MANY;
                MPI_Irecv(&values[i], 1, MPI_INT, source, i % MANY, MPI_COMM_WORLD, &requests[i]);
            }
            ask();
            collect((int)step % WAYS, count);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    report_seen();
    return 0;
}
