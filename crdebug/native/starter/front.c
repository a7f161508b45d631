/* What an MPIR tool starts in the launcher's place:
 *
 *   starter --front [OPTION OF crdebug run]... -- LAUNCHER ARG...
 *
 * The job's own starter is in its container, where a tool can attach to it, but not start. This
 * process stays outside and has `crdebug run --no-debugger` make the job; it tells tools who the
 * ranks are, forwards signals, and ends with the status of the job. If a tool was there before main
 * (MPIR_being_debugged), no rank comes to its main before MPIR_Breakpoint has returned. */
#define _GNU_SOURCE 1
#include "starter.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* "The MPIR Process Acquisition Interface", sections 9.12 and 9.4. */
int MPIR_acquired_pre_main = 1;
char *MPIR_debug_abort_string = NULL;

static volatile pid_t child;

/* What the terminal sends, it sends to the child as well. */
static void forward(int number, siginfo_t *info, void *context) {
    (void)context;
    if (info->si_code <= 0 && child > 0) kill(child, number);
}

static void forward_signals(void) {
    static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    struct sigaction action = {.sa_sigaction = forward, .sa_flags = SA_SIGINFO | SA_RESTART};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
}

static _Noreturn void become_crdebug(int channel, int count, char **arguments) {
    char number[16], **words = calloc((size_t)count + 8, sizeof *words);
    if (words == NULL) _exit(125);
    snprintf(number, sizeof number, "%d", channel);
    char *first[] = {"crdebug", "run", "--no-debugger", "--front", number, "--gated"};
    size_t used = sizeof first / sizeof *first - !MPIR_being_debugged;
    memcpy(words, first, used * sizeof *words);
    memcpy(words + used, arguments, (size_t)count * sizeof *words);
    execvp(words[0], words);
    fprintf(stderr, "starter: cannot start crdebug: %s\n", strerror(errno));
    _exit(127);
}

/* Returns how many ranks there are: 0 if the job ended before it had any. */
static int read_table(FILE *from) {
    char *line = NULL;
    size_t room = 0;
    int size = 0;
    while (getline(&line, &room, from) > 0) {
        int pid, executable = 0;
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "job ", 4) == 0) describe_job(line + 4);
        if (strcmp(line, "all") == 0) return size;
        if (sscanf(line, "rank %d %n", &pid, &executable) != 1 || executable == 0) continue;
        MPIR_PROCDESC *more = realloc(MPIR_proctable, (size_t)(size + 1) * sizeof *more);
        char *name = strdup(line + executable);
        if (more == NULL || name == NULL) return 0;
        MPIR_proctable = more;
        MPIR_proctable[size++] = (MPIR_PROCDESC){MPIR_controller_hostname, name, pid};
    }
    return 0;
}

int front(int count, char **arguments) {
    static char ended[64];
    int channel[2], status;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0 || (child = fork()) < 0) {
        perror("starter");
        return 125;
    }
    if (child == 0) {
        close(channel[0]);
        become_crdebug(channel[1], count, arguments);
    }
    close(channel[1]);
    forward_signals();
    FILE *from = fdopen(channel[0], "r");
    int size = from == NULL ? 0 : read_table(from);
    if (size > 0) {
        MPIR_proctable_size = size;
        MPIR_debug_state = MPIR_DEBUG_SPAWNED;
        MPIR_Breakpoint();
        send(channel[0], "go\n", 3, MSG_NOSIGNAL);
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return 125;
    status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (status != 0) {
        snprintf(ended, sizeof ended, "the job ended with status %d", status);
        MPIR_debug_abort_string = ended;
        MPIR_debug_state = MPIR_DEBUG_ABORTING;
        MPIR_Breakpoint();
    }
    return status;
}
