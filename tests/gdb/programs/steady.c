// A rank that notices what a debugger has left behind: in its registers, its memory, its system calls.
//
// Writes one byte to standard output when all threads are there. Each thread computes a sequence in
// integer, floating-point and vector registers, and compares it with the same one computed in another
// way; sleeps, and expects to be woken by nobody. Ends with status 0 when `ending` is set; with 1, and
// a line, at the first difference.

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(good, ...) \
    do { \
        if (!(good)) { \
            printf(__VA_ARGS__); \
            fflush(stdout); \
            _exit(1); \
        } \
    } while (0)

enum { THREADS = 2, TURNS = 200 };
typedef uint64_t lanes __attribute__((vector_size(32)));
volatile int ending;
volatile long steps;
static sigset_t at_start;

// Inlined, so that all of it stays in registers meanwhile.
static inline __attribute__((always_inline)) uint64_t sequence(uint64_t from) {
    uint64_t whole = from;
    double real = (double)(from % 1000);
    lanes many = {from, from + 1, from + 2, from + 3};
    for (int turn = 0; turn < TURNS; turn++) {
        whole = whole * UINT64_C(6364136223846793005) + 1442695040888963407;
        real = real * 0.5 + 3;
        many = many * 3 + (lanes){1, 2, 3, 4};
    }
    uint64_t bits;
    memcpy(&bits, &real, sizeof bits);
    return whole ^ bits ^ many[0] ^ many[1] << 1 ^ many[2] << 2 ^ many[3] << 3;
}

__attribute__((noinline)) int work_step(int turn) {
    steps++;
    return turn + 1;
}

static void *work(void *given) {
    uint64_t number = (uint64_t)(uintptr_t)given;
    sigset_t now;
    for (int turn = 0; !ending; turn++) {
        errno = 77;
        uint64_t from = number * 1000 + (uint64_t)turn % 7;
        uint64_t first = sequence(from);
        CHECK(work_step(turn) == turn + 1, "work_step\n");
        CHECK(first == sequence(from), "thread %d: another result\n", (int)number);
        struct timespec moment = {0, 300000};
        CHECK(nanosleep(&moment, NULL) == 0, "nanosleep: %s\n", strerror(errno));
        CHECK(errno == 77, "errno: %d\n", errno);
    }
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    CHECK(memcmp(&now, &at_start, 8) == 0, "thread %d: another signal mask\n", (int)number);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_sigmask(SIG_SETMASK, NULL, &at_start);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1));
    CHECK(write(STDOUT_FILENO, "!", 1) == 1, "write\n");
    work(NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}
