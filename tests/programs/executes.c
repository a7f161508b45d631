/* Opens some libraries, executes itself, opens them again, and exits with 3. With an argument it
   waits for a byte instead of executing itself. */

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char byte;
    if (argc > 1 && strcmp(argv[1], "waits") == 0) {
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
        if (write(1, "+", 1) != 1 || read(0, &byte, 1) != 1) _exit(99);
    }
    const char *names[] = {"libm.so.6", "libresolv.so.2", "libanl.so.1"};
    for (int i = 0; i < 3; i++)
        if (dlopen(names[i], RTLD_NOW) == NULL) _exit(100 + i);
    if (argc < 2) execl("/proc/self/exe", argv[0], "again", (char *)NULL);
    exit(3);
}
