// A library whose inner functions have no name once it is stripped, and nothing with a name before
// them: as those in which glibc waits for the kernel.
//
// cc -shared -fPIC -fvisibility=hidden -fno-toplevel-reorder -s nameless.c

__attribute__((noinline)) static int innermost(volatile int *until) {
    while (!*until) {
    }
    return *until;
}

__attribute__((noinline)) static int inner(volatile int *until) {
    return innermost(until) + 1;
}

__attribute__((visibility("default"))) int outermost(volatile int *until) {
    return inner(until) + 1;
}
