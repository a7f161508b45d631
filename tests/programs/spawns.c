// One rank spawns as many as there are, and sends them numbers; each tells the last.

#include <mpi.h>
#include <stdio.h>

static volatile int number;

int main(int argc, char **argv) {
    MPI_Comm parent, others;
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    others = parent;
    if (parent == MPI_COMM_NULL) {
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, size, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &others,
                       MPI_ERRCODES_IGNORE);
    }
    for (int i = 0; i < 20; i++) {
        int sent = i;
        int root = parent != MPI_COMM_NULL ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
        MPI_Bcast(&sent, 1, MPI_INT, root, others);
        number = sent;
    }
    printf("%s %d: %d\n", parent == MPI_COMM_NULL ? "parent" : "child", rank, number);
    MPI_Comm_disconnect(&others);
    MPI_Finalize();
    return 0;
}
