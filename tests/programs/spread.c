// Four ranks in a 2x2 grid, each with its block of one array: a field that is rank 0's upper left
// corner on, with a halo of one element around. Rank 2's halo on its right is wrong.
//
// All stop in `here`, rank 3 by another way than the others, each with a second thread that waits.

#include "common.h"

#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <semaphore.h>

enum { ROWS = 4, COLUMNS = 6, HALO = 2 };

double block[ROWS + HALO][COLUMNS + HALO];
float row[COLUMNS];
double *flat;
int rank, size, same = 7, odd, *only;
double value;
unsigned char small[3] = {1, 2, 255};
long counts[5];

static sem_t ready, done;

__attribute__((noinline)) static void *helper(void *unused) {
    (void)unused;
    sem_post(&ready);
    while (sem_wait(&done) != 0) {
    }
    return NULL;
}

__attribute__((noinline)) static void here(void) {
    __asm__ volatile("");
}

__attribute__((noinline)) static void usual(void) {
    here();
    __asm__ volatile("");
}

__attribute__((noinline)) static void unusual(void) {
    here();
    __asm__ volatile("");
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    sem_init(&ready, 0, 0);
    sem_init(&done, 0, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, helper, NULL);
    while (sem_wait(&ready) != 0) {
    }

    int above = rank / 2 * ROWS, left = rank % 2 * COLUMNS;
    for (int i = 0; i < ROWS + HALO; i++) {
        for (int j = 0; j < COLUMNS + HALO; j++) {
            block[i][j] = above + i + 0.5 * (left + j);
        }
    }
    if (rank == 2) {
        for (int i = 0; i < ROWS + HALO; i++) {
            block[i][COLUMNS + HALO - 1] = -50;
        }
        block[0][0] = NAN;
    }
    flat = &block[0][0];
    for (int i = 0; i < COLUMNS; i++) {
        row[i] = (float)(0.25 * i * rank);
    }
    for (int i = 0; i < 5; i++) {
        counts[i] = i * i;
    }
    odd = rank == 1 ? 8 : 7;
    value = rank == 0 ? NAN : 1.5 * rank;
    only = rank == 3 ? NULL : &same;

    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 3) {
        unusual();
    } else {
        usual();
    }
    sem_post(&done);
    pthread_join(thread, NULL);
    MPI_Finalize();
    return 0;
}
