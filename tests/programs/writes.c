// MPI ranks with threads, each of which writes a value of its own once in each step.

#include "common.h"

enum { THREADS = 2 };
static volatile long values[1 + THREADS];
static pthread_barrier_t begins, ends;

static void *writes(void *own) {
    for (;;) {
        pthread_barrier_wait(&begins);
        *(volatile long *)own = step;
        pthread_barrier_wait(&ends);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    start_mpi(&argc, &argv);
    pthread_barrier_init(&begins, NULL, 1 + THREADS);
    pthread_barrier_init(&ends, NULL, 1 + THREADS);
    for (int i = 0; i < THREADS; i++) {
        CHECK(!pthread_create(&threads[i], NULL, writes, (void *)&values[1 + i]), "no thread");
    }
    for (step = 1;; step++) {
        exchange(0);
        pthread_barrier_wait(&begins);
        values[0] = step;
        pthread_barrier_wait(&ends);
    }
}
