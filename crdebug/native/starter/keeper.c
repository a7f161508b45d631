/* The keeper: PID 1 of a job's container.
 *
 * It holds the namespaces, into which the CRS restores the job, and is no part of an image. Its child is
 * the job's first process, the starter; the container ends with that. */
#define _GNU_SOURCE 1
#include "starter.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The job's numbers lie above, so that they are free in a container that has a CRS at work in it. */
enum { BELOW_THE_JOB = 20000 };

int leave_low_numbers(void) {
    char text[16];
    int file = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
    int length = snprintf(text, sizeof text, "%d", BELOW_THE_JOB);
    if (file < 0) return -1;
    int result = write(file, text, (size_t)length) == length ? 0 : -1;
    close(file);
    return result;
}

/* The kernel keeps from PID 1 all signals that it has no handler for, but those that kill it from
 * outside: nothing that the job does can end it (pid_namespaces(7)). */
_Noreturn void keep(pid_t first) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, 0)) != first;)
        if (pid < 0 && errno != EINTR) _exit(125);
    _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

/* The end of `stay` says that whoever restores the job has ended: it is there by then, or never will be. */
_Noreturn void keep_for_restore(pid_t first, int stay) {
    char nothing;
    while (read(stay, &nothing, 1) < 0 && errno == EINTR) continue;
    close(stay);
    keep(first);
}
