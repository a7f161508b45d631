// MPI ranks whose loops OpenMP shares among two threads, and that go on alone between two MPI calls;
// to be compiled with -fopenmp.
//
// What the threads compute depends only on the index, so that it is the same in each run.

#include "common.h"

enum { COUNT = 2000 };

#define NOINLINE __attribute__((noinline))

static long rounds = 100, total;
static long values[COUNT];
static uint64_t seen = FNV_START;

static NOINLINE void note(long value) { seen = fnv(seen, &value, sizeof value); }

static NOINLINE void work_step(void) {
#pragma omp parallel for num_threads(2) schedule(static)
    for (int i = 0; i < COUNT; i++) {
        values[i] = values[i] * 3 + i + step;
    }
}

static NOINLINE long sum_up(void) {
    long sum = 0;
#pragma omp parallel for num_threads(2) schedule(static) reduction(+ : sum)
    for (int i = 0; i < COUNT; i++) {
        sum += values[i] % 1000;
    }
    return sum;
}

// By one thread.
static NOINLINE long digits(long value) {
    long sum = 0;
    while (value) {
        sum += value % 10;
        value /= 10;
    }
    return sum;
}

int main(int argc, char **argv) {
    parse_options(argc, argv, (struct option_spec[]){{"--rounds", &rounds, NULL}, {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    for (step = 0; step < rounds; step++) {
        work_step();
        long mine = sum_up();
        MPI_Allreduce(&mine, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        CHECK(total == mine * rank_count, "the sum is %ld, not %ld", total, mine * rank_count);
        note(total);
        long sum = digits(total);
        note(sum);
        MPI_Barrier(MPI_COMM_WORLD);
        sum += digits(sum);
        note(sum);
    }
    char line[64];
    snprintf(line, sizeof line, "%016" PRIx64, seen);
    report(line);
    MPI_Finalize();
    return 0;
}
