/* advect: a wave carried along a line of cells, split over the ranks, with a flux limiter.
 *
 * It has a real bug of a common kind. It goes wrong on one rank, after a long time, and is noticed on
 * another one: `limiter` divides by a difference that is zero where the wave is flat, and nothing is
 * flat until the wave, which grows, reaches the top of a weir half-way. The NaN that comes of it is
 * passed on from neighbour to neighbour; the master, which only adds up, is the one that complains.
 *
 *   advect [STEPS] [STEPS-UNTIL-THE-WAVE-IS-FULLY-GROWN] [MICROSECONDS-OF-REST-IN-A-STEP]
 *
 * Exit status 3: the total is not a number. See trace.crdebug for how to find the line. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CELLS = 64, HALO = 2, TO_RIGHT = 1, TO_LEFT = 2, REPORT = 3 };

static double u[CELLS + 2 * HALO], next_u[CELLS + 2 * HALO];
static int rank, size;
static double total, theirs; /* of the master's: the sum, and what was received last */

/* How steep the wave is behind a cell, compared with before it; van Leer's limiter. */
static double limiter(const double *cell) {
    double behind = cell[0] - cell[-1];
    double before = cell[1] - cell[0];
    double ratio = behind / before; /* the bug: 0 / 0 where the wave is flat */
    return (ratio + fabs(ratio)) / (1.0 + fabs(ratio));
}

static double flux(const double *cell) {
    const double courant = 0.4;
    double before = cell[1] - cell[0];
    double correction = cell[0] == 0.0 ? 0.0 : limiter(cell) * before; /* nothing there yet */
    return courant * (cell[0] + 0.5 * (1.0 - courant) * correction);
}

static void exchange(void) {
    int left = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int right = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    MPI_Request requests[4];
    MPI_Irecv(u, HALO, MPI_DOUBLE, left, TO_RIGHT, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(u + HALO + CELLS, HALO, MPI_DOUBLE, right, TO_LEFT, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(u + CELLS, HALO, MPI_DOUBLE, right, TO_RIGHT, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(u + HALO, HALO, MPI_DOUBLE, left, TO_LEFT, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

/* Where the wave is higher than the weir, it is level on top of it. */
static void overflow(void) {
    const double top = 1.14;
    if (u[HALO + 20] <= top) return;
    for (int i = HALO + 20; i < HALO + 24; i++) u[i] = top;
}

static void advance(int step, int grown) {
    if (rank == 0) { /* what flows in at the left end */
        double height = step < grown ? 0.3 * step / grown : 0.3;
        u[0] = u[1] = 1.0 + height * sin(0.05 * step);
    }
    for (int i = HALO; i < CELLS + HALO; i++)
        next_u[i] = u[i] - flux(&u[i]) + flux(&u[i - 1]);
    for (int i = HALO; i < CELLS + HALO; i++) u[i] = next_u[i];
    if (rank == size / 2) overflow();
}

/* The master adds up what the ranks have, in the order in which they are ready. */
static void report(void) {
    double own = 0.0;
    for (int i = HALO; i < CELLS + HALO; i++) own += u[i];
    if (rank != 0) {
        MPI_Send(&own, 1, MPI_DOUBLE, 0, REPORT, MPI_COMM_WORLD);
        return;
    }
    total = own;
    for (int n = 1; n < size; n++) {
        MPI_Status status;
        MPI_Recv(&theirs, 1, MPI_DOUBLE, MPI_ANY_SOURCE, REPORT, MPI_COMM_WORLD, &status);
        total += theirs;
    }
}

static void complain(int step) {
    printf("step %d: the total is %g\n", step, total);
    fflush(stdout);
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 4000;
    int grown = argc > 2 ? atoi(argv[2]) : 3000;
    long rest = argc > 3 ? atol(argv[3]) : 0;
    int bad = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int step = 0; step < steps && !bad; step++) {
        exchange();
        advance(step, grown);
        if (rest) nanosleep(&(struct timespec){.tv_nsec = rest * 1000}, NULL);
        if (step % 50 == 49) {
            report();
            bad = rank == 0 && isnan(total);
            MPI_Bcast(&bad, 1, MPI_INT, 0, MPI_COMM_WORLD);
            if (bad && rank == 0) complain(step);
        }
    }
    MPI_Finalize();
    if (rank == 0 && !bad) printf("total %.15g\n", total);
    return bad ? 3 : 0;
}
