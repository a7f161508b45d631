// A rank that ends by a fault: an even one in store(), an odd one in divide().

#include <stdlib.h>

struct cell {
    int step;
    double values[3];
};

static volatile int zero;
static struct cell cells[2] = {{7, {0.5, 1.5, 2.5}}, {8, {3.5, 4.5, 5.5}}};
static int my_rank;

__attribute__((noinline)) static void store(struct cell *where, int step) { where->step = step; }

__attribute__((noinline)) static int divide(int step) { return step / zero; }

__attribute__((noinline)) static int work(int step) {
    if (my_rank % 2 == 0) {
        store(NULL, step);
    }
    return divide(cells[1].step);
}

int main(int argc, char **argv) {
    my_rank = argc > 1 ? atoi(argv[1]) : 0;
    return work(40 + my_rank);
}
