// Rank 0 has a file of one of its threads open in steps 1 to 3, as pthread_setname_np has it for a
// moment. There are five steps.

#include <fcntl.h>
#include <sys/syscall.h>

#include "common.h"

static volatile pid_t named;
static volatile long steps = 5;

static void *wait_for_ever(void *nothing) {
    named = (pid_t)syscall(SYS_gettid);
    for (;;) pause();
    return nothing;
}

__attribute__((noinline)) static void work_step(void) { __asm__ volatile(""); }

int main(int argc, char **argv) {
    char path[64];
    pthread_t thread;
    int file = -1;
    start_mpi(&argc, &argv);
    pthread_create(&thread, NULL, wait_for_ever, NULL);
    while (!named) usleep(100);
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", (int)named);
    for (step = 1; step <= steps; step++) {
        if (my_rank == 0 && step == 1) file = open(path, O_RDWR | O_CLOEXEC);
        CHECK(my_rank != 0 || file >= 0, "%s: %s", path, strerror(errno));
        if (my_rank == 0 && step == 4) CHECK(close(file) == 0, "%s", strerror(errno));
        work_step();
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (my_rank == 0) puts("named");
    MPI_Finalize();
    return 0;
}
