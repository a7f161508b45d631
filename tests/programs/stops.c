// For the commands that stop ranks, look at them and let them run: known lines, a loop, a local
// variable, a global one, signals, children. Its own state says at the end what was changed.
#include "common.h"

#include <dlfcn.h>
#include <sys/wait.h>

struct pair {
    int first;
    double second;
};

static volatile long total;      // what compute() has added up
static volatile struct pair pair = {1, 2.5};
static volatile int signals_seen;

static void on_signal(int number) { signals_seen += number == SIGUSR1; }

static __attribute__((noinline)) long compute(long value) {
    volatile long local = value;
    local += 1;        // LOCAL
    local *= 2;        // DOUBLE
    total += local;    // TOTAL
    return local;      // RETURN
}

static __attribute__((noinline)) long loop(long turns) {
    volatile long sum = 0;
    for (long i = 0; i < turns; i++) { // LOOP
        sum += compute(i);             // CALL
    }
    return sum; // BEHIND
}

static __attribute__((noinline)) void children(void) {
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(status == 0, "the child ended with %d", status);
    CHECK(system("exit 7") == 7 << 8, "the shell has another status");
}

static __attribute__((noinline)) void late(void) {
    void *library = dlopen("libz.so.1", RTLD_NOW);
    if (library != NULL) {
        const char *(*version)(void);
        *(void **)&version = dlsym(library, "zlibVersion");
        CHECK(version()[0] == '1', "an unknown library");
    }
}

int main(int argc, char **argv) {
    start_mpi(&argc, &argv);
    signal(SIGUSR1, on_signal);
    for (step = 1; step <= 4; step++) {
        long got = loop(3);
        exchange((uint64_t)got);
    }
    raise(SIGUSR1);
    children();
    late();
    char text[128];
    snprintf(text, sizeof text, "total %ld, signals %d, pair %d", total, signals_seen, pair.first);
    report(text);
    MPI_Finalize();
    return 0;
}
