// What was made in the beginning is used to the end: communicators, a type, an operation, a window,
// persistent requests, and in each rank a receive from anybody that stays open until the last step.

#include "common.h"

enum { AROUND = 1, ANYBODYS, LAST };

static MPI_Comm everybody, half;
static MPI_Datatype pair;
static MPI_Op sum;
static MPI_Win window;
static MPI_Request around[2], anybodys, last;
static int out[2], in[2], came = -1, stop = -1, memory;

static void add(void *from, void *to, int *length, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < 2 * *length; i++) ((int *)to)[i] += ((int *)from)[i];
}

static void prepare(void) {
    int left = (my_rank + rank_count - 1) % rank_count, right = (my_rank + 1) % rank_count;
    MPI_Comm_dup(MPI_COMM_WORLD, &everybody);
    MPI_Comm_split(MPI_COMM_WORLD, my_rank % 2, 0, &half);
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    MPI_Op_create(add, 1, &sum);
    MPI_Win_create(&memory, sizeof memory, 1, MPI_INFO_NULL, everybody, &window);
    MPI_Send_init(out, 1, pair, right, AROUND, everybody, &around[0]);
    MPI_Recv_init(in, 1, pair, left, AROUND, everybody, &around[1]);
    MPI_Recv_init(&came, 1, MPI_INT, MPI_ANY_SOURCE, ANYBODYS, MPI_COMM_WORLD, &anybodys);
    MPI_Irecv(&stop, 1, MPI_INT, MPI_ANY_SOURCE, LAST, MPI_COMM_WORLD, &last);
}

static __attribute__((noinline)) void one_step(void) {
    int mine[2] = {my_rank, (int)step}, all[2], flag, members;
    MPI_Status status;
    out[0] = my_rank;
    out[1] = (int)step;
    MPI_Startall(2, around);
    MPI_Waitall(2, around, MPI_STATUSES_IGNORE);
    CHECK(in[0] == (my_rank + rank_count - 1) % rank_count && in[1] == step, "%d from %d", in[1], in[0]);
    if (my_rank == 0) {
        for (int i = 1; i < rank_count; i++) {
            MPI_Start(&anybodys);
            MPI_Wait(&anybodys, &status);
            CHECK(came == status.MPI_SOURCE * 1000000 + step, "%d from %d", came, status.MPI_SOURCE);
        }
    } else {
        int value = my_rank * 1000000 + (int)step;
        MPI_Send(&value, 1, MPI_INT, 0, ANYBODYS, MPI_COMM_WORLD);
    }
    MPI_Allreduce(mine, all, 1, pair, sum, half);
    MPI_Comm_size(half, &members);
    CHECK(all[1] == members * step, "the sum is %d", all[1]);
    MPI_Test(&last, &flag, MPI_STATUS_IGNORE);
    CHECK(!flag, "the last message came in step %ld", step);
    if (step % 10 == 0) {
        MPI_Win_fence(0, window);
        MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
    }
}

static __attribute__((noinline)) void now_and_then(void) { __asm__ volatile(""); }

int main(int argc, char **argv) {
    long steps = 1000;
    const struct option_spec options[] = {{"--steps", &steps, NULL}, {NULL, NULL, NULL}};
    parse_options(argc, argv, options);
    start_mpi(&argc, &argv);
    prepare();
    for (step = 0; step < steps; step++) {
        if (step % 60 == 0) now_and_then();
        one_step();
    }
    MPI_Barrier(MPI_COMM_WORLD); // nobody still tests for it
    if (my_rank == 0)
        for (int rank = 0; rank < rank_count; rank++) MPI_Send(&rank, 1, MPI_INT, rank, LAST, MPI_COMM_WORLD);
    MPI_Wait(&last, MPI_STATUS_IGNORE);
    CHECK(stop == my_rank, "%d was sent", stop);
    MPI_Request_free(&around[0]);
    MPI_Request_free(&around[1]);
    MPI_Request_free(&anybodys);
    MPI_Win_free(&window);
    MPI_Comm_free(&half);
    MPI_Comm_free(&everybody);
    MPI_Type_free(&pair);
    MPI_Op_free(&sum);
    if (my_rank == 0) printf("done\n");
    MPI_Finalize();
    return 0;
}
