// Rank 0 reads lines from its standard input, one in each step, and all ranks are told of each.
//
// Rank 0 prints the line. One that begins with a number is added to `sum`, which each rank prints at
// the end of the input, or after a line with a dot.
//
// --first N   so many steps that read nothing come before
// --quiet 1   lines are not printed

#include "common.h"

static long sum;
static char last[256]; // the line of this step; "" where none is read

static __attribute__((noinline)) void work_step(void) {
    sum += strtol(last, NULL, 10);
    step++;
}

static bool read_line(void) {
    if (my_rank == 0 && fgets(last, sizeof last, stdin) == NULL) {
        last[0] = 0;
    }
    MPI_Bcast(last, sizeof last, MPI_CHAR, 0, MPI_COMM_WORLD);
    return last[0] != 0 && last[0] != '.';
}

int main(int argc, char **argv) {
    long first = 0, quiet = 0;
    struct option_spec options[] = {
        {"--first", &first, NULL}, {"--quiet", &quiet, NULL}, {NULL, NULL, NULL}};
    parse_options(argc, argv, options);
    start_mpi(&argc, &argv);
    for (long i = 0; i < first; i++) {
        exchange((uint64_t)step);
        work_step();
    }
    for (long count = 0; read_line(); count++) {
        if (my_rank == 0 && !quiet) {
            printf("line %ld: %s%s", count, last, strchr(last, '\n') ? "" : "<\n");
            fflush(stdout);
        }
        work_step();
    }
    char text[64];
    snprintf(text, sizeof text, "sum %ld, steps %ld", sum, step);
    report(text);
    MPI_Finalize();
    return 0;
}
