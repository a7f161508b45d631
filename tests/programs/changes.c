// Ranks that become what they were not: another program, or two processes; and two programs in one
// job (-DWORKER is the other one).
//
//   changes                    work_step, then the program's own step
//   changes fork               the same; in between a child calls work_step and ends with 7
//   changes exec PROGRAM ...   becomes that after a work_step, before MPI

#include "common.h"

#include <sys/wait.h>

static __attribute__((noinline)) void work_step(void) { step++; }

#ifdef WORKER
#define NAME "worker"
static __attribute__((noinline)) void worker_step(void) { step += 100; }
#define own_step worker_step
#else
#define NAME "main"
static __attribute__((noinline)) void main_step(void) { step += 10; }
#define own_step main_step
#endif

static int status_of_child(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        work_step();
        _exit(step == 2 ? 7 : 1);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child, "no child");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "exec") == 0) {
        work_step();
        execv(argv[2], argv + 2);
        perror(argv[2]);
        return 2;
    }
    start_mpi(&argc, &argv);
    work_step();
    int status = strcmp(what, "fork") == 0 ? status_of_child() : 0;
    own_step();
    MPI_Barrier(MPI_COMM_WORLD);
    char text[64];
    snprintf(text, sizeof text, NAME " at step %ld, child %d", step, status);
    report(text);
    MPI_Finalize();
    return 0;
}
