// MPI ranks with one thread in each kind of blocking system call; none may ever see EINTR.
//
// Every call here returns EINTR when a signal handler runs, unless the handler was installed with
// SA_RESTART for the few which honour that, see signal(7) "Interruption of system calls and library
// functions by signal handlers"; glibc's wrapper passes it on, but for pthread_cond_timedwait.
// epoll_wait, sigtimedwait and recv with SO_RCVTIMEO return it even when a process is only stopped
// and continued, by SIGSTOP or by a debugger, without any handler (ibid., "by stop signals").
//
// --timeout-ms N  of each call
// --rounds N      how often each thread makes its call
// --only A,B      only these calls, by the names in the table at the end
// --skip A,B      all but these calls
// --steps N       steps that the main thread does at least; it goes on until all threads are done
// --delay-us N    pause after each step of the main thread

#include "common.h"

#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static long steps = 1, delay_us = 1000, timeout_ms = 2000, rounds = 1;
static const char *only = "", *skip = "";

struct call {
    const char *name;
    // Makes the call and returns its result, with its errno.
    long (*make)(struct call *);
    // What an undisturbed call returns.
    long result;
    int error;
    // Whether it lasts timeout_ms; else it waits for the main thread to end it.
    bool timed;
    // Whether its time is the wall clock's, which goes on between a checkpoint and a restart.
    bool wall;
    // Sets up what the call waits for; NULL if nothing.
    void (*prepare)(struct call *);
    // What the main thread does, again and again, to end a call that is not timed.
    void (*end)(struct call *);
    int fds[2];
    pthread_t thread;
    atomic_bool done;
    bool used;
    char wrong[96];
};

// ---- time -------------------------------------------------------------------------------------

static struct timespec timeout(void) {
    return (struct timespec){timeout_ms / 1000, timeout_ms % 1000 * 1000000};
}

static int64_t now_ms(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static struct timespec deadline(clockid_t clock) {
    int64_t at = now_ms(clock) + timeout_ms;
    return (struct timespec){at / 1000, at % 1000 * 1000000};
}

// ---- the calls --------------------------------------------------------------------------------

static void make_pipe(struct call *call) {
    CHECK(pipe(call->fds) == 0, "pipe: %s", strerror(errno));
}

static long do_poll(struct call *call) {
    struct pollfd fd = {call->fds[0], POLLIN, 0};
    return poll(&fd, 1, (int)timeout_ms);
}

// With a signal mask of the call's own, as the shell and event loops have.
static long do_ppoll(struct call *call) {
    struct pollfd fd = {call->fds[0], POLLIN, 0};
    struct timespec after = timeout();
    sigset_t none;
    sigemptyset(&none);
    return ppoll(&fd, 1, &after, &none);
}

static long do_select(struct call *call) {
    struct timeval after = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(call->fds[0], &set);
    return select(call->fds[0] + 1, &set, NULL, NULL, &after);
}

static long do_nanosleep(struct call *call) {
    (void)call;
    struct timespec after = timeout();
    return nanosleep(&after, NULL);
}

static long do_clock_nanosleep(struct call *call) {
    (void)call;
    struct timespec at = deadline(CLOCK_MONOTONIC);
    errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    return errno ? -1 : 0;
}

static long do_sem_timedwait(struct call *call) {
    (void)call;
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    struct timespec at = deadline(CLOCK_REALTIME);
    return sem_timedwait(&semaphore, &at);
}

// The library hides EINTR, as a wakeup without a cause; what can show is a wrong result.
static long do_cond_timedwait(struct call *call) {
    (void)call;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_condattr_t attributes;
    pthread_cond_t condition;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&condition, &attributes);
    struct timespec at = deadline(CLOCK_MONOTONIC);
    pthread_mutex_lock(&mutex);
    int error;
    do {
        error = pthread_cond_timedwait(&condition, &mutex, &at);
    } while (error == 0);
    pthread_mutex_unlock(&mutex);
    errno = error;
    return -1;
}

static long do_futex(struct call *call) {
    (void)call;
    uint32_t word = 0;
    struct timespec after = timeout();
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &after, NULL, 0);
}

static void make_epoll(struct call *call) {
    make_pipe(call);
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {EPOLLIN, {.fd = call->fds[0]}};
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, call->fds[0], &event) == 0, "epoll: %s",
          strerror(errno));
    call->fds[0] = set;
}

static long do_epoll_wait(struct call *call) {
    struct epoll_event event;
    return epoll_wait(call->fds[0], &event, 1, (int)timeout_ms);
}

static void make_sockets(struct call *call) {
    struct timeval after = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, call->fds) == 0 &&
              setsockopt(call->fds[0], SOL_SOCKET, SO_RCVTIMEO, &after, sizeof after) == 0,
          "socketpair: %s", strerror(errno));
}

static long do_recv(struct call *call) {
    char byte;
    return recv(call->fds[0], &byte, 1, 0);
}

static long do_sigtimedwait(struct call *call) {
    (void)call;
    struct timespec after = timeout();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return sigtimedwait(&set, NULL, &after);
}

static long do_read(struct call *call) {
    char byte;
    return read(call->fds[0], &byte, 1);
}

static void end_read(struct call *call) {
    CHECK(write(call->fds[1], "", 1) == 1, "write: %s", strerror(errno));
}

// The one call whose EINTR the program asks for: it must come with our own signal, and only then.
// The signal is sent again and again because one may come before the call, which then waits on.
static _Thread_local volatile sig_atomic_t signalled;

static void count_signal(int number) {
    (void)number;
    signalled = 1;
}

static void make_pause(struct call *call) {
    (void)call;
    struct sigaction action = {.sa_handler = count_signal};
    sigaction(SIGUSR1, &action, NULL);
}

static long do_pause(struct call *call) {
    (void)call;
    signalled = 0;
    long result = pause();
    return signalled ? result : -2;
}

static void end_pause(struct call *call) {
    pthread_kill(call->thread, SIGUSR1);
}

static struct call calls[] = {
    {.name = "poll", .make = do_poll, .timed = true, .prepare = make_pipe},
    {.name = "ppoll", .make = do_ppoll, .timed = true, .prepare = make_pipe},
    {.name = "select", .make = do_select, .timed = true, .prepare = make_pipe},
    {.name = "nanosleep", .make = do_nanosleep, .timed = true},
    {.name = "clock_nanosleep", .make = do_clock_nanosleep, .timed = true},
    {.name = "sem_timedwait", .make = do_sem_timedwait, .result = -1, .error = ETIMEDOUT,
     .timed = true, .wall = true},
    {.name = "cond_timedwait", .make = do_cond_timedwait, .result = -1, .error = ETIMEDOUT,
     .timed = true},
    {.name = "futex", .make = do_futex, .result = -1, .error = ETIMEDOUT, .timed = true},
    {.name = "epoll_wait", .make = do_epoll_wait, .timed = true, .prepare = make_epoll},
    {.name = "recv", .make = do_recv, .result = -1, .error = EAGAIN, .timed = true,
     .prepare = make_sockets},
    {.name = "sigtimedwait", .make = do_sigtimedwait, .result = -1, .error = EAGAIN, .timed = true},
    {.name = "read", .make = do_read, .result = 1, .prepare = make_pipe, .end = end_read},
    {.name = "pause", .make = do_pause, .result = -1, .error = EINTR, .prepare = make_pause,
     .end = end_pause},
};
enum { CALLS = sizeof calls / sizeof calls[0] };

// ---- threads ----------------------------------------------------------------------------------

static void *call_thread(void *argument) {
    struct call *call = argument;
    for (long round = 1; round <= rounds && !call->wrong[0]; round++) {
        clockid_t clock = call->wall ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        int64_t begun = now_ms(clock);
        errno = 0;
        long result = call->make(call);
        int error = errno;
        int64_t lasted = now_ms(clock) - begun;
        if (result != call->result || (result == -1 && error != call->error)) {
            snprintf(call->wrong, sizeof call->wrong, "%s returned %ld, %s", call->name, result,
                     result == -1 ? strerrorname_np(error) : "no error");
        } else if (call->timed && lasted < timeout_ms - 20) {
            // 20 ms: clocks that tick, and one that may be set.
            snprintf(call->wrong, sizeof call->wrong, "%s returned too soon", call->name);
        }
    }
    call->done = true;
    return NULL;
}

static bool listed(const char *list, const char *name) {
    size_t size = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, size) == 0 && (at[size] == ',' || at[size] == '\0')) {
            return true;
        }
    }
    return false;
}

// Every rank passes here once in each step. Returns whether all threads of all ranks are done.
__attribute__((noinline)) static bool work_step(void) {
    bool timed_left = false;
    int left = 0, sum;
    for (int i = 0; i < CALLS; i++) {
        left += calls[i].used && !calls[i].done;
        timed_left |= calls[i].used && calls[i].timed && !calls[i].done;
    }
    for (int i = 0; i < CALLS; i++) {
        if (calls[i].used && !calls[i].done && !calls[i].timed && !timed_left && step >= steps) {
            calls[i].end(&calls[i]);
        }
    }
    exchange(0);
    MPI_Allreduce(&left, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return sum == 0;
}

int main(int argc, char **argv) {
    parse_options(argc, argv,
                  (struct option_spec[]){{"--timeout-ms", &timeout_ms, NULL},
                                         {"--rounds", &rounds, NULL},
                                         {"--only", NULL, &only},
                                         {"--skip", NULL, &skip},
                                         {"--steps", &steps, NULL},
                                         {"--delay-us", &delay_us, NULL},
                                         {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    for (int i = 0; i < CALLS; i++) {
        struct call *call = &calls[i];
        call->used = (!*only || listed(only, call->name)) && !listed(skip, call->name);
        if (!call->used) {
            continue;
        }
        if (call->prepare) {
            call->prepare(call);
        }
        CHECK(pthread_create(&call->thread, NULL, call_thread, call) == 0, "no thread");
        pthread_setname_np(call->thread, call->name);
    }

    bool finished = false;
    for (step = 1; step <= steps || !finished; step++) {
        finished = work_step();
        pause_us(delay_us);
    }

    char line[240] = "syscalls ok";
    size_t length = 0;
    for (int i = 0; i < CALLS; i++) {
        if (calls[i].used) {
            pthread_join(calls[i].thread, NULL);
        }
        if (calls[i].wrong[0] && length < sizeof line) {
            length += (size_t)snprintf(line + length, sizeof line - length, "%s%s",
                                       length ? "; " : "syscalls FAILED: ", calls[i].wrong);
        }
    }
    report(line);
    int mine = length > 0, any;
    MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return any ? 3 : 0;
}
