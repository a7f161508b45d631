// MPI ranks whose values are changed by what comes from elsewhere: messages, a collective, a window, a
// file. Each is written once, and later overwritten by nobody.
//
// --file PATH   what rank 0 reads from

#include "common.h"

#include <fcntl.h>

enum { LARGE = 1 << 17 };  // of doubles: no MPI copies that through a buffer of its own at once
static double received[LARGE], awaited[LARGE], spread[LARGE];
static long small, from_file;
static volatile long *shared, *window;

// So much is done that the change lies behind some calls, and is not in the last piece.
static void go_on(int count) {
    for (int i = 0; i < count; i++) {
        step++;
        exchange(0);
    }
}

__attribute__((noinline)) static void after(void) {
    __asm__ volatile("");
}

__attribute__((noinline)) static void writes_shared(void) {
    shared[0] = 77;
}

static void fill(double *values, double first) {
    for (int i = 0; i < LARGE; i++) {
        values[i] = first + i;
    }
}

int main(int argc, char **argv) {
    const char *path = "/dev/zero";
    parse_options(argc, argv, (struct option_spec[]){{"--file", NULL, &path}, {0}});
    int file = open(path, O_RDONLY);
    start_mpi(&argc, &argv);
    MPI_Win shared_window, open_window;
    MPI_Aint size;
    int unit;
    MPI_Win_allocate_shared(my_rank ? 0 : 4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, (void *)&shared,
                            &shared_window);
    MPI_Win_shared_query(shared_window, 0, &size, &unit, (void *)&shared);
    MPI_Win_allocate(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, (void *)&window, &open_window);
    if (my_rank == 0) {
        shared[0] = window[0] = 1;
    }
    MPI_Win_fence(0, open_window);
    go_on(3);
    double *values = malloc(sizeof received);
    fill(values, 100.0 * my_rank);
    if (my_rank == 1) {
        MPI_Send(values, LARGE, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
        long number = 17;
        MPI_Send(&number, 1, MPI_LONG, 0, 2, MPI_COMM_WORLD);
        MPI_Recv(&number, 1, MPI_LONG, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(values, LARGE, MPI_DOUBLE, 0, 3, MPI_COMM_WORLD);
    } else if (my_rank == 0) {
        MPI_Request request;
        MPI_Recv(received, LARGE, MPI_DOUBLE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(&small, 1, MPI_LONG, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Irecv(awaited, LARGE, MPI_DOUBLE, 1, 3, MPI_COMM_WORLD, &request);
        MPI_Send(&small, 1, MPI_LONG, 1, 4, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    go_on(2);
    if (my_rank == 2) {
        fill(spread, 200);
    }
    MPI_Bcast(spread, LARGE, MPI_DOUBLE, 2, MPI_COMM_WORLD);
    go_on(2);
    if (my_rank == 1) {
        long number = 42;
        MPI_Put(&number, 1, MPI_LONG, 0, 0, 1, MPI_LONG, open_window);
    }
    MPI_Win_fence(0, open_window);
    go_on(2);
    if (my_rank == 2) {
        writes_shared();
    }
    go_on(2);
    if (my_rank == 0) {
        CHECK(read(file, &from_file, sizeof from_file) == sizeof from_file, "%s", path);
    }
    go_on(3);
    after();
    MPI_Win_free(&open_window);
    MPI_Win_free(&shared_window);
    MPI_Finalize();
    return 0;
}
