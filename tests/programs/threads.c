// MPI ranks with two threads that compute while the main thread communicates.
//
// Each thread's state is a known function of its count of iterations, held in registers of a kind
// of its own (general; vector, mask and x87), and compared with that function every BLOCK
// iterations: a register that a checkpoint changed, or an iteration lost or repeated, soon shows.
//
// --steps N       steps of the main thread
// --quota N       blocks that each computing thread does at least; its state there is printed
// --delay-us N    pause after each step
// --rest-us N     pause of a computing thread after each block; 0: it computes without ever stopping

#include "common.h"

#include <stdatomic.h>
#include <sys/resource.h>

enum { BLOCK = 1 << 16, LANES = 8 };

// Primes below 2^51, so that all sums are exact in a double.
#define MODULUS 2251799813685119.0

typedef double vector __attribute__((vector_size(8 * LANES)));
typedef int64_t mask __attribute__((vector_size(8 * LANES)));

static long steps = 200, quota = 20, delay_us, rest_us = 8000;
static atomic_bool finished;

// Threads that are there have told the kernel of themselves (rseq, robust locks): what a snapshot in
// memory cannot take back. So the first step finds them all there.
static pthread_barrier_t all_there;

// What a thread tells the main thread: read by it after the join, by a debugger at any time.
struct progress {
    _Atomic uint64_t blocks;
    uint64_t at_quota;
};
static struct progress integers, vectors;

// On a machine with fewer processors than threads the computing threads would take them all, and a
// step of the main thread would last tens of milliseconds. In Linux a nice value is a thread's own.
static void begin(void) {
    pthread_barrier_wait(&all_there);
    setpriority(PRIO_PROCESS, 0, 10);
}

// So that two ranks do not take all of a machine from whoever looks at them.
static void rest(void) {
    struct timespec time = {rest_us / 1000000, rest_us % 1000000 * 1000};
    if (rest_us) CHECK(nanosleep(&time, NULL) == 0, "a pause was interrupted");
}

// ---- general registers ------------------------------------------------------------------------

static const struct lcg maps[4] = {
    {UINT64_C(6364136223846793005), UINT64_C(1442695040888963407)},
    {UINT64_C(2862933555777941757), UINT64_C(3037000493)},
    {UINT64_C(3202034522624059733), 1},
    {UINT64_C(3935559000370003845), UINT64_C(2691343689449507681)},
};

__attribute__((noinline)) static void integer_block(uint64_t state[4]) {
    uint64_t a = state[0], b = state[1], c = state[2], d = state[3];
    for (int i = 0; i < BLOCK; i++) {
        a = a * maps[0].factor + maps[0].term;
        b = b * maps[1].factor + maps[1].term;
        c = c * maps[2].factor + maps[2].term;
        d = d * maps[3].factor + maps[3].term;
        // So that the compiler neither merges iterations nor moves them to vector registers.
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
    }
    state[0] = a, state[1] = b, state[2] = c, state[3] = d;
}

static void *integer_thread(void *unused) {
    begin();
    uint64_t start[4], state[4];
    for (int i = 0; i < 4; i++) {
        start[i] = state[i] = (uint64_t)(my_rank * 4 + i + 1);
    }
    for (uint64_t blocks = 1; !finished || blocks <= (uint64_t)quota; blocks++) {
        integer_block(state);
        for (int i = 0; i < 4; i++) {
            struct lcg map = lcg_power(maps[i], blocks * BLOCK);
            uint64_t expected = map.factor * start[i] + map.term;
            CHECK(state[i] == expected,
                  "integers, block %" PRIu64 ", state %d: %" PRIx64 " for %" PRIx64, blocks, i,
                  state[i], expected);
        }
        if (blocks == (uint64_t)quota) {
            integers.at_quota = fnv(FNV_START, state, sizeof state);
        }
        integers.blocks = blocks;
        rest();
    }
    return unused;
}

// ---- vector, mask and x87 registers -----------------------------------------------------------

// state: LANES numbers modulo MODULUS to which `increment` is added, and a count.
// Inlined in one function for each instruction set, so that the same source uses xmm, ymm, or zmm
// and mask registers.
__attribute__((always_inline)) static inline void vector_loop(double *state,
                                                              const double *increment,
                                                              long double *count) {
    vector value, add, modulus;
    memcpy(&value, state, sizeof value);
    memcpy(&add, increment, sizeof add);
    for (int lane = 0; lane < LANES; lane++) {
        modulus[lane] = MODULUS;
    }
    long double counted = *count;
    for (int i = 0; i < BLOCK; i++) {
        value += add;
        mask over = value >= modulus;
        value -= (vector)(over & (mask)modulus);
        counted += 1;
#if defined(__x86_64__)
        __asm__ volatile("" : "+t"(counted));
#endif
    }
    *count = counted;
    memcpy(state, &value, sizeof value);
}

typedef void vector_block(double *state, const double *increment, long double *count);

__attribute__((noinline)) static void vector_block_baseline(double *state, const double *increment,
                                                            long double *count) {
    vector_loop(state, increment, count);
}

#if defined(__x86_64__)
__attribute__((noinline, target("avx2"))) static void vector_block_avx2(double *state,
                                                                        const double *increment,
                                                                        long double *count) {
    vector_loop(state, increment, count);
}

__attribute__((noinline, target("avx512f,avx512dq"))) static void vector_block_avx512(
    double *state, const double *increment, long double *count) {
    vector_loop(state, increment, count);
}
#endif

static vector_block *best_vector_block(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
        return vector_block_avx512;
    }
    if (__builtin_cpu_supports("avx2")) {
        return vector_block_avx2;
    }
#endif
    return vector_block_baseline;
}

static void *vector_thread(void *unused) {
    begin();
    vector_block *block = best_vector_block();
    double start[LANES], state[LANES], increment[LANES];
    long double count = 0;
    for (int lane = 0; lane < LANES; lane++) {
        start[lane] = state[lane] = my_rank * LANES + lane;
        increment[lane] = 1e15 + 7919.0 * (lane + 1);
    }
    for (uint64_t blocks = 1; !finished || blocks <= (uint64_t)quota; blocks++) {
        block(state, increment, &count);
        for (int lane = 0; lane < LANES; lane++) {
            unsigned __int128 sum = (unsigned __int128)(uint64_t)increment[lane] * blocks * BLOCK;
            double expected =
                (double)(uint64_t)((sum + (uint64_t)start[lane]) % (uint64_t)MODULUS);
            CHECK(state[lane] == expected, "vectors, block %" PRIu64 ", lane %d: %.17g for %.17g",
                  blocks, lane, state[lane], expected);
        }
        CHECK(count == (long double)(blocks * BLOCK), "vectors, block %" PRIu64 ": counted %Lg",
              blocks, count);
        if (blocks == (uint64_t)quota) {
            vectors.at_quota = fnv(FNV_START, state, sizeof state);
        }
        vectors.blocks = blocks;
        rest();
    }
    return unused;
}

// ---- the main thread --------------------------------------------------------------------------

static uint64_t digest;

// Every rank passes here once in each step.
__attribute__((noinline)) static void work_step(void) {
    uint64_t received = exchange(digest);
    digest = fnv(digest, &received, sizeof received);
}

int main(int argc, char **argv) {
    parse_options(argc, argv,
                  (struct option_spec[]){{"--steps", &steps, NULL},
                                         {"--quota", &quota, NULL},
                                         {"--delay-us", &delay_us, NULL},
                                         {"--rest-us", &rest_us, NULL},
                                         {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    digest = fnv(FNV_START, &my_rank, sizeof my_rank);

    pthread_t threads[2];
    CHECK(pthread_barrier_init(&all_there, NULL, 3) == 0, "no barrier");
    CHECK(pthread_create(&threads[0], NULL, integer_thread, NULL) == 0, "no thread");
    CHECK(pthread_create(&threads[1], NULL, vector_thread, NULL) == 0, "no thread");
    pthread_setname_np(threads[0], "integers");
    pthread_setname_np(threads[1], "vectors");
    pthread_barrier_wait(&all_there);

    for (step = 1; step <= steps; step++) {
        work_step();
        pause_us(delay_us);
    }
    finished = true;
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }

    char line[128];
    snprintf(line, sizeof line, "steps %ld digest %016" PRIx64 " integers %016" PRIx64
             " vectors %016" PRIx64, step - 1, digest, integers.at_quota, vectors.at_quota);
    report(line);
    MPI_Finalize();
    return 0;
}
