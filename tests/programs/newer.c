// What MPI-4 adds: exchanges that are posted, persistent collectives, partitioned messages; each round
// checks what came, and notes what MPI left open. It needs an MPI that has them.

#include "jitter.h"

enum { MOST = 8, LARGE = 40000, EXCHANGED = 11, ANYBODYS, REPLACED, AHEAD, STARTED, DIVIDED };

// To everybody and from anybody, large ones too; which came when is noted. Each is complete when both
// halves are.
static void exchanges(void) {
    static int out[MOST][LARGE], in[MOST][LARGE];
    MPI_Request requests[MOST];
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
            MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE);
        } else {
            do MPI_Testany(count, requests, &index, &flag, MPI_STATUS_IGNORE);
            while (!flag);
        }
        // What came says where from: these MPIs leave the status empty.
        int source = (in[index][0] - (int)step) / 1000;
        CHECK(source >= 0 && source < rank_count && source != my_rank, "%d came", in[index][0]);
        for (int k = 0; k < (step % 2 ? LARGE : 1); k++)
            CHECK(in[index][k] == source * 1000 + (int)step + k, "%d from rank %d", in[index][k], source);
        note(index);
        note(source);
        left--;
    }
    int value = my_rank, right = (my_rank + 1) % rank_count;
    MPI_Isendrecv_replace(&value, 1, MPI_INT, right, REPLACED, MPI_ANY_SOURCE, REPLACED, MPI_COMM_WORLD,
                          &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    CHECK((value + 1) % rank_count == my_rank, "%d came", value);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Request last;
    MPI_Isend(&my_rank, 1, MPI_INT, right, AHEAD, MPI_COMM_WORLD, &last);
    MPI_Wait(&first, MPI_STATUS_IGNORE);
    MPI_Wait(&last, MPI_STATUS_IGNORE);
    CHECK(ahead == (my_rank + rank_count - 1) % rank_count, "%d came", ahead);
}

// Started by each rank in another order, together with a message.
static MPI_Request prepared[6];
static int given, sum, told, around[2], part[MOST], all[MOST], counts[MOST], places[MOST];
static MPI_Comm ring;
static MPI_Status statuses[6]; // gcc warns of the ignored ones of MPICH

static void prepare_collectives(void) {
    int periodic = 1, right = (my_rank + 1) % rank_count, left = (my_rank + rank_count - 1) % rank_count;
    for (int i = 0; i < rank_count; i++) {
        counts[i] = 1;
        places[i] = i;
    }
    MPI_Allreduce_init(&given, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &prepared[0]);
    MPI_Bcast_init(&told, 1, MPI_INT, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &prepared[1]);
    MPI_Allgatherv_init(&given, 1, MPI_INT, all, counts, places, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL,
                        &prepared[2]);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &rank_count, &periodic, 0, &ring);
    MPI_Neighbor_allgather_init(&given, 1, MPI_INT, around, 1, MPI_INT, ring, MPI_INFO_NULL, &prepared[3]);
    MPI_Send_init(&given, 1, MPI_INT, right, STARTED, MPI_COMM_WORLD, &prepared[4]);
    MPI_Recv_init(part, 1, MPI_INT, left, STARTED, MPI_COMM_WORLD, &prepared[5]);
}

static void collectives(void) {
    int left = (my_rank + rank_count - 1) % rank_count, right = (my_rank + 1) % rank_count, flag, tries = 0;
    given = my_rank + (int)step;
    told = my_rank == 1 ? (int)step : -1;
    if (step % 2) {
        MPI_Startall(6, prepared);
    } else {
        for (int i = 0; i < 6; i++) {
            jitter();
            MPI_Start(&prepared[(i + my_rank) % 6]);
        }
    }
    // Not MPI_Waitany: MPICH's tells of the same collective again and again.
    if (step % 3) {
        for (int i = 0; i < 6; i++) {
            for (flag = 0; !flag; tries++) MPI_Test(&prepared[i], &flag, MPI_STATUS_IGNORE);
            note(tries);
        }
    } else {
        MPI_Waitall(6, prepared, statuses);
    }
    CHECK(sum == rank_count * (int)step + rank_count * (rank_count - 1) / 2, "the sum is %d", sum);
    CHECK(told == step, "told %d", told);
    for (int i = 0; i < rank_count; i++) CHECK(all[i] == i + step, "%d from rank %d", all[i], i);
    CHECK(around[0] == left + step && around[1] == right + step, "%d and %d", around[0], around[1]);
    CHECK(part[0] == left + step, "%d came", part[0]);
}

// Two messages to the right with one tag, whose partitions are ready one after the other.
enum { SENT = 4, RECEIVED = 2, LENGTH = 8 };
#ifdef OPEN_MPI
// Open MPI 5.0 asks only for the first of the sender's partitions that make up one of the receiver's
// (ompi/mca/part/persist/part_persist.h, mca_part_persist_parrived), so no others need be there.
enum { ARRIVED = LENGTH };
#else
enum { ARRIVED = LENGTH * SENT / RECEIVED };
#endif
static MPI_Request sends[2], receives[2];
static int goes[2][SENT * LENGTH], comes[2][SENT * LENGTH];

static void prepare_partitions(void) {
    int right = (my_rank + 1) % rank_count, left = (my_rank + rank_count - 1) % rank_count;
    for (int i = 0; i < 2; i++) {
        MPI_Psend_init(goes[i], SENT, LENGTH, MPI_INT, right, DIVIDED, MPI_COMM_WORLD, MPI_INFO_NULL, &sends[i]);
        MPI_Precv_init(comes[i], RECEIVED, LENGTH * SENT / RECEIVED, MPI_INT, left, DIVIDED, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &receives[i]);
    }
}

static void partitions(void) {
    int left = (my_rank + rank_count - 1) % rank_count, flag = 0, tries = 0, last[] = {3};
    MPI_Start(&receives[1]);
    MPI_Start(&receives[0]);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < SENT * LENGTH; k++) goes[i][k] = my_rank * 1000 + 100 * i + (int)step + k;
        MPI_Start(&sends[i]);
        MPI_Pready(2, sends[i]);
        jitter();
        MPI_Pready_range(0, 1, sends[i]);
        MPI_Pready_list(1, last, sends[i]);
    }
    for (flag = 0; !flag; tries++) MPI_Parrived(receives[0], 0, &flag);
    for (int k = 0; k < ARRIVED; k++)
        CHECK(comes[0][k] == left * 1000 + (int)step + k, "%d came", comes[0][k]);
    note(tries);
    MPI_Wait(&sends[0], MPI_STATUS_IGNORE);
    MPI_Waitall(2, receives, statuses);
    MPI_Wait(&sends[1], MPI_STATUS_IGNORE);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < SENT * LENGTH; k++)
            CHECK(comes[i][k] == left * 1000 + 100 * i + (int)step + k, "%d came", comes[i][k]);
}

static void free_all(void) {
    for (int i = 0; i < 6; i++) MPI_Request_free(&prepared[i]);
    for (int i = 0; i < 2; i++) {
        MPI_Request_free(&sends[i]);
        MPI_Request_free(&receives[i]);
    }
    MPI_Comm_free(&ring);
}

int main(int argc, char **argv) {
    start_jitter(argc, argv);
    CHECK(rank_count > 1 && rank_count <= MOST, "wanted: two to %d ranks", MOST);
    prepare_collectives();
    prepare_partitions();
    for (step = 0; step < rounds; step++) {
        exchanges();
        collectives();
        partitions();
    }
    free_all();
    report_seen();
    return 0;
}
