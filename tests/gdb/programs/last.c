/* Its last function is called by the dynamic linker, at its end: with status 7, once `go` is set. */
#include <unistd.h>

volatile int go;

__attribute__((destructor)) static void last(void) {
    go++;
}

int main(void) {
    if (write(1, "!", 1) != 1) {
        return 1;
    }
    while (!go) {
        usleep(1000);
    }
    return 7;
}
