/* A job without a container, where namespaces are refused.
 *
 * Two processes of ours stand above the launcher. Both are child subreapers (PR_SET_CHILD_SUBREAPER):
 *   the starter  in all else as in a container; once the launcher has ended, it ends what is left
 *   the keeper   its parent: does that too, however the starter ends, and removes SCRATCH, where the
 *                MPI has its files
 * So whatever a process of the job does, daemon(3) say, its ancestors are processes of the job, the
 * starter, or, after that, the keeper. If somebody kills both, the next crdebug ends what is left: it
 * is known by a variable in its environment (crdebug/node/bare.py). */
#define _GNU_SOURCE 1
#include "starter.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* 0 if it is gone. */
static pid_t parent_of(const char *pid) {
    char path[64], text[1024];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    text[got > 0 ? got : 0] = 0;
    const char *behind = strrchr(text, ')'); /* the name, in parentheses, may hold anything */
    return behind != NULL && sscanf(behind + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

static void kill_children(void) {
    DIR *directory = opendir("/proc");
    if (directory == NULL) return;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (*entry->d_name >= '1' && *entry->d_name <= '9' && parent_of(entry->d_name) == getpid())
            kill(atoi(entry->d_name), SIGKILL);
    closedir(directory);
}

/* The children of one that ends become ours. One that a debugger traces ends only when that has taken
 * note, and nobody tells us of it. */
void end_descendants(void) {
    const long most = 50 * 1000 * 1000;
    struct timespec pause = {.tv_nsec = 500 * 1000};
    for (;;) {
        pid_t ended;
        kill_children();
        do ended = waitpid(-1, NULL, WNOHANG | __WALL);
        while (ended > 0);
        if (ended < 0 && errno == ECHILD) return;
        nanosleep(&pause, NULL);
        pause.tv_nsec = pause.tv_nsec * 2 < most ? pause.tv_nsec * 2 : most;
    }
}

static int remove_one(const char *path, const struct stat *details, int kind, struct FTW *place) {
    (void)details, (void)kind, (void)place;
    remove(path);
    return 0;
}

void remove_all(const char *directory) {
    int file = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file >= 0)
        flock(file, LOCK_EX); /* crdebug/job/record_here.py has it while it reads there */
    nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (file >= 0) close(file);
}

void stand_alone(void) {
    for (int i = 1; i < NSIG; i++)
        if (i != SIGCHLD) signal(i, SIG_IGN);
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++) dup2(null, i);
    syscall(SYS_close_range, 3u, ~0u, 0u);
}

static _Noreturn void watch(pid_t starter, const char *scratch) {
    stand_alone();
    for (pid_t ended = 0; ended != starter;) {
        ended = waitpid(-1, NULL, __WALL);
        if (ended < 0 && errno == ECHILD) break;
    }
    end_descendants();
    remove_all(scratch);
    _exit(0);
}

static int failed(const char *step) {
    printf("%d %s\n", errno, step);
    fflush(stdout);
    return 1;
}

int try_container(void) {
    int status;
    if (make_namespaces() != 0) return failed("make namespaces");
    pid_t first = fork();
    if (first < 0) return failed("start a process in them");
    if (first == 0) {
        const char *step = build_container("/proc"); /* any directory will do */
        _exit(step == NULL ? 0 : failed(step));
    }
    return waitpid(first, &status, 0) == first && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int keep_bare(int report, const char *scratch, void (*run)(void)) {
    char text[32];
    pid_t keeper = fork();
    if (keeper < 0) perror("starter: fork");
    if (keeper != 0) return keeper < 0;
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    pid_t starter = fork();
    if (starter == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        run();
        _exit(125);
    }
    int length = snprintf(text, sizeof text, "%d\n", (int)starter);
    if (starter < 0 || write(report, text, (size_t)length) != length) _exit(1);
    watch(starter, scratch);
}
