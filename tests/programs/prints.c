// Ranks that write between their MPI calls, to standard output and to a file (log.RANK), call a
// function of their own inside an MPI call, and send themselves a signal.
//
// --rounds N   (6)

#include "common.h"

volatile long total;

static void on_signal(int number) {
    total += number == SIGUSR1 ? 1000 : 0;
}

__attribute__((noinline)) static void work(long value) {
    total += value;
}

static void add_up(void *in, void *into, int *count, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *count; i++) {
        ((long *)into)[i] += ((long *)in)[i];
    }
}

__attribute__((noinline)) static void after_parts(void) {
    total += 0;
}

int main(int argc, char **argv) {
    long rounds = 6;
    char name[32];
    MPI_Op sum_of;
    parse_options(argc, argv, (struct option_spec[]){{"--rounds", &rounds, NULL}, {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    MPI_Op_create(add_up, 1, &sum_of);
    CHECK(signal(SIGUSR1, on_signal) != SIG_ERR, "signal: %s", strerror(errno));
    snprintf(name, sizeof name, "log.%d", my_rank);
    FILE *log = fopen(name, "w");
    CHECK(log != NULL, "%s: %s", name, strerror(errno));
    for (step = 0; step < rounds; step++) {
        long mine = step + my_rank, sum = 0;
        for (int part = 0; part < 2; part++) {
            work(mine);
            printf("rank %d, step %ld.%d: %ld\n", my_rank, step, part, total);
            fflush(stdout);
            fprintf(log, "step %ld.%d: %ld\n", step, part, total);
            fflush(log);
        }
        after_parts();
        if (step == 3 && my_rank == 0) {
            raise(SIGUSR1);
        }
        MPI_Allreduce(&mine, &sum, 1, MPI_LONG, sum_of, MPI_COMM_WORLD);
        work(sum);
    }
    fclose(log);
    MPI_Op_free(&sum_of);
    MPI_Finalize();
    return 0;
}
