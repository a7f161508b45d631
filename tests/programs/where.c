// MPI ranks that say on which host they are: rank 0 prints `rank R: HOST` for each. Then they wait.
//
// --fifo PATH     a byte for each rank, written into it, lets them end; without it they end at once

#include "common.h"

#include <fcntl.h>

int main(int argc, char **argv) {
    const char *path = NULL;
    const struct option_spec options[] = {{"--fifo", NULL, &path}, {NULL, NULL, NULL}};
    parse_options(argc, argv, options);
    start_mpi(&argc, &argv);
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    exchange((uint64_t)my_rank);
    report(host);
    if (path != NULL) {
        char byte;
        int fifo = open(path, O_RDWR);
        CHECK(fifo >= 0, "%s: %s", path, strerror(errno));
        CHECK(read(fifo, &byte, 1) == 1, "read: %s", strerror(errno));
    }
    exchange((uint64_t)my_rank);
    MPI_Finalize();
    return 0;
}
