/* The files that a job over hosts has on a host other than crdebug's: they end with its last process
 * there, whatever becomes of crdebug and of its agent. */
#define _GNU_SOURCE 1
#include "starter.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VARIABLE "CRDEBUG_JOB=" /* crdebug/node/bare.py */

/* As it was when its program started. */
static bool has(const char *pid, const char *mark) {
    char path[64], *text = NULL;
    size_t room = 0, prefix = strlen(VARIABLE);
    bool found = false;
    snprintf(path, sizeof path, "/proc/%.20s/environ", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    while (!found && getdelim(&text, &room, 0, file) > 0)
        found = strncmp(text, VARIABLE, prefix) == 0 && strcmp(text + prefix, mark) == 0;
    free(text);
    fclose(file);
    return found;
}

/* Waits for the end of one of them; false if there is none. */
static bool await_one(const char *mark) {
    bool found = false;
    DIR *directory = opendir("/proc");
    for (struct dirent *entry;
         directory != NULL && !found && (entry = readdir(directory)) != NULL;) {
        if (*entry->d_name < '1' || *entry->d_name > '9' || !has(entry->d_name, mark)) continue;
        int process = (int)syscall(SYS_pidfd_open, atoi(entry->d_name), 0);
        if (process < 0 && errno == ESRCH) continue; /* it has ended meanwhile */
        struct pollfd end = {.fd = process, .events = POLLIN};
        found = true;
        while (poll(&end, 1, process < 0 ? 1000 : -1) < 0) continue;
        close(process);
    }
    if (directory != NULL) closedir(directory);
    return found;
}

int sweep(const char *mark, const char *directory) {
    pid_t child = fork();
    if (child < 0) perror("starter: fork");
    if (child != 0) return child < 0;
    setsid();
    stand_alone();
    while (await_one(mark)) continue;
    remove_all(directory);
    _exit(0);
}
