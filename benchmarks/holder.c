/* Holds memory that it has written, and tells when it was stopped: for bench_snapshot.py.

   holder MIB KIND SECONDS: KIND is small for pages of 4 KiB, huge for those of 2 MiB. It looks at
   the clock all the time, and in the end prints each gap of more than GAP nanoseconds, which do not
   count for SECONDS: from, to, in nanoseconds of CLOCK_MONOTONIC. Small pages are written all the while, one of each ten in a
   second; huge ones are not, for the kernel splits one that it has to copy. */

#define _GNU_SOURCE

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

enum { PAGE = 4096, HUGE_PAGE = 2 << 20, GAP = 1000000, MOST = 100000 };

static struct gap {
    int64_t from, to;
} gaps[MOST];

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

int main(int argc, char **argv) {
#ifdef WITH_MPI
    MPI_Init(&argc, &argv);
#endif
    if (argc != 4) {
        fprintf(stderr, "usage: holder MIB small|huge SECONDS\n");
        return 2;
    }
    size_t size = strtoul(argv[1], NULL, 10) << 20;
    int huge = strcmp(argv[2], "huge") == 0;
    int64_t lasts = strtol(argv[3], NULL, 10) * INT64_C(1000000000);
    char *memory = aligned_alloc(HUGE_PAGE, size);
    if (!memory || madvise(memory, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0) {
        perror("holder");
        return 1;
    }
    for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
        *(uint64_t *)(memory + at) = at ^ 0x9e3779b97f4a7c15u;
    }
    memset(gaps, 1, sizeof gaps); /* its pages are there */
    printf("ready\n");
    fflush(stdout);

    size_t count = 0, page = 0;
    int64_t begun = now(), before = begun, portion = begun;
    while (before - begun < lasts) {
        int64_t here = now();
        if (here - before > GAP && count < MOST) {
            gaps[count++] = (struct gap){before, here};
            begun += here - before;
        }
        before = here;
        if (here - portion > 1000000) {
            portion = here;
#ifdef WITH_MPI
            MPI_Barrier(MPI_COMM_WORLD); /* so that no two places are the same */
#endif
            for (size_t i = 0; !huge && i < size / PAGE / 10000 + 1; i++) {
                page = (page + 10) % (size / PAGE);
                memory[page * PAGE]++;
            }
        }
    }
    for (size_t i = 0; i < count; i++) {
        printf("gap %lld %lld\n", (long long)gaps[i].from, (long long)gaps[i].to);
    }
    fflush(stdout);
#ifdef WITH_MPI
    MPI_Finalize();
#endif
    return 0;
}
