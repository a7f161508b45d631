/* Connections between all ranks of a job over hosts that begins under a debugger, made in MPI_Init.
 *
 * MPIs make one when two ranks first talk. Nothing from before that could be put back (a snapshot cannot
 * take a socket away), and so hardly anything of a short program. Open MPI has a parameter for the
 * same (mpi_preconnect_mpi), MPICH has none.
 *
 * All ranks have to do so: crdebug has seen that the shim is in each of them, and this layer comes with it.
 * Without a debugger nobody looks, and a rank without the layer would leave the others waiting. */
#include <stdlib.h>

#include "pmpi.h"

#define MOST 128 /* ranks: beyond, their connections would cost more than they are worth */
#define ROUNDS 2 /* the second one is answered by what the first one has begun */

void connect_all(void) {
    int rank, world;
    if (getenv(CRDEBUG_CONNECT_VARIABLE) == NULL) return;
    PMPI_Comm_rank(mpi.world, &rank);
    PMPI_Comm_size(mpi.world, &world);
    if (world > MOST) return;
    /* Whoever returns from here has received all that is meant for it: no receive of the program's can
     * get any of it. */
    for (int away = 1; away < ROUNDS * world; away++) {
        int to = (rank + away) % world, from = (rank + ROUNDS * world - away) % world;
        PMPI_Sendrecv(NULL, 0, mpi.packed, to, 0, NULL, 0, mpi.packed, from, 0, mpi.world,
                      MPI_STATUS_IGNORE);
    }
}
