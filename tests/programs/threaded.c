// Calls MPI from a second thread, one thread at a time.

#include "common.h"

static void *second(void *unused) {
    MPI_Barrier(MPI_COMM_WORLD);
    return unused;
}

int main(int argc, char **argv) {
    int provided;
    pthread_t thread;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    CHECK(provided == MPI_THREAD_MULTIPLE, "the MPI has no MPI_THREAD_MULTIPLE");
    MPI_Barrier(MPI_COMM_WORLD);
    pthread_create(&thread, NULL, second, NULL);
    pthread_join(thread, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    puts("done");
    MPI_Finalize();
    return 0;
}
