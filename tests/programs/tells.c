// MPI ranks that tell what they were started with, and end as they are asked to.
//
// Prints the arguments, $TELLS and the working directory, each as a line of its own.
//
// $TELLS_LINES   so many more lines, to stdout and to stderr, numbered
// $TELLS_STATUS  exit status
// $TELLS_EARLY   if set: ends with that status before MPI_Init

#include "common.h"

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

// Every rank passes here once.
__attribute__((noinline)) static void work_step(void) {
    exchange(0);
}

int main(int argc, char **argv) {
    if (getenv("TELLS_EARLY")) {
        return (int)number("TELLS_EARLY");
    }
    start_mpi(&argc, &argv);
    char directory[4096] = "";
    CHECK(getcwd(directory, sizeof directory) != NULL, "getcwd: %s", strerror(errno));
    for (int i = 1; i < argc; i++) {
        printf("rank %d: argument %d is <%s>\n", my_rank, i, argv[i]);
    }
    printf("rank %d: TELLS is <%s>\n", my_rank, getenv("TELLS") ? getenv("TELLS") : "(none)");
    printf("rank %d: in <%s>\n", my_rank, directory);
    work_step();
    for (long i = 0; i < number("TELLS_LINES"); i++) {
        printf("rank %d: line %06ld %s\n", my_rank, i, "of the output, some words to fill it up");
        fprintf(stderr, "rank %d: error %06ld\n", my_rank, i);
    }
    fflush(stdout);
    MPI_Finalize();
    return (int)number("TELLS_STATUS");
}
