// Runs a program and kills it (SIGKILL) at the N-th stop that it makes at a system call: once when a
// thread of it enters one, once when it leaves it. So nothing depends on the machine's speed, and a
// moment of microseconds between two calls is as likely as one of seconds.
//
//   killer REPORT FIRST N COMMAND ARGUMENT...
//
// FIRST  the number of the system call to count from, -1 for the program's start
// N      0: count only, and let it end
// REPORT a file: how many stops there were, and the program's exit status (128 + the signal)
//
// KILLER_CALLS in the environment: the numbers of the system calls whose stops count; all by default.
//
// Only the program's own threads are followed, not what it starts; that and its tracer are let be.

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static void require(int good, const char *what) {
    if (good) return;
    perror(what);
    exit(125);
}

static void report(const char *path, long count, int status) {
    FILE *file = fopen(path, "w");
    require(file != NULL, path);
    fprintf(file, "%ld %d\n", count, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    fclose(file);
}

static int counts(const char *calls, long number) {
    while (calls != NULL && *calls != 0) {
        char *end;
        if (strtol(calls, &end, 10) == number) return 1;
        calls = *end == 0 ? end : end + 1;
    }
    return calls == NULL;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    const char *calls = getenv("KILLER_CALLS");
    long first = atol(argv[2]), wanted = atol(argv[3]), count = first < 0 ? 0 : -1;
    pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
        raise(SIGSTOP);
        execvp(argv[4], argv + 4);
        _exit(127);
    }
    int status;
    require(waitpid(child, &status, WUNTRACED) == child, "waitpid");
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;
    require(ptrace(PTRACE_SEIZE, child, NULL, options) == 0, "PTRACE_SEIZE");
    kill(child, SIGCONT);
    for (;;) {
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0) return 125;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (tid != child) continue;
            report(argv[1], count < 0 ? 0 : count, status);
            return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        }
        int number = WSTOPSIG(status), event = status >> 16;
        if (number == (SIGTRAP | 0x80)) {
            struct user_regs_struct registers;
            int known = ptrace(PTRACE_GETREGS, tid, NULL, &registers) == 0;
            if (count < 0 && known && (long)registers.orig_rax == first) count = 0;
            if (count >= 0 && known && counts(calls, (long)registers.orig_rax) && ++count == wanted)
                kill(child, SIGKILL);
            number = 0;
        } else if (event == PTRACE_EVENT_STOP &&
                   (number == SIGSTOP || number == SIGTSTP || number == SIGTTIN || number == SIGTTOU)) {
            ptrace(PTRACE_LISTEN, tid, NULL, NULL);
            continue;
        } else if (event) {
            number = 0;
        }
        ptrace(PTRACE_SYSCALL, tid, NULL, (void *)(long)number);
    }
}
