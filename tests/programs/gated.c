// MPI ranks that wait until a debugger lets them go on (`set var go = 1` in each). Then a token goes
// round them, and they add up what each made of it, a fixed number of times.

#include "common.h"

enum { WIDE = 8 };

static volatile int go;
static long token, total, rounds = 3;
static double row[WIDE];

__attribute__((noinline)) static void wait_here(void) {
    while (!go) usleep(1000);
}

__attribute__((noinline)) static void pass(int from, int to) {
    if (my_rank != 0) MPI_Recv(&token, 1, MPI_LONG, from, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    token += my_rank;
    MPI_Send(&token, 1, MPI_LONG, to, 9, MPI_COMM_WORLD);
    if (my_rank == 0) MPI_Recv(&token, 1, MPI_LONG, from, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

__attribute__((noinline)) static void add_up(void) {
    for (int i = 0; i < WIDE; i++) row[i] = (double)(my_rank * i + step);
    MPI_Allreduce(&token, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    const struct option_spec options[] = {{"--rounds", &rounds, NULL}, {NULL, NULL, NULL}};
    parse_options(argc, argv, options);
    start_mpi(&argc, &argv);
    report("waits");
    wait_here();
    for (step = 0; step < rounds; step++) {
        pass((my_rank + rank_count - 1) % rank_count, (my_rank + 1) % rank_count);
        add_up();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
