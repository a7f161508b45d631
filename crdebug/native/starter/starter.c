/* The starter: the first process of a job, in its container.
 *
 *   starter [--hold] [--signal N] [--shim FILE] [--bare SCRATCH] --job NAME --dir DIR --report FD
 *           [--wait FD] -- LAUNCHER ARG...
 *   starter --keep PID --host NAME --dir DIR --report FD --wait FD
 *   starter --enter ...
 *   starter --carry-out PLAN
 *   starter --crs-action SOCKET SERVER
 *   starter --front ...
 *   starter --try-container
 *
 * The first form makes the namespaces, writes the host PID of the keeper (their PID 1, see keeper.c) to
 * descriptor FD and leaves the keeper behind, and the starter below it, which owns the job's stdio,
 * reaps, forwards signals, answers the ranks' registrations, holds the MPIR symbols, and ends with the
 * launcher's status. DIR (on the host) is mounted at CRDEBUG_DIR (with --bare there is no container, see bare.c); the job's output is in its files `stdout` and `stderr` (see output.c), what it is to
 * read in `input` (see input.c), its ranks make themselves known (see registration.c), and `events` gets a line
 *   ranks N      all N ranks are in MPIR_proctable
 *   late N FILE  an MPI program started in rank N whose place another process has, see accept_rank
 *   spawned FILE the first process that the launcher started when all ranks had been there
 *   failed TEXT  the container or the launcher could not be started
 *   waits STREAM WHY  the file of its standard STREAM takes no more: it is kept and tried again
 *   flows STREAM the file takes it again
 *   died N       signal N ended the launcher
 *   exit N       the launcher ended; 128 + signal number if a signal ended it
 *
 * The second form leaves behind only a keeper, for a job that a CRS restores there, whose first process
 * will be PID; should --wait end before that is there, the keeper ends. For the others see enter.c,
 * commit.c, crs_action.c (CRIU's action script), front.c (what tools start) and bare.c. */
#define _GNU_SOURCE 1
#include "crdebug.h"
#include "places.h"
#include "preload.h"
#include "starter.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what debuggers read, see starter.h --------------------------------------------------------- */

MPIR_PROCDESC *MPIR_proctable = NULL;
int MPIR_proctable_size = 0;
volatile int MPIR_being_debugged = 0;
volatile int MPIR_debug_state = MPIR_NULL;
int MPIR_i_am_starter = 0;
int MPIR_partial_attach_ok = 0;

/* The checkpoint/restart extension of Hursey et al. (2010), section 4. */
int MPIR_checkpointable = 1;
char MPIR_checkpoint_command[256];
char MPIR_restart_command[256] = "crdebug restart --held";
char MPIR_checkpoint_listing_command[256];
char MPIR_controller_hostname[256];

__attribute__((noinline)) void MPIR_Breakpoint(void) { __asm__ volatile(""); }

/* ---- state -------------------------------------------------------------------------------------- */

static struct options {
    int hold, inside, keep, report, signal, wait;
    const char *shim, *job, *dir, *host, *bare;
    char **launcher;
} options = {.report = -1, .wait = -1, .signal = CRDEBUG_DEFAULT_SIGNAL};

static int events = -1;
static volatile sig_atomic_t child_pending, forward_pending[NSIG];

void tell(const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length < 0) return;
    if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
    line[length++] = '\n';
    if (events < 0 || write(events, line, (size_t)length) != length) {
        ssize_t ignored = write(2, line, (size_t)length);
        (void)ignored;
    }
}

static _Noreturn void fail(const char *what) {
    tell("failed %s: %s", what, strerror(errno));
    _exit(125);
}

static int open_events(void) {
    char place[PATH_MAX];
    events =
        open(crdebug_place(place, CRDEBUG_EVENTS), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (events < 0) return -1;
    /* So that a full disk can be told of. Where no space can be had beforehand, there is none. */
    fallocate(events, FALLOC_FL_KEEP_SIZE, 0, 4096);
    return 0;
}

static void open_stdio(void) {
    static const struct {
        const char *path;
        int flags;
    } files[3] = {{"/dev/null", O_RDONLY},
                  {"stdout", O_WRONLY | O_APPEND | O_CREAT},
                  {"stderr", O_WRONLY | O_APPEND | O_CREAT}};
    char place[PATH_MAX];
    for (int i = 0; i < 3; i++) {
        const char *path = i == 0 ? files[i].path : crdebug_place(place, files[i].path);
        int file = open(path, files[i].flags, 0600);
        if (file < 0) fail(path);
        if (file != i && (dup2(file, i) < 0 || close(file) != 0)) fail("dup2");
    }
}

/* The tree must not hold descriptors that belong to the mount namespace outside: the CRS refuses. */
static void close_others(int but) {
    if (but > 3) syscall(SYS_close_range, 3u, (unsigned)but - 1, 0u);
    syscall(SYS_close_range, (unsigned)(but < 3 ? 3 : but + 1), ~0u, 0u);
}

/* ---- the launcher ------------------------------------------------------------------------------- */

static const int forwarded[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                                SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP};
#define FORWARDED (sizeof forwarded / sizeof *forwarded)

/* CRDEBUG_INPUT_SIGNAL only wakes us: the file is looked at each time. */
static void note_signal(int number) {
    if (number == SIGCHLD) child_pending = 1;
    else if (number != CRDEBUG_INPUT_SIGNAL) forward_pending[number] = 1;
}

static void block_signals(sigset_t *unblocked) {
    sigset_t ours;
    struct sigaction action = {.sa_handler = note_signal};
    sigemptyset(&ours);
    sigaddset(&ours, SIGCHLD);
    sigaddset(&ours, CRDEBUG_INPUT_SIGNAL);
    for (size_t i = 0; i < FORWARDED; i++) sigaddset(&ours, forwarded[i]);
    sigprocmask(SIG_BLOCK, &ours, unblocked);
    sigaction(SIGCHLD, &action, NULL);
    sigaction(CRDEBUG_INPUT_SIGNAL, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < FORWARDED; i++) sigaction(forwarded[i], &action, NULL);
}

static void prepare_environment(void) {
    char text[8192];
    const char *old = getenv("LD_PRELOAD");
    if (options.shim != NULL) {
        if (old == NULL) old = "";
        int first = (int)runtimes_first(old); /* which must come before us too, see preload.c */
        int length = snprintf(text, sizeof text, "%.*s%s%s%s%s", first, old, first ? ":" : "",
                              options.shim, old[first] ? ":" : "", old + first);
        if (length >= (int)sizeof text) fail("LD_PRELOAD is too long");
        setenv("LD_PRELOAD", text, 1);
    }
    if (options.bare == NULL) setenv("CRDEBUG_ASIDE", "1", 1);
    /* Ranks on other hosts could not reach it, so those on this one do not either. */
    if (getenv(CRDEBUG_OVER_HOSTS_VARIABLE)) unsetenv(CRDEBUG_DIR_VARIABLE);
    snprintf(text, sizeof text, "%d", options.signal);
    setenv("CRDEBUG_SIGNAL", text, 1);
}

static pid_t start_launcher(const sigset_t *unblocked, const int ends[3]) {
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child > 0) return child;
    for (size_t i = 0; i < FORWARDED; i++) signal(forwarded[i], SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    signal(CRDEBUG_INPUT_SIGNAL, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    for (int i = 0; i < 3; i++)
        if (dup2(ends[i], i) < 0) fail("dup2");
    sigprocmask(SIG_SETMASK, unblocked, NULL);
    setpgid(0, 0);
    prepare_environment();
    execvp(options.launcher[0], options.launcher);
    tell("failed %s: %s", options.launcher[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static int status_of(int status) {
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Reaps all that ended; returns the launcher's status once it is among them, else -1. */
static int reap(pid_t launcher) {
    int status, result = -1;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        if (pid == launcher) {
            result = status_of(status);
            if (WIFSIGNALED(status)) tell("died %d", WTERMSIG(status));
        }
    return result;
}

static void forward_signals(pid_t launcher) {
    for (size_t i = 0; i < FORWARDED; i++)
        if (forward_pending[forwarded[i]]) {
            forward_pending[forwarded[i]] = 0;
            kill(launcher, forwarded[i]);
        }
}

static _Noreturn void run_container(void) {
    sigset_t unblocked;
    if (open_events() != 0) fail("open the file of events");
    open_stdio();
    block_signals(&unblocked);
    int listener = listen_for_ranks();
    if (listener < 0) fail("listen for the ranks");
    MPIR_being_debugged = options.hold;
    int ends[3] = {open_input()};
    if (ends[0] < 0) fail("open the file of input");
    if (open_output(ends + 1) != 0) fail("make the pipes for the output");
    pid_t launcher = start_launcher(&unblocked, ends);
    for (int i = 0; i < 3; i++) close(ends[i]);
    for (int ended = -1;;) {
        int output[2];
        pass_input_on();
        pass_output_on();
        if (ended >= 0 && output_is_out()) {
            tell("exit %d", ended);
            if (options.bare != NULL) end_descendants();
            _exit(ended);
        }
        /* The kernel tells nobody when a disk has space again. */
        const struct timespec soon = {.tv_nsec = 200 * 1000 * 1000};
        const struct timespec *most = output_comes(output) ? &soon : NULL;
        struct pollfd wanted[4] = {{.fd = listener, .events = POLLIN},
                                   {.fd = input_waits(), .events = POLLOUT},
                                   {.fd = output[0], .events = POLLIN},
                                   {.fd = output[1], .events = POLLIN}};
        if (ppoll(wanted, 4, most, &unblocked) > 0 && wanted[0].revents)
            serve_rank(listener, options.hold);
        if (child_pending) {
            child_pending = 0;
            int status = reap(launcher);
            if (status >= 0) {
                ended = status;
                end_output();
            }
        }
        if (ended < 0) forward_signals(launcher);
    }
}

/* ---- start -------------------------------------------------------------------------------------- */

static _Noreturn void usage(const char *problem) {
    fprintf(stderr, "starter: %s\n", problem);
    exit(2);
}

static void parse(int count, char **arguments) {
    options.inside = strcmp(arguments[0], "starter-inside") == 0;
    int i = 1;
    for (; i < count && strcmp(arguments[i], "--") != 0; i++) {
        if (strcmp(arguments[i], "--hold") == 0) {
            options.hold = 1;
            continue;
        }
        if (i + 1 == count) usage("an option without its value");
        const char *name = arguments[i], *value = arguments[++i];
        if (strcmp(name, "--signal") == 0) options.signal = atoi(value);
        else if (strcmp(name, "--shim") == 0) options.shim = value;
        else if (strcmp(name, "--job") == 0) options.job = value;
        else if (strcmp(name, "--dir") == 0) options.dir = value;
        else if (strcmp(name, "--bare") == 0) options.bare = value;
        else if (strcmp(name, "--report") == 0) options.report = atoi(value);
        else if (strcmp(name, "--wait") == 0) options.wait = atoi(value);
        else if (strcmp(name, "--keep") == 0) options.keep = atoi(value);
        else if (strcmp(name, "--host") == 0) options.host = value;
        else usage("an unknown option");
    }
    options.launcher = arguments + i + 1;
    int whole = options.keep ? options.wait >= 0 : i + 1 < count && options.job != NULL;
    if (!whole || options.dir == NULL || options.report < 0)
        usage("wanted: --job NAME --dir DIR --report FD [--wait FD] -- LAUNCHER ARG...");
}

void describe_job(const char *job) {
    snprintf(MPIR_checkpoint_command, sizeof MPIR_checkpoint_command,
             "crdebug checkpoint --held %s", job);
    snprintf(MPIR_checkpoint_listing_command, sizeof MPIR_checkpoint_listing_command,
             "crdebug checkpoints %s", job);
    gethostname(MPIR_controller_hostname, sizeof MPIR_controller_hostname - 1);
}

/* crdebug writes down who we are first; should it die before, there is to be no job. */
static void await_go(void) {
    char word;
    close(options.report); /* its end is awaited */
    if (options.wait >= 0 && read(options.wait, &word, 1) != 1) _exit(125);
}

static _Noreturn void run_bare(void) {
    await_go();
    close_others(-1);
    setsid();
    describe_job(options.job);
    run_container();
}

/* The starter starts its program anew: mapped from the mount namespace outside, its file could not be
 * found by the CRS in the one inside ("Can't lookup mount"). */
static _Noreturn void become_starter(char **arguments) {
    static char self[4096];
    await_go();
    close_others(-1);
    setsid();
    /* System V's shared memory is in an image only as part of a namespace, which takes root to restore. */
    if (geteuid() == 0 && unshare(CLONE_NEWIPC) != 0) fail("make an IPC namespace");
    /* Orphans of the job stay below its first process, where the CRS finds them. */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) fail("adopt orphans");
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) fail("readlink /proc/self/exe");
    arguments[0] = "starter-inside";
    execv(self, arguments);
    fail(self);
}

/* PID 1. ready: told once the container stands, and what is to be its first process is there. */
static _Noreturn void become_keeper(char **arguments, int ready) {
    const char *problem = build_container(options.dir);
    if (problem == NULL && options.host != NULL &&
        sethostname(options.host, strlen(options.host)) != 0)
        problem = "sethostname";
    pid_t first = options.keep;
    if (problem == NULL && first == 0) {
        if (leave_low_numbers() != 0) problem = "write /proc/sys/kernel/ns_last_pid";
        else if ((first = fork()) < 0) problem = "fork";
        else if (first == 0) become_starter(arguments);
    }
    if (problem != NULL) {
        fprintf(stderr, "starter: %s: %s\n", problem, strerror(errno));
        _exit(125);
    }
    if (write(ready, "!", 1) != 1) _exit(125);
    int stay = options.keep ? options.wait : -1;
    close_others(stay);
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; null >= 0 && i < 3; i++) dup2(null, i);
    if (null > 2) close(null);
    setsid();
    if (chdir("/") != 0) _exit(125);
    if (stay >= 0) keep_for_restore(first, stay);
    keep(first);
}

static int make_container(char **arguments) {
    int ready[2];
    char text[32], word;
    if (pipe2(ready, O_CLOEXEC) != 0 || make_namespaces() != 0) {
        fprintf(stderr, "starter: cannot make namespaces: %s\n", strerror(errno));
        return 1;
    }
    pid_t keeper = fork();
    if (keeper < 0) {
        perror("starter: fork");
        return 1;
    }
    if (keeper == 0) become_keeper(arguments, ready[1]);
    close(ready[1]);
    if (read(ready[0], &word, 1) != 1) return 1; /* it has said why */
    int length = snprintf(text, sizeof text, "%d\n", (int)keeper);
    return write(options.report, text, (size_t)length) == length ? 0 : 1;
}

int main(int count, char **arguments) {
    if (count == 4 && strcmp(arguments[1], "--crs-action") == 0)
        return crs_action(arguments[2], arguments[3]);
    if (count == 3 && strcmp(arguments[1], "--carry-out") == 0) {
        if (carry_out(arguments[2]) == 0) return 0;
        fprintf(stderr, "starter: %s\n", why_not_carried_out());
        return 1;
    }
    if (count > 1 && strcmp(arguments[1], "--front") == 0) return front(count - 2, arguments + 2);
    if (count > 1 && strcmp(arguments[1], "--enter") == 0) return enter(count - 2, arguments + 2);
    if (count == 2 && strcmp(arguments[1], "--try-container") == 0) return try_container();
    if (count == 4 && strcmp(arguments[1], "--sweep") == 0)
        return sweep(arguments[2], arguments[3]);
    parse(count, arguments);
    if (options.inside) {
        describe_job(options.job);
        run_container();
    }
    if (options.bare != NULL) return keep_bare(options.report, options.bare, run_bare);
    return make_container(arguments);
}
