// MPI ranks that have a handler of their own for a signal, and count what it delivers.
//
// --signal N      the signal's number; SIGRTMIN + 6 by default
// --sends N       how often each rank sends it to itself in a step
// --steps N       steps
// --delay-us N    pause after each step

#include "common.h"

static long steps = 100, delay_us = 1000, sends = 1, number;
static volatile sig_atomic_t delivered;

static void handler(int which) {
    (void)which;
    delivered++;
}

// Every rank passes here once in each step.
__attribute__((noinline)) static void work_step(void) {
    exchange(0);
    for (long i = 0; i < sends; i++) {
        raise((int)number);
    }
    // A signal that a thread sends to itself is delivered before raise() returns.
    CHECK(delivered == step * sends, "%d signals delivered, %ld sent", (int)delivered,
          step * sends);
}

int main(int argc, char **argv) {
    number = SIGRTMIN + 6;
    parse_options(argc, argv,
                  (struct option_spec[]){{"--signal", &number, NULL},
                                         {"--sends", &sends, NULL},
                                         {"--steps", &steps, NULL},
                                         {"--delay-us", &delay_us, NULL},
                                         {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    struct sigaction action = {.sa_handler = handler};
    CHECK(sigaction((int)number, &action, NULL) == 0, "sigaction: %s", strerror(errno));
    for (step = 1; step <= steps; step++) {
        work_step();
        pause_us(delay_us);
    }
    struct sigaction now;
    sigaction((int)number, NULL, &now);
    CHECK(now.sa_handler == handler, "the handler is not ours any more");
    char line[96];
    snprintf(line, sizeof line, "steps %ld signals %d", step - 1, (int)delivered);
    report(line);
    MPI_Finalize();
    return 0;
}
