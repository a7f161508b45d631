// Waits in a library, again and again, until somebody sets `go`. Writes one byte when it begins.

#include <unistd.h>

int outermost(volatile int *until);

volatile int go, turns;

int main(void) {
    if (write(STDOUT_FILENO, "!", 1) != 1) {
        return 1;
    }
    for (;;) {
        outermost(&go);
        turns++;
    }
}
