// Rank 0 stops itself between posting a receive and waiting for it, as crdebug would stop it.

#include <dlfcn.h>

#include "../../crdebug/native/recorder/clock.h"
#include "common.h"

int main(int argc, char **argv) {
    long mib = 4;
    const struct option_spec options[] = {{"--mib", &mib, NULL}, {NULL, NULL, NULL}};
    parse_options(argc, argv, options);
    start_mpi(&argc, &argv);
    struct crdebug_clock *clock = dlsym(RTLD_DEFAULT, "crdebug_clock");
    CHECK(clock && rank_count == 2, "wanted: the layer and two ranks");
    size_t size = (size_t)mib << 20;
    char *data = malloc(size);
    memset(data, my_rank + 1, size);
    MPI_Barrier(MPI_COMM_WORLD);
    if (my_rank == 0) {
        MPI_Request request;
        clock->stop = 6;
        MPI_Irecv(data, (int)size, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(data[0] == 2 && data[size - 1] == 2, "the message is wrong");
        puts("received");
    } else {
        MPI_Ssend(data, (int)size, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
        MPI_Wtime();
    }
    MPI_Finalize();
    return 0;
}
