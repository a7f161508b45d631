/* starter --enter KEEPER [--serve SOCKET] -- PROGRAM ARGUMENT...
 *
 * Runs a program inside the container of that keeper, or outside of any if it is 0: CRIU, which dumps
 * processes and restores them where it runs. Who restores a job without being root needs every capability of the job's user
 * namespace but two: with CAP_SETUID and CAP_SETGID, CRIU would become its root, which nobody is.
 *
 * The process that stays outside carries out a plan (see commit.c) on behalf of CRIU's action script,
 * which sees only processes of the container: it gets the plan's path at SOCKET, and answers "done", or
 * why not. */
#define _GNU_SOURCE 1
#include "starter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "starter: %s: %s\n", what, strerror(errno));
    _exit(125);
}

/* Is its user namespace the one that we are in? setns(2) refuses that one. */
static int has_our_users(const char *pid) {
    char path[64];
    struct stat ours, theirs;
    snprintf(path, sizeof path, "/proc/%.20s/ns/user", pid);
    return stat("/proc/self/ns/user", &ours) == 0 && stat(path, &theirs) == 0 &&
           ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev;
}

static int enter_namespaces(const char *pid) {
    const int namespaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    int process = (int)syscall(SYS_pidfd_open, atoi(pid), 0);
    if (process < 0) return -1;
    int result = has_our_users(pid) ? 0 : setns(process, CLONE_NEWUSER);
    if (result == 0) result = setns(process, namespaces);
    close(process);
    return result;
}

/* Capabilities of the user namespace are lost by execve(2) unless they are ambient, or we are root. */
static int keep_capabilities(void) {
    const uint32_t unwanted = 1u << CAP_SETUID | 1u << CAP_SETGID;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    if (geteuid() == 0) return 0;
    if (syscall(SYS_capget, &header, data) != 0) return -1;
    data[0].permitted &= ~unwanted;
    for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        data[i].effective = data[i].inheritable = data[i].permitted;
    if (syscall(SYS_capset, &header, data) != 0) return -1;
    for (int each = 0; each <= CAP_LAST_CAP; each++)
        if (data[each / 32].permitted & 1u << each % 32)
            if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, each, 0, 0) != 0) return -1;
    return 0;
}

static _Noreturn void end_like(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) fail("wait");
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        kill(getpid(), WTERMSIG(status));
    }
    _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

/* In a process of its own: the other one stays outside. */
static _Noreturn void run_inside(const char *pid, char **program) {
    if (atoi(pid) == 0) {
        execv(program[0], program);
        fail(program[0]);
    }
    if (enter_namespaces(pid) != 0) fail("enter the job's container");
    pid_t child = fork(); /* it is in the PID namespace, which we are not */
    if (child < 0) fail("fork");
    if (child > 0) end_like(child);
    if (keep_capabilities() != 0) fail("keep the container's capabilities");
    execv(program[0], program);
    fail(program[0]);
}

static int listen_at(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address.sun_path, path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (const struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 4) != 0)
        return -1;
    return listener;
}

static void serve(int listener) {
    char plan[4400];
    int channel = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (channel < 0) return;
    if (receive_line(channel, plan, sizeof plan) == 0)
        answer_line(channel, carry_out(plan) == 0 ? "done" : why_not_carried_out());
    close(channel);
}

int enter(int count, char **arguments) {
    int serves = count > 1 && strcmp(arguments[1], "--serve") == 0, at = serves ? 3 : 1;
    if (count < at + 2 || strcmp(arguments[at], "--") != 0) {
        fprintf(stderr, "starter: wanted: --enter PID [--serve SOCKET] -- PROGRAM ARGUMENT...\n");
        return 2;
    }
    int listener = serves ? listen_at(arguments[2]) : -1;
    if (serves && listener < 0) fail(arguments[2]);
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) run_inside(arguments[0], arguments + at + 1);
    int process = (int)syscall(SYS_pidfd_open, child, 0);
    if (process < 0) fail("pidfd_open");
    for (;;) {
        struct pollfd wanted[2] = {{.fd = listener, .events = POLLIN},
                                   {.fd = process, .events = POLLIN}};
        if (poll(wanted, 2, -1) < 0 && errno != EINTR) fail("poll");
        if (wanted[0].revents) serve(listener);
        else if (wanted[1].revents) end_like(child);
    }
}
