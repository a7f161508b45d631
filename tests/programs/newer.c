// What MPI-4 adds: exchanges that are posted, persistent collectives, partitioned messages; each round
// checks what came, and notes what MPI left open. It needs an MPI that has them.

#include "jitter.h"

enum { MOST = 8, LARGE = 40000, EXCHANGED = 11, ANYBODYS, REPLACED, AHEAD };

// To everybody and from anybody, large ones too; which came when is noted. Each is complete when both
// halves are.
static void exchanges(void) {
    static int out[MOST][LARGE], in[MOST][LARGE];
    MPI_Request requests[MOST];
    MPI_Status status;
    int count = rank_count - 1, index, flag, ahead = -1;
    MPI_Request first;
    // A receive that is open, and behind it those whose senders are known.
    MPI_Irecv(&ahead, 1, MPI_INT, MPI_ANY_SOURCE, AHEAD, MPI_COMM_WORLD, &first);
    for (int i = 0; i < count; i++) {
        int to = (my_rank + i + 1) % rank_count, from = (my_rank - i - 1 + rank_count) % rank_count;
        int length = step % 2 ? LARGE : 1;
        for (int k = 0; k < length; k++) out[i][k] = my_rank * 1000 + (int)step + k;
        jitter();
        int tag = i ? ANYBODYS : EXCHANGED, source = i ? MPI_ANY_SOURCE : from;
        MPI_Isendrecv(out[i], length, MPI_INT, to, tag, in[i], LARGE, MPI_INT, source, tag, MPI_COMM_WORLD,
                      &requests[i]);
    }
    for (int left = count; left;) {
        if (step % 3) {
            MPI_Waitany(count, requests, &index, &status);
        } else {
            do MPI_Testany(count, requests, &index, &flag, &status);
            while (!flag);
        }
        int source = status.MPI_SOURCE, length;
        MPI_Get_count(&status, MPI_INT, &length);
        CHECK(length == (step % 2 ? LARGE : 1), "%d came", length);
        for (int k = 0; k < length; k++)
            CHECK(in[index][k] == source * 1000 + (int)step + k, "%d from rank %d", in[index][k], source);
        note(index);
        note(source);
        left--;
    }
    int value = my_rank, right = (my_rank + 1) % rank_count;
    MPI_Isendrecv_replace(&value, 1, MPI_INT, right, REPLACED, MPI_ANY_SOURCE, REPLACED, MPI_COMM_WORLD,
                          &requests[0]);
    MPI_Wait(&requests[0], &status);
    CHECK(value == status.MPI_SOURCE && right == (my_rank + 1) % rank_count, "%d came", value);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Request last;
    MPI_Isend(&my_rank, 1, MPI_INT, right, AHEAD, MPI_COMM_WORLD, &last);
    MPI_Wait(&first, MPI_STATUS_IGNORE);
    MPI_Wait(&last, MPI_STATUS_IGNORE);
    CHECK(ahead == (my_rank + rank_count - 1) % rank_count, "%d came", ahead);
}

int main(int argc, char **argv) {
    start_jitter(argc, argv);
    CHECK(rank_count > 1 && rank_count <= MOST, "wanted: two to %d ranks", MOST);
    for (step = 0; step < rounds; step++) {
        exchanges();
    }
    report_seen();
    return 0;
}
