// MPI ranks of which one does what a sanitizer finds; the others wait for it in a barrier.
//
// --rank N        which one; -1: none
// --how HOW       heap (a write behind the end of an array), overflow (of a signed integer), or race
//                 (between two threads)
// --steps N       barriers before that

#include "common.h"

static long rank = 1, steps = 10;
static const char *how = "heap";
static int shared;

static void *add(void *unused) {
    shared++;
    return unused;
}

__attribute__((noinline)) static void do_wrong(void) {
    if (strcmp(how, "heap") == 0) {
        volatile char *array = malloc(40);
        array[40 + step - step] = 1;
        free((void *)array);
    } else if (strcmp(how, "overflow") == 0) {
        volatile int most = INT32_MAX;
        most = most + 1;
    } else {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, add, NULL) == 0, "no thread");
        add(NULL);
        pthread_join(thread, NULL);
    }
}

int main(int argc, char **argv) {
    parse_options(argc, argv,
                  (struct option_spec[]){{"--rank", &rank, NULL},
                                         {"--how", NULL, &how},
                                         {"--steps", &steps, NULL},
                                         {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    for (step = 1; step <= steps; step++) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (my_rank == rank) {
        do_wrong();
    }
    report("went on");
    MPI_Finalize();
    return 0;
}
