// Waits for a signal in a system call, which the signal must end, and says what came of it. Nothing
// but `ppoll` itself lets the signal into that call.
//
// shim.so    crdebug's, which can hold the process then
// N          the signal that leads into its waitpoint
// N          the signal to wait for
// call       ppoll or pause

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t came;

static void on_signal(int number) {
    (void)number;
    came++;
}

int main(int argc, char **argv) {
    void *shim = argc == 5 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (!shim) {
        return 1;
    }
    int (*adopt)(int, int);
    *(void **)&adopt = dlsym(shim, "crdebug_adopt");
    int number = atoi(argv[3]);
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t ours, none;
    sigemptyset(&none);
    sigemptyset(&ours);
    sigaddset(&ours, number);
    int polls = strcmp(argv[4], "ppoll") == 0;
    if (adopt(0, atoi(argv[2])) || sigaction(number, &action, NULL) ||
        sigprocmask(polls ? SIG_BLOCK : SIG_UNBLOCK, &ours, NULL) ||
        write(STDOUT_FILENO, "!", 1) != 1) {
        return 1;
    }
    int result = polls ? ppoll(NULL, 0, NULL, &none) : pause();
    printf("%d %s %d", result, strerrorname_np(errno), (int)came);
    return 0;
}
