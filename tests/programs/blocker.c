// MPI ranks with a thread, named "blocker", that blocks every signal: no handler can run in it.
//
// --steps N       steps of the main thread
// --quota N       iterations that the blocker does at least
// --delay-us N    pause after each step
// --rank N        the rank that has the thread; all have one by default

#include "common.h"

#include <stdatomic.h>

static long steps = 100, quota = 100, delay_us = 1000, rank = -1;
static atomic_bool finished;
static uint64_t at_quota;

static const struct lcg map = {UINT64_C(6364136223846793005), UINT64_C(1442695040888963407)};

// Computes and sleeps by turns, so that it is met in both.
static void *blocker(void *unused) {
    sigset_t blocked;
    uint64_t start = (uint64_t)my_rank + 1, state = start;
    for (uint64_t count = 1; !finished || count <= (uint64_t)quota; count++) {
        state = map.factor * state + map.term;
        struct lcg power = lcg_power(map, count);
        CHECK(state == power.factor * start + power.term, "iteration %" PRIu64, count);
        if (count == (uint64_t)quota) {
            at_quota = state;
        }
        if (count % 2 == 0) {
            struct timespec moment = {0, 1000000};
            CHECK(nanosleep(&moment, NULL) == 0, "nanosleep: %s", strerror(errno));
        }
    }
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 && sigismember(&blocked, SIGRTMAX) == 1,
          "the signal mask has changed");
    return unused;
}

// Every rank passes here once in each step.
__attribute__((noinline)) static void work_step(void) {
    exchange(0);
}

int main(int argc, char **argv) {
    parse_options(argc, argv,
                  (struct option_spec[]){{"--steps", &steps, NULL},
                                         {"--quota", &quota, NULL},
                                         {"--delay-us", &delay_us, NULL},
                                         {"--rank", &rank, NULL},
                                         {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    bool blocks = rank == -1 || rank == my_rank;
    pthread_t thread;
    if (blocks) {
        // It inherits what is blocked, and so it has blocked them before it is seen.
        sigset_t all, before;
        sigfillset(&all);
        CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0, "pthread_sigmask");
        CHECK(pthread_create(&thread, NULL, blocker, NULL) == 0, "no thread");
        CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0, "pthread_sigmask");
        pthread_setname_np(thread, "blocker");
    }
    for (step = 1; step <= steps; step++) {
        work_step();
        pause_us(delay_us);
    }
    finished = true;
    if (blocks) {
        pthread_join(thread, NULL);
    }
    char line[96];
    snprintf(line, sizeof line, "steps %ld blocker %016" PRIx64, step - 1, at_quota);
    report(line);
    MPI_Finalize();
    return 0;
}
