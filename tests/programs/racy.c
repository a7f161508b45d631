// Two threads in each rank count together, with a lock or without; the main thread alone calls MPI.
//
// --steps N      between which all ranks meet
// --mode WORD    clean: with a lock.  global, local, heap: what the threads of rank 1 count in
//                without one, a global variable, one of main's, or memory from malloc.
//                garbage: as clean; a function that calls MPI does not initialise its variables
// --rounds N     of each thread, in a step
//
// What is counted changes no message.

#include "common.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long steps = 8, rounds = 3000000;
static const char *mode = "clean";
volatile long total;
volatile long right_total;

struct work {
    volatile long *count;
    int locked;
};

static void *counts(void *argument) {
    struct work *work = argument;
    for (long i = 0; i < rounds; i++) {
        if (work->locked) pthread_mutex_lock(&lock);
        *work->count += 1;
        if (work->locked) pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* Rank 0 tests for messages that come at some time: what MPI leaves on the stack for the next call of this
 * function, and for the functions that are bound meanwhile, is another each time. */
static __attribute__((noinline)) int takes_turns(void) {
    enum { MOST = 64 };
    int found[MOST], statuses[MOST], all[MOST], flag = 0, value = my_rank;
    struct {
        double numbers[MOST];
    } row[4];
    MPI_Request request;
    __asm__ volatile("" : : "r"(found), "r"(statuses), "r"(all), "r"(row) : "memory");
    if (my_rank) {
        usleep((useconds_t)(rand() % 1500));
        MPI_Send(&value, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
    } else {
        for (int other = 1; other < rank_count; other++, flag = 0) {
            MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &request);
            while (!flag) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return value;
}

int main(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--steps")) steps = atol(argv[i + 1]);
        if (!strcmp(argv[i], "--rounds")) rounds = atol(argv[i + 1]);
        if (!strcmp(argv[i], "--mode")) mode = argv[i + 1];
    }
    volatile long counted = 0;
    double *field = calloc(1000, sizeof *field);
    volatile long *many = calloc(10, sizeof *many);
    start_mpi(&argc, &argv);
    volatile long *where = !strcmp(mode, "local") ? &counted : !strcmp(mode, "heap") ? many : &total;
    for (step = 0; step < steps; step++) {
        int clean = !strcmp(mode, "clean") || !strcmp(mode, "garbage");
        struct work work = {where, my_rank != 1 || clean};
        if (!strcmp(mode, "garbage")) takes_turns();
        pthread_t other;
        CHECK(pthread_create(&other, NULL, counts, &work) == 0, "no thread");
        counts(&work);
        pthread_join(other, NULL);
        right_total += 2 * rounds;
        field[step % 1000] = (double)my_rank + (double)step / 7;
        double sum;
        MPI_Allreduce(&field[step % 1000], &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        field[(step + 1) % 1000] = sum;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (my_rank == 0) printf("done\n");
    MPI_Finalize();
    free(field);
    free((void *)many);
    return 0;
}
