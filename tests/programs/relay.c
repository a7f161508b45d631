// Messages whose way is known: a token goes round the ranks, and collects. What came last is in
// `token`, what goes out in `sent`; and a rank may then fall into a null pointer.

#include "common.h"

static long token, sent, rounds = 5, turns, crash = -1;
static volatile long alternate;
static volatile long *nowhere;

__attribute__((noinline)) static void send_on(int to) {
    sent = token + my_rank + 1;
    if (alternate) { // what a debugger may set: another call than the usual one
        MPI_Ssend(&sent, 1, MPI_LONG, to, 9, MPI_COMM_WORLD);
    } else {
        MPI_Send(&sent, 1, MPI_LONG, to, 9, MPI_COMM_WORLD);
    }
    turns++;
}

__attribute__((noinline)) static void receive_from(int from) {
    MPI_Recv(&token, 1, MPI_LONG, from, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    const struct option_spec options[] = {
        {"--rounds", &rounds, NULL}, {"--crash", &crash, NULL}, {NULL, NULL, NULL}};
    parse_options(argc, argv, options);
    start_mpi(&argc, &argv);
    int right = (my_rank + 1) % rank_count, left = (my_rank + rank_count - 1) % rank_count;
    for (step = 0; step < rounds; step++) {
        if (my_rank == 0) {
            send_on(right);
            receive_from(left);
        } else {
            receive_from(left);
            send_on(right);
        }
        if (my_rank == crash && step == rounds / 2) {
            *nowhere = 1;
        }
    }
    MPI_Finalize();
    if (my_rank == 0) {
        printf("%ld\n", token);
    }
    return 0;
}
