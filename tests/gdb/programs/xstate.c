// Has its extended registers in use where a GDB stops it: at `held`. x86-64 with AVX.
//
// Before each of them it loads its registers from `in`, and behind it stores them to `out`. `tiles`:
// it uses those of AMX too, if the processor has them and the kernel allows it.

#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18

struct registers {
    uint64_t ymm[2][4];
    double x87;
    uint32_t mxcsr;
    uint8_t tile[16][64];
};

// One tile of 16 rows of 64 bytes; see TILECFG in Intel's manual.
static const struct {
    uint8_t palette, start, zero[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} shape = {.palette = 1, .bytes = {64}, .rows = {16}};

struct registers in = {{{1, 2, 3, 4}, {5, 6, 7, 8}}, 1.25, 0x1fa0, {{0}}}, out;
volatile int tiles, ending;

int twice(int k) {
    return 2 * k;
}

static void load_tile(void) {
    __asm__ volatile("ldtilecfg %0\n\t"
                     "tileloadd (%1,%2), %%tmm0"
                     :
                     : "m"(shape), "r"(in.tile), "r"(64L)
                     : "memory");
}

static void store_tile(void) {
    __asm__ volatile("tilestored %%tmm0, (%0,%1)\n\t"
                     "tilerelease"
                     :
                     : "r"(out.tile), "r"(64L)
                     : "memory");
}

static void hold(void) {
    __asm__ volatile("vmovdqu (%0), %%ymm1\n\t"
                     "vmovdqu 32(%0), %%ymm2\n\t"
                     "fldl %2\n\t"
                     "ldmxcsr %4\n\t"
                     ".globl held\n\t"
                     ".type held, @function\n"
                     "held:\n\t"
                     "vmovdqu %%ymm1, (%1)\n\t"
                     "vmovdqu %%ymm2, 32(%1)\n\t"
                     "fstpl %3\n\t"
                     "stmxcsr %5\n\t"
                     "vzeroupper"
                     :
                     : "r"(in.ymm), "r"(out.ymm), "m"(in.x87), "m"(out.x87), "m"(in.mxcsr),
                       "m"(out.mxcsr)
                     : "xmm1", "xmm2", "st", "memory");
}

void passed(void) {}

int main(void) {
    for (int i = 0; i < 16 * 64; i++) in.tile[i / 64][i % 64] = (uint8_t)(i * 7);
    tiles = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
    if (write(1, "!", 1) != 1) return 1;
    while (!ending) {
        memset(&out, 0, sizeof out);
        if (tiles) load_tile();
        hold();
        if (tiles) store_tile();
        passed();
        usleep(1000);
    }
    return 0;
}
