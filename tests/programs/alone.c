// MPI ranks that compute for long between two MPI calls, each as long as it is told, and check what
// they have computed.
//
// --blocks N      blocks between two calls; one takes some 10 ms
// --alone R       only this rank computes, and the others wait for it in the call; -1: all of them
// --rests-ms N    a pause after each block
// --rounds N      so many times

#include "common.h"

enum { BLOCK = 1 << 22 };

#define NOINLINE __attribute__((noinline)) // a place for breakpoints

static long blocks = 100, alone = -1, rests_ms, rounds = 2;
static uint64_t state[2], expected[2];
static volatile long block, half;

static const struct lcg maps[2] = {
    {UINT64_C(6364136223846793005), UINT64_C(1442695040888963407)},
    {UINT64_C(2862933555777941757), UINT64_C(3037000493)},
};

static NOINLINE void before(void) { __asm__ volatile(""); }

static NOINLINE void crunch(void) {
    uint64_t a = state[0], b = state[1];
    for (int i = 0; i < BLOCK; i++) {
        a = a * maps[0].factor + maps[0].term;
        b = b * maps[1].factor + maps[1].term;
        __asm__ volatile("" : "+r"(a), "+r"(b)); // one after the other
    }
    state[0] = a, state[1] = b;
}

static NOINLINE void at_half(void) { half = block; }

static NOINLINE void after(void) {
    for (int i = 0; i < 2; i++) {
        struct lcg map = lcg_power(maps[i], (uint64_t)(blocks * BLOCK));
        expected[i] = map.factor * expected[i] + map.term;
        CHECK(state[i] == expected[i], "state %d is %" PRIx64 ", not %" PRIx64, i, state[i], expected[i]);
    }
}

// The long stretch: nothing of MPI.
static NOINLINE void compute(void) {
    for (block = 1; block <= blocks; block++) {
        crunch();
        if (block == blocks / 2) {
            at_half();
        }
        pause_us(rests_ms * 1000);
    }
    after();
}

int main(int argc, char **argv) {
    parse_options(argc, argv,
                  (struct option_spec[]){{"--blocks", &blocks, NULL},
                                         {"--alone", &alone, NULL},
                                         {"--rests-ms", &rests_ms, NULL},
                                         {"--rounds", &rounds, NULL},
                                         {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    for (int i = 0; i < 2; i++) {
        state[i] = expected[i] = (uint64_t)(my_rank * 2 + i + 1);
    }
    for (step = 1; step <= rounds; step++) {
        before();
        if (alone == -1 || alone == my_rank) {
            compute();
        }
        uint64_t sent = exchange(state[0]);
        CHECK(alone != -1 || sent != 0, "nothing came");
    }
    char line[96];
    snprintf(line, sizeof line, "%016" PRIx64 " %016" PRIx64, state[0], state[1]);
    report(line);
    MPI_Finalize();
    return 0;
}
