// MPI ranks with a thread that only watches what a signal handler may disturb: errno, the signal
// mask, the alternate stack, the rounding mode and the flags of the floating-point unit, the red
// zone below the stack pointer.
//
// --steps N       steps of the main thread, which watches too
// --quota N       iterations that the watching thread does at least
// --delay-us N    pause after each step

#include "common.h"

#include <fenv.h>
#include <stdatomic.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static long steps = 100, quota = 10000, delay_us = 1000;
static atomic_bool finished;

// ---- what must stay as it is ------------------------------------------------------------------

struct state {
    int error;
    int rounding;
    unsigned sse;         // MXCSR: control bits and the sticky exception flags
    unsigned short x87;   // the control word
    sigset_t blocked;
    stack_t stack;
};

static unsigned sse_state(void) {
#if defined(__x86_64__)
    return _mm_getcsr();
#else
    return 0;
#endif
}

static unsigned short x87_state(void) {
    unsigned short word = 0;
#if defined(__x86_64__)
    __asm__ volatile("fnstcw %0" : "=m"(word));
#endif
    return word;
}

// Puts the calling thread in a state that nothing else sets by chance, and notes it.
static struct state enter(int error, int rounding, int blocked) {
    struct state state = {.error = error, .rounding = rounding};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, blocked);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_sigmask(SIG_BLOCK, NULL, &state.blocked);
    sigaltstack(NULL, &state.stack);
    fesetround(rounding);
#if defined(__x86_64__)
    unsigned control = _mm_getcsr() & ~(unsigned)_MM_EXCEPT_MASK;
    _mm_setcsr(control | _MM_FLUSH_ZERO_ON | _MM_EXCEPT_INEXACT);
#endif
    state.sse = sse_state();
    state.x87 = x87_state();
    errno = error;
    return state;
}

// The checks that need no system call: all they touch is the thread's own.
static void check_registers(const struct state *state, uint64_t count) {
    CHECK(errno == state->error, "iteration %" PRIu64 ": errno is %d", count, errno);
    CHECK(sse_state() == state->sse, "iteration %" PRIu64 ": MXCSR is %x for %x", count,
          sse_state(), state->sse);
    CHECK(x87_state() == state->x87, "iteration %" PRIu64 ": x87 control word is %x", count,
          x87_state());
    CHECK(fegetround() == state->rounding, "iteration %" PRIu64 ": rounding is %d", count,
          fegetround());
}

static void check_kernel(const struct state *state, uint64_t count) {
    sigset_t blocked;
    stack_t stack;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0, "pthread_sigmask failed");
    for (int number = 1; number <= SIGRTMAX; number++) {
        CHECK(sigismember(&blocked, number) == sigismember(&state->blocked, number),
              "iteration %" PRIu64 ": signal %d is %sblocked", count, number,
              sigismember(&blocked, number) == 1 ? "" : "not ");
    }
    sigaltstack(NULL, &stack);
    CHECK(stack.ss_sp == state->stack.ss_sp && stack.ss_flags == state->stack.ss_flags,
          "iteration %" PRIu64 ": the alternate stack has changed", count);
    errno = state->error;
}

// A leaf function keeps values up to 128 bytes below the stack pointer (System V ABI, 3.2.2), and
// the kernel must build a signal frame below these. Returns whether they stay what they were.
__attribute__((noinline)) static bool red_zone(uint64_t value) {
#if defined(__x86_64__)
    uint64_t again;
    __asm__ volatile(
        "movq %1, -8(%%rsp)\n\t"
        "movq %1, -128(%%rsp)\n\t"
        "movl $2000, %%ecx\n"
        "1:\tdecl %%ecx\n\t"
        "jnz 1b\n\t"
        "movq -8(%%rsp), %0\n\t"
        "xorq -128(%%rsp), %0\n\t"
        "xorq %1, %0\n\t"
        : "=&r"(again)
        : "r"(value)
        : "rcx", "cc", "memory");
    return again == value;
#else
    (void)value;
    return true;
#endif
}

// ---- threads ----------------------------------------------------------------------------------

static void *watcher(void *unused) {
    struct state state = enter(77, FE_UPWARD, SIGUSR1);
    for (uint64_t count = 1; !finished || count <= (uint64_t)quota; count++) {
        check_registers(&state, count);
        CHECK(red_zone(count), "iteration %" PRIu64 ": the red zone was overwritten", count);
        if (count % 1024 == 0) {
            check_kernel(&state, count);
        }
    }
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
                                         {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, watcher, NULL) == 0, "no thread");
    pthread_setname_np(thread, "watcher");
    for (step = 1; step <= steps; step++) {
        work_step();
        // Set anew in each step, because the MPI library may change errno and raise flags.
        struct state state = enter(78, FE_DOWNWARD, SIGUSR2);
        for (uint64_t count = 0; count < 100; count++) {
            check_registers(&state, count);
            CHECK(red_zone(count), "the red zone was overwritten");
        }
        check_kernel(&state, 0);
        fesetround(FE_TONEAREST);
        pause_us(delay_us);
    }
    finished = true;
    pthread_join(thread, NULL);
    report("state ok");
    MPI_Finalize();
    return 0;
}
