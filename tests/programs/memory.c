// MPI ranks with much memory of their own, all of it written; for benchmarks and long runs.
//
// --mib N         MiB of each rank
// --touch N       pages that a step changes
// --steps N       steps
// --delay-us N    pause after each step

#include "common.h"

static long steps = 100, delay_us, mib = 16, touch = 16;

enum { PAGE = 4096 };

static uint64_t *memory;
static size_t pages;

static const struct lcg map = {UINT64_C(2862933555777941757), UINT64_C(3037000493)};

// Word `index` of the memory before the first step: no page is zero, and no two are equal, so that
// neither the kernel nor a checkpoint tool can leave one out.
static void fill(void) {
    uint64_t value = (uint64_t)my_rank + 1;
    for (size_t index = 0; index < pages * (PAGE / sizeof *memory); index++) {
        value = map.factor * value + map.term;
        memory[index] = value;
    }
}

static uint64_t checksum(void) {
    uint64_t hash = FNV_START;
    for (size_t index = 0; index < pages * (PAGE / sizeof *memory); index++) {
        hash = (hash ^ memory[index]) * UINT64_C(1099511628211);
    }
    return hash;
}

// Every rank passes here once in each step.
__attribute__((noinline)) static void work_step(void) {
    uint64_t received = exchange(memory[0]);
    for (long i = 0; i < touch; i++) {
        size_t page = (size_t)(step * touch + i) % pages;
        uint64_t *word = memory + page * (PAGE / sizeof *memory);
        *word = map.factor * (*word ^ received) + map.term;
    }
}

int main(int argc, char **argv) {
    parse_options(argc, argv,
                  (struct option_spec[]){{"--mib", &mib, NULL},
                                         {"--touch", &touch, NULL},
                                         {"--steps", &steps, NULL},
                                         {"--delay-us", &delay_us, NULL},
                                         {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    pages = (size_t)mib * 1024 * 1024 / PAGE;
    memory = pages ? aligned_alloc(PAGE, pages * PAGE) : NULL;
    CHECK(memory, "no memory of %ld MiB", mib);
    fill();
    for (step = 1; step <= steps; step++) {
        work_step();
        pause_us(delay_us);
    }
    char line[96];
    snprintf(line, sizeof line, "steps %ld memory %016" PRIx64, step - 1, checksum());
    report(line);
    free(memory);
    MPI_Finalize();
    return 0;
}
