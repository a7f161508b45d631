/* Writes all of its memory over and over, and tells how long that took: for bench_continue.py.

   writer MIB PASSES: MiB of each rank, and how often it writes all of them. */

#define _GNU_SOURCE

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PAGE = 4096, WORDS = PAGE / sizeof(uint64_t) };

/* Every page of it is another one after each pass. */
static void write_all(uint64_t *memory, size_t pages, uint64_t pass) {
    for (size_t page = 0; page < pages; page++) {
        uint64_t value = pass * 0x9e3779b97f4a7c15u + page;
        for (size_t word = 0; word < WORDS; word++) {
            memory[page * WORDS + word] = value + word;
        }
    }
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 3) {
        fprintf(stderr, "usage: writer MIB PASSES\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    size_t pages = strtoul(argv[1], NULL, 10) * (1 << 20) / PAGE;
    uint64_t *memory = aligned_alloc(PAGE, pages * PAGE);
    if (!memory) {
        fprintf(stderr, "writer: not enough memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    write_all(memory, pages, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    struct timespec begun, done;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (uint64_t pass = 1; pass <= strtoul(argv[2], NULL, 10); pass++) {
        write_all(memory, pages, pass);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    clock_gettime(CLOCK_MONOTONIC, &done);
    if (rank == 0) {
        double seconds = (double)(done.tv_sec - begun.tv_sec);
        printf("seconds %.3f\n", seconds + 1e-9 * (double)(done.tv_nsec - begun.tv_nsec));
    }
    free(memory);
    MPI_Finalize();
    return 0;
}
