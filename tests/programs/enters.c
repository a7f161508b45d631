// Runs a program in a host of harness/hosts.py, as a user. Its streams and its exit status are this
// process's, and what signals this one gets it gets.
//
//   enters PID USER PROGRAM ARGUMENT...
//
// PID    the host's first process
//
// Nobody can move into a PID namespace, only his next children are born there (setns(2)): the program
// is a child of this process. If this one is killed, so is the program.

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void require(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "enters: %s: %s\n", what, strerror(errno));
    exit(125);
}

static void enter(const char *pid) {
    // Its mounts last: they have another /proc.
    static const char *const kinds[] = {"ipc", "uts", "net", "pid", "mnt"};
    enum { COUNT = sizeof kinds / sizeof kinds[0] };
    int opened[COUNT];
    for (int i = 0; i < COUNT; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%s/ns/%s", pid, kinds[i]);
        opened[i] = open(path, O_RDONLY | O_CLOEXEC);
        require(opened[i] >= 0, path);
    }
    for (int i = 0; i < COUNT; i++) require(setns(opened[i], 0) == 0, kinds[i]);
}

static void become(const char *name, const char *directory, int parent) {
    errno = 0;
    const struct passwd *user = getpwnam(name);
    require(user != NULL, name);
    require(initgroups(name, user->pw_gid) == 0, "initgroups");
    require(setresgid(user->pw_gid, user->pw_gid, user->pw_gid) == 0, "setresgid");
    require(setresuid(user->pw_uid, user->pw_uid, user->pw_uid) == 0, "setresuid");
    if (chdir(directory) != 0) require(chdir(user->pw_dir) == 0, user->pw_dir);
    // Only now: a change of user resets it. The parent may have ended before.
    require(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "prctl");
    if (poll(&(struct pollfd){.fd = parent}, 1, 0) != 0) raise(SIGKILL);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "enters: PID USER PROGRAM ARGUMENT...\n");
        return 2;
    }
    char *directory = getcwd(NULL, 0);
    require(directory != NULL, "getcwd");
    enter(argv[1]);
    // A group of its own has numbers in its namespace, as shells and terminals want them; and what
    // is sent to this one's group comes to the program once.
    pid_t group = getpgrp();
    int at_terminal = isatty(0) && tcgetpgrp(0) == group;
    int alive[2];
    require(pipe2(alive, O_CLOEXEC) == 0, "pipe2");
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    pid_t program = fork();
    require(program >= 0, "fork");
    if (program == 0) {
        setpgid(0, 0);
        if (at_terminal) tcsetpgrp(0, getpid());
        close(alive[1]);
        become(argv[2], directory, alive[0]);
        sigprocmask(SIG_SETMASK, &before, NULL);
        execvp(argv[3], argv + 3);
        require(0, argv[3]);
    }
    int status;
    for (;;) {
        siginfo_t info;
        int number = sigwaitinfo(&all, &info);
        if (number == SIGCHLD) {
            if (waitpid(program, &status, WNOHANG) == program) break;
        } else if (number > 0) {
            kill(program, number);
        }
    }
    if (at_terminal) tcsetpgrp(0, group);
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    // End as it did, but leave no core file.
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(WTERMSIG(status), SIG_DFL);
    sigprocmask(SIG_SETMASK, &(sigset_t){0}, NULL);
    raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}
