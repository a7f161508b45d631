// The stepper's single requests, and waiting for the thread; see walk.c.

#define _GNU_SOURCE
#include "walk_wait.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TICK 20000000L // ns: how often a wait looks at the time, and at what the thread does

static timer_t timer;
static int has_timer;

static volatile sig_atomic_t ticked;

static void on_tick(int number) {
    (void)number;
    ticked = 1; // and a waitpid ends
}

static int tick_signal(void) { return SIGRTMAX - 4; }

int walk_start_ticks(void) {
    struct sigaction action = {.sa_handler = on_tick};
    sigaction(tick_signal(), &action, NULL);
    if (!has_timer) {
        struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = tick_signal()};
        event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
        if (timer_create(CLOCK_MONOTONIC, &event, &timer)) {
            return -1;
        }
        has_timer = 1;
    }
    struct itimerspec often = {{0, TICK}, {0, TICK}};
    return timer_settime(timer, 0, &often, NULL);
}

void walk_end_ticks(void) {
    struct itimerspec never = {{0, 0}, {0, 0}};
    timer_settime(timer, 0, &never, NULL);
}

static char state_of(const struct walk *w) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", w->pid, w->tid);
    FILE *file = fopen(path, "re");
    if (!file) {
        return 0;
    }
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = 0;
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] ? name_end[2] : 0;
}

int walk_failed(struct walk *w) {
    w->error = errno;
    return errno == ESRCH ? WALK_GONE : WALK_ERROR;
}

int walk_set_pc(struct walk *w, uint64_t pc) {
    w->registers.rip = pc;
    long at = offsetof(struct user_regs_struct, rip);
    return ptrace(PTRACE_POKEUSER, w->tid, at, pc) ? walk_failed(w) : 0;
}

int walk_get_registers(struct walk *w) {
    return ptrace(PTRACE_GETREGS, w->tid, 0L, &w->registers) ? walk_failed(w) : 0;
}

// Stop the thread, which runs.
static int abandon(struct walk *w) {
    int status = 0;
    if (syscall(SYS_tgkill, w->pid, w->tid, SIGSTOP)) {
        return walk_failed(w);
    }
    for (;;) {
        pid_t done = waitpid(w->tid, &status, __WALL);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0 || !WIFSTOPPED(status)) {
            return WALK_GONE;
        }
        if (WSTOPSIG(status) == SIGSTOP) {
            return WALK_ABANDONED;
        }
        // Something else came first; the SIGSTOP comes before any further instruction.
        if (WSTOPSIG(status) == SIGTRAP && !(status >> 16) && !w->stepping &&
            (walk_get_registers(w) || walk_set_pc(w, w->registers.rip - 1))) {
            return WALK_ERROR;
        }
        if (ptrace(PTRACE_CONT, w->tid, 0L, 0L)) {
            return walk_failed(w);
        }
    }
}

// Wait for the thread's next stop, of whatever kind.
int walk_await(struct walk *w, int *status) {
    int asleep = 0;
    for (;;) {
        // On a busy machine ticks may come only while this thread has something else to do, or waits
        // for a processor: so one that came before counts too.
        if (!ticked) {
            pid_t done = waitpid(w->tid, status, __WALL);
            if (done == w->tid) {
                return WIFSTOPPED(*status) ? 0 : WALK_GONE;
            }
            if (done < 0 && errno != EINTR) {
                return walk_failed(w);
            }
        }
        ticked = 0;
        char state = state_of(w);
        asleep = state == 'S' || state == 'D' ? asleep + 1 : 0;
        if (w->tick && w->tick(asleep)) {
            return abandon(w);
        }
    }
}

int walk_resume(struct walk *w, int request, int number) {
    if (ptrace(request, w->tid, 0L, (long)number)) {
        return walk_failed(w);
    }
    w->stepping = request == PTRACE_SINGLESTEP;
    return 0;
}

// Which signal, of a stop: 0 if it is a trap.
int walk_signal_of(int status) { return WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status); }

static int in_set(uint64_t set, int number) {
    return number > 0 && number <= 64 && (set >> (number - 1) & 1);
}

// The signals that the process catches or ignores, as it is now: one that it gives back to the
// system and sends itself again ends it.
static uint64_t handled(const struct walk *w) {
    char path[64], line[256];
    unsigned long long mask = 0, each;
    snprintf(path, sizeof path, "/proc/%d/task/%d/status", w->pid, w->tid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "SigCgt: %llx", &each) == 1 || sscanf(line, "SigIgn: %llx", &each) == 1) {
            mask |= each;
        }
    }
    if (file) {
        fclose(file);
    }
    return mask;
}

static int harmless(int number) {
    return number == SIGCHLD || number == SIGCONT || number == SIGURG || number == SIGWINCH;
}

int walk_passed(const struct walk *w, int number) { return in_set(w->passed, number) ? number : 0; }

int walk_fatal(struct walk *w, int number) {
    int given = in_set(w->passed, number), ends = given && in_set(w->limits, number);
    if (!ends && given && !harmless(number)) {
        ends = !in_set(handled(w), number);
    }
    if (!ends) {
        return 0;
    }
    w->error = number;
    return walk_get_registers(w) ? WALK_ERROR : WALK_FATAL;
}
