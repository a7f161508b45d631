/* A launcher that starts nothing: its process table (MPIR, sections 6 and 9) says what its arguments say.
 *
 *     launcher SIZE [HOST:PID]...     SIZE: of the table, whatever follows
 *
 * PID 0 stands for its own child, which only waits. It writes "ready", and ends with its input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct entry {
    char *host, *executable;
    int pid;
};

struct entry *MPIR_proctable;
int MPIR_proctable_size, MPIR_being_debugged, MPIR_debug_state;

int main(int count, char **arguments) {
    int child = fork();
    if (child == 0) {
        for (;;) pause();
    }
    MPIR_proctable = calloc((size_t)count, sizeof *MPIR_proctable);
    for (int k = 2; k < count; k++) {
        char *colon = strchr(arguments[k], ':');
        *colon = 0;
        int pid = atoi(colon + 1);
        MPIR_proctable[k - 2] = (struct entry){arguments[k], "/bin/program", pid ? pid : child};
    }
    MPIR_proctable_size = (int)strtoul(arguments[1], NULL, 0);
    puts("ready");
    fflush(stdout);
    getchar();
    char text[64];
    snprintf(text, sizeof text, "kill -9 %d", child);
    return system(text);
}
