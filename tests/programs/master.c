// A master gives tasks to whichever worker is idle: who does what depends on the time it takes.

#include "jitter.h"

enum { TASK = 1, RESULT, STOP };

static void give(long task, int worker) { MPI_Send(&task, 1, MPI_LONG, worker, TASK, MPI_COMM_WORLD); }

static void lead(long tasks) {
    long given = 0, result, end = 0;
    uint64_t sum = 0;
    MPI_Status status;
    for (int worker = 1; worker < rank_count; worker++) {
        give(given++, worker);
    }
    for (step = 0; step < tasks; step++) {
        MPI_Recv(&result, 1, MPI_LONG, MPI_ANY_SOURCE, RESULT, MPI_COMM_WORLD, &status);
        note(status.MPI_SOURCE);
        note(result);
        sum += (uint64_t)result;
        if (given < tasks) {
            give(given++, status.MPI_SOURCE);
        }
    }
    CHECK(sum == (uint64_t)(tasks * (tasks - 1)), "the sum of all results is %" PRIu64, sum);
    for (int worker = 1; worker < rank_count; worker++) {
        MPI_Send(&end, 1, MPI_LONG, worker, STOP, MPI_COMM_WORLD);
    }
}

static void work(void) {
    long task;
    MPI_Status status;
    for (;; step++) {
        MPI_Recv(&task, 1, MPI_LONG, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        if (status.MPI_TAG == STOP) {
            return;
        }
        note(task);
        jitter();
        task *= 2;
        MPI_Send(&task, 1, MPI_LONG, 0, RESULT, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv) {
    start_jitter(argc, argv);
    if (my_rank == 0) {
        lead(rounds * rank_count);
    } else {
        work();
    }
    report_seen();
    return 0;
}
