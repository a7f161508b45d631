// MPI ranks whose memory lies elsewhere in each run, as behind an MPI that allocates by what comes
// first while it begins. Rank 1 crashes, some steps after it has changed a value for the last time.
//
// --when N   the step of that change; the value changed in each step before
// --steps N  the step in which rank 1 crashes

#include "common.h"

static long when = 20, steps = 20;
static volatile long *cells;

__attribute__((noinline)) static void change(void) {
    cells[0] = step;
}

int main(int argc, char **argv) {
    struct timespec now;
    parse_options(argc, argv,
                  (struct option_spec[]){{"--when", &when, NULL}, {"--steps", &steps, NULL}, {0}});
    clock_gettime(CLOCK_REALTIME, &now);
    void *before = malloc(64 * (size_t)(1 + now.tv_nsec / 64 % 1024));
    start_mpi(&argc, &argv);
    cells = malloc(2 * sizeof *cells);
    cells[0] = cells[1] = -1;
    for (step = 1;; step++) {
        exchange(0);
        if (step <= when) {
            change();
        }
        cells[1] = step;
        if (step == steps && my_rank == 1) {
            free(before);
            *(volatile int *)8 = 1;
        }
    }
}
