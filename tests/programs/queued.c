// MPI ranks with a thread in each kind of system call that a signal ends, and one that computes.
// They wait for the signals that somebody queues to them while the rank is stopped in `ready`. Each
// must come once, and end the call that its thread is in.
//
// --first N       the signal that each thread is to get
// --second N      another one; 0 for none

#include "common.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

enum { COMPUTES, PAUSES, SLEEPS, POLLS, PPOLLS, EPOLLS, KINDS };

static const char *const names[KINDS] = {"computes", "pauses", "sleeps",
                                         "polls",    "ppolls", "epolls"};
static const long calls[KINDS] = {
    -1, SYS_pause, SYS_clock_nanosleep, SYS_poll, SYS_ppoll, SYS_epoll_wait,
};
static long first = 10, second;
static atomic_int tids[KINDS];
static volatile sig_atomic_t came[KINDS][2];
static _Thread_local int kind;

static void on_signal(int which, siginfo_t *info, void *context) {
    (void)context;
    CHECK(info->si_code == SI_TKILL, "si_code %d", info->si_code);
    came[kind][which != first]++;
}

static int wait_in_call(void) {
    struct timespec long_time = {100000, 0};
    struct epoll_event event;
    sigset_t none;
    sigemptyset(&none);
    switch (kind) {
    case PAUSES: return pause();
    case SLEEPS: errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, NULL); return -1;
    case POLLS: return poll(NULL, 0, 100000000);
    case PPOLLS: return ppoll(NULL, 0, &long_time, &none);
    default: return epoll_wait(epoll_create1(0), &event, 1, 100000000);
    }
}

static bool all_came(void) {
    return came[kind][0] && (!second || came[kind][1]);
}

static void *waiter(void *number) {
    kind = (int)(intptr_t)number;
    pthread_setname_np(pthread_self(), names[kind]);
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, (int)first);
    if (second) {
        sigaddset(&ours, (int)second);
    }
    // who calls ppoll lets them in there only
    CHECK(pthread_sigmask(kind == PPOLLS ? SIG_BLOCK : SIG_UNBLOCK, &ours, NULL) == 0, "mask");
    tids[kind] = (int)syscall(SYS_gettid);
    if (kind == COMPUTES) {
        while (!all_came()) {
        }
    } else {
        int result = wait_in_call();
        CHECK(result == -1 && errno == EINTR, "%s: %d %d", names[kind], result, errno);
        CHECK(all_came(), "%s: ended without its signals", names[kind]);
    }
    return NULL;
}

// Every thread is where it is to be.
__attribute__((noinline)) static void ready(void) {
    step = 1;
}

int main(int argc, char **argv) {
    parse_options(argc, argv,
                  (struct option_spec[]){{"--first", &first, NULL},
                                         {"--second", &second, NULL},
                                         {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    CHECK(sigaction((int)first, &action, NULL) == 0, "%s", strerror(errno));
    CHECK(!second || sigaction((int)second, &action, NULL) == 0, "%s", strerror(errno));
    pthread_t threads[KINDS];
    for (intptr_t each = 0; each < KINDS; each++) {
        CHECK(pthread_create(&threads[each], NULL, waiter, (void *)each) == 0, "no thread");
    }
    for (int each = PAUSES; each < KINDS; each++) {
        while (tids[each] == 0 || system_call_of(tids[each]) != calls[each]) {
            sched_yield();
        }
    }
    while (tids[COMPUTES] == 0) {
        sched_yield();
    }
    exchange(0);
    ready();
    long sum = 0;
    for (int each = 0; each < KINDS; each++) {
        pthread_join(threads[each], NULL);
        sum += came[each][0] + came[each][1];
    }
    char line[96];
    snprintf(line, sizeof line, "signals %ld", sum);
    report(line);
    MPI_Finalize();
    return 0;
}
