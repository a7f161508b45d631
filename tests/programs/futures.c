// A result that depends on a variable which a debugger may change, and on the order of messages.
// Rank 0 takes the others' messages as they come; all ranks carry the result on, and compare it.

#include "jitter.h"

static volatile long knob = 1;
static uint64_t total = FNV_START, order = FNV_START;

static NOINLINE void moment(void) { __asm__ volatile(""); }
static NOINLINE void finished(void) { __asm__ volatile(""); }
static NOINLINE long turn(long by) { return knob += by; }

static void collect(void) {
    for (int rank = 1; rank < rank_count; rank++) {
        long value = -1;
        MPI_Status status;
        MPI_Request request;
        if (step % 2) {
            MPI_Recv(&value, 1, MPI_LONG, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &status);
        } else {
            MPI_Irecv(&value, 1, MPI_LONG, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, &status);
        }
        CHECK(value == status.MPI_SOURCE * 1000 + step, "%ld from rank %d", value, status.MPI_SOURCE);
        order = fnv(order, &status.MPI_SOURCE, sizeof status.MPI_SOURCE);
    }
}

int main(int argc, char **argv) {
    start_jitter(argc, argv);
    for (step = 0; step < rounds; step++) {
        long value = my_rank * 1000 + step, sum = 0, mine = knob;
        if (my_rank) {
            jitter();
            MPI_Send(&value, 1, MPI_LONG, 0, 5, MPI_COMM_WORLD);
        } else {
            collect();
        }
        MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        total = fnv(total, &sum, sizeof sum);
        uint64_t theirs = total;
        MPI_Bcast(&theirs, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
        CHECK(theirs == total, "rank 0 has another total");
        moment();
    }
    finished();
    if (rounds < 0) {
        turn(0); // called by hand
    }
    report_seen();
    return 0;
}
