// A rank without MPI, for a GDB to hold: threads, a hot loop, something to look at, ways to end.
//
// rank [block] [spin] [threads=N] [pace=MICROSECONDS]
//   block: every thread blocks all signals.  spin: the threads compute without a pause.
// Writes one byte to standard output when all threads are there. Ends when `ending` is set to its
// exit status + 1, or by `crash`.

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct point {
    int x, y;
    const char *name;
    double weights[3];
};

struct point origin = {1, -2, "ursprung \303\251 \"q\" \\", {0.5, 1.5, 2.5}};
int table[4] = {1, 2, 3, 4};
char text[] = "plain";
volatile long n, spun, continued, interrupted, told, teller, heard;
volatile int ending, crash, pace = 100;
static int threads = 2, busy;

void hot(void) {
    n++;
}

int factorial(int k) {
    if (k <= 1) {
        return 1;
    }
    return k * factorial(k - 1);
}

int twice(int k) {
    int result = 2 * k;
    return result;
}

int forever(void) {
    for (;;) {
        spun++;
    }
    return 0;
}

static void on_continue(int number) {
    (void)number;
    continued++;
}

static void on_signal(int number, siginfo_t *info, void *unused) {
    (void)unused;
    told++;
    teller = info->si_pid;
    heard = heard * 1000 + number * 10 - info->si_code;
}

static void *spin(void *unused) {
    for (;;) {
        spun++;
        if (!busy) {
            usleep(5000);
        }
    }
    return unused;
}

static void work(void) {
    for (int turn = 0; !ending; turn++) {
        hot();
        if (turn % 16 == 0) {
            factorial(3);
        }
        if (pace && usleep((useconds_t)pace)) {
            interrupted++;
        }
        if (crash) {
            *(volatile int *)8 = 1;
        }
    }
    exit(ending - 1);
}

int main(int argc, char **argv) {
    signal(SIGCONT, on_continue);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "block") == 0) {
            sigset_t all;
            sigfillset(&all);
            pthread_sigmask(SIG_BLOCK, &all, NULL);
        } else if (strcmp(argv[i], "spin") == 0) {
            busy = 1;
        } else if (sscanf(argv[i], "threads=%d", &threads) != 1 &&
                   sscanf(argv[i], "pace=%d", &pace) != 1) {
            fprintf(stderr, "unknown: '%s'\n", argv[i]);
            return 2;
        }
    }
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, spin, NULL);
    }
    if (write(STDOUT_FILENO, "!", 1) != 1) {
        return 3;
    }
    work();
}
