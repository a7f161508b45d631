// MPI ranks that get signals in every way: in system calls that only a signal ends, for a fault of
// their own, in two threads at once, and some that they hold back from the first step to the last.
// Each must come exactly once, with all that the kernel tells of it.
//
// --steps N       steps
// --delay-us N    pause after each step
// --safe 1        only in calls that let the signal in: before the others it can come too early, when
//                 the rank is frozen just then

#include "common.h"

#include <poll.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/syscall.h>

enum { PAUSE, SLEEP, PPOLL, KINDS };

static long steps = 1, delay_us = 1000, safe;
static int number;            // the signal
static pid_t main_tid;
static pthread_t main_thread;
static atomic_long wanted = -1; // the number of the system call in which the main thread waits
static atomic_int asked;        // what is to come with the signal
static volatile sig_atomic_t came, value;
static _Thread_local volatile sig_atomic_t raised;
static sigjmp_buf after_fault;
static pthread_barrier_t both;
static atomic_bool finished;

static void on_signal(int which, siginfo_t *info, void *context) {
    (void)which, (void)context;
    if (info->si_code == SI_TKILL) { // by raise(3)
        raised++;
        return;
    }
    CHECK(info->si_code == SI_QUEUE && info->si_pid == getpid(), "si_code %d si_pid %d",
          info->si_code, (int)info->si_pid);
    value = info->si_value.sival_int;
    came++;
}

static void on_fault(int which, siginfo_t *info, void *context) {
    (void)context;
    CHECK(which == SIGSEGV && info->si_code == SEGV_MAPERR, "si_code %d", info->si_code);
    siglongjmp(after_fault, (int)(uintptr_t)info->si_addr);
}

// Sends the main thread a signal whenever that waits for one.
static void *sender(void *unused) {
    for (;;) {
        pthread_barrier_wait(&both);
        if (finished) {
            return unused;
        }
        long call = wanted;
        if (call < 0) {
            raise(number);
            CHECK(raised == 1, "%d signals in the other thread", (int)raised);
            raised = 0;
            pthread_barrier_wait(&both);
            continue;
        }
        long now;
        // one that was interrupted before, and goes on, is in restart_syscall
        while ((now = system_call_of(main_tid)) != call && now != SYS_restart_syscall) {
            sched_yield();
        }
        CHECK(pthread_sigqueue(main_thread, number, (union sigval){.sival_int = asked}) == 0,
              "pthread_sigqueue");
    }
}

// Wait in a system call for a signal.
static void wait_in(int kind) {
    static const long calls[KINDS] = {SYS_pause, SYS_clock_nanosleep, SYS_ppoll};
    struct timespec long_time = {100000, 0};
    sigset_t ours, before;
    int before_came = came;
    sigemptyset(&ours);
    sigaddset(&ours, number);
    asked = (int)step * KINDS + kind;
    wanted = calls[kind];
    if (kind == PPOLL) { // the signal can come in the call only
        pthread_sigmask(SIG_BLOCK, &ours, &before);
    }
    pthread_barrier_wait(&both);
    int result = -1, error = 0;
    if (kind == PAUSE) {
        result = pause();
        error = errno;
    } else if (kind == SLEEP) {
        error = clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, NULL);
    } else {
        result = ppoll(NULL, 0, &long_time, &before);
        error = errno;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    CHECK(result == -1 && error == EINTR, "kind %d: %d %d", kind, result, error);
    CHECK(came == before_came + 1 && value == asked, "kind %d: %d signals came, the last with %d",
          kind, (int)came - before_came, (int)value);
}

static void fault(void) {
    int address = 64 + (int)step;
    int told = sigsetjmp(after_fault, 1);
    if (!told) {
        *(volatile char *)(uintptr_t)address = 1;
    }
    CHECK(told == address, "a fault at %d instead of %d", told, address);
}

static void both_at_once(void) {
    wanted = -1;
    pthread_barrier_wait(&both);
    raise(number);
    CHECK(raised == 1, "%d signals in the main thread", (int)raised);
    raised = 0;
    pthread_barrier_wait(&both);
}

// Two signals that wait all the time, one for the thread and one for the process.
static void hold_back(sigset_t *held) {
    sigemptyset(held);
    sigaddset(held, SIGRTMIN + 8);
    sigaddset(held, SIGRTMIN + 9);
    pthread_sigmask(SIG_BLOCK, held, NULL);
}

static void take(const sigset_t *held, int which, int code) {
    struct timespec at_once = {0, 0};
    siginfo_t info = {0};
    CHECK(sigtimedwait(held, &info, &at_once) == which, "signal %d is not there", which);
    CHECK(info.si_code == code && info.si_pid == getpid(), "si_code %d", info.si_code);
    CHECK(code != SI_QUEUE || info.si_value.sival_int == 4711, "another value");
}

// Every rank passes here once in each step.
__attribute__((noinline)) static void work_step(void) {
    exchange(0);
    for (int kind = safe ? PPOLL : PAUSE; kind < KINDS; kind++) {
        wait_in(kind);
    }
    fault();
    both_at_once();
}

int main(int argc, char **argv) {
    parse_options(argc, argv,
                  (struct option_spec[]){{"--steps", &steps, NULL},
                                         {"--delay-us", &delay_us, NULL},
                                         {"--safe", &safe, NULL},
                                         {NULL, NULL, NULL}});
    number = SIGRTMIN + 6;
    main_tid = (pid_t)syscall(SYS_gettid);
    main_thread = pthread_self();
    sigset_t held;
    hold_back(&held); // in all threads
    start_mpi(&argc, &argv);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(number, &action, NULL) == 0, "sigaction: %s", strerror(errno));
    action.sa_sigaction = on_fault;
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0, "sigaction: %s", strerror(errno));
    pthread_barrier_init(&both, NULL, 2);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sender, NULL) == 0, "no thread");
    CHECK(pthread_sigqueue(main_thread, SIGRTMIN + 8, (union sigval){.sival_int = 4711}) == 0,
          "pthread_sigqueue");
    CHECK(kill(getpid(), SIGRTMIN + 9) == 0, "kill: %s", strerror(errno));
    for (step = 1; step <= steps; step++) {
        work_step();
        pause_us(delay_us);
    }
    finished = true;
    pthread_barrier_wait(&both);
    pthread_join(thread, NULL);
    take(&held, SIGRTMIN + 8, SI_QUEUE);
    take(&held, SIGRTMIN + 9, SI_USER);
    struct timespec at_once = {0, 0};
    CHECK(sigtimedwait(&held, NULL, &at_once) == -1, "a signal came twice");
    char line[96];
    snprintf(line, sizeof line, "steps %ld signals %d", step - 1, (int)came);
    report(line);
    MPI_Finalize();
    return 0;
}
