// A process that checks its own state in every step, for a GDB to take back into its past.
//
// past [steps=N] [mib=N] [heap] [calls] [actions] [file=PATH] [robust] [kernel=STEP]
//   steps: of the main thread; N of them make the program's end.  mib: memory, of which a step
//   changes one word.  heap: memory comes and goes with the steps, of all kinds.  calls: a thread in
//   each kind of blocking call, again and again, none of which may see EINTR.  actions: each step
//   sets another action for a signal.
//   kernel: in this step a thread is started; or the file written to, as in all later ones; or
//   (robust) the kernel told of another list of locks.  crash=STEP: it follows a bad pointer there.
// Writes one byte to standard output when all threads are there, and waits for SIGUSR1. Ends with 0,
// or says what was wrong and ends with 3.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "step %ld, line %d: %s\n", step, __LINE__, #condition);           \
            _exit(3);                                                                         \
        }                                                                                     \
    } while (0)

enum { BLOCKS = 64, PAUSE_MS = 20 };

volatile long step;
volatile int finished;
volatile long calls_made;
static long steps = 100, mib = 1, kernel_step, crash_step;
static int heap, calls, actions, robust;
static const char *path = "";
static uint64_t value = 1, sum, *memory;
static size_t words;

static uint64_t next_value(uint64_t old) {
    return old * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
}

// ---- memory that comes and goes ---------------------------------------------------------------

static struct block {
    unsigned char *data;
    size_t size;
    long step;
} blocks[BLOCKS];

static void check_block(const struct block *block) {
    for (size_t i = 0; i < block->size; i += 509) {
        CHECK(block->data[i] == (unsigned char)(block->step + (long)i));
    }
}

static void change_blocks(void) {
    static const size_t sizes[] = {100, 5000, 40000, 300000, 1 << 20};
    struct block *block = &blocks[(step * 7) % BLOCKS];
    if (block->data) {
        check_block(block);
        free(block->data);
    }
    block->step = step;
    block->size = sizes[step % 5] + (size_t)step;
    block->data = malloc(block->size);
    CHECK(block->data);
    for (size_t i = 0; i < block->size; i++) {
        block->data[i] = (unsigned char)(step + (long)i);
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].data) {
            check_block(&blocks[i]);
        }
    }
}

// ---- blocking calls -----------------------------------------------------------------------------

static sem_t never;
static int word = 1, quiet_pipe[2], epoll;

static struct timespec in_the_future(void) {
    struct timespec when;
    clock_gettime(CLOCK_REALTIME, &when);
    when.tv_nsec += PAUSE_MS * 1000000;
    when.tv_sec += when.tv_nsec / 1000000000;
    when.tv_nsec %= 1000000000;
    return when;
}

static const struct timespec a_while = {0, PAUSE_MS * 1000000};

static void call_poll(void) {
    struct pollfd fd = {quiet_pipe[0], POLLIN, 0};
    CHECK(poll(&fd, 1, PAUSE_MS) == 0);
}

static void call_ppoll(void) {
    struct pollfd fd = {quiet_pipe[0], POLLIN, 0};
    sigset_t mask;
    sigfillset(&mask);
    CHECK(ppoll(&fd, 1, &a_while, &mask) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0 && !sigismember(&mask, SIGTERM));
}

static void call_select(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(quiet_pipe[0], &set);
    struct timeval left = {0, PAUSE_MS * 1000};
    CHECK(select(quiet_pipe[0] + 1, &set, NULL, NULL, &left) == 0);
}

static void call_epoll_wait(void) {
    struct epoll_event event;
    CHECK(epoll_wait(epoll, &event, 1, PAUSE_MS) == 0);
}

static void call_nanosleep(void) {
    CHECK(nanosleep(&a_while, NULL) == 0);
}

static void call_sem(void) {
    struct timespec when = in_the_future();
    CHECK(sem_timedwait(&never, &when) == -1 && errno == ETIMEDOUT);
}

static void call_futex(void) {
    long result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, &a_while, NULL, 0);
    CHECK(result == -1 && errno == ETIMEDOUT);
}

static void call_sigtimedwait(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 5);
    CHECK(sigtimedwait(&set, NULL, &a_while) == -1 && errno == EAGAIN);
}

static void (*const all_calls[])(void) = {
    call_poll,  call_ppoll,  call_select,       call_epoll_wait, call_nanosleep,
    call_sem,   call_futex,  call_sigtimedwait,
};
enum { CALLS = sizeof all_calls / sizeof *all_calls };

static void *call_thread(void *which) {
    while (!finished) {
        all_calls[(intptr_t)which]();
        calls_made++;
    }
    return NULL;
}

static void *read_thread(void *unused) {
    char byte;
    CHECK(read(quiet_pipe[0], &byte, 1) == 1);
    return unused;
}

// ---- the main thread ----------------------------------------------------------------------------

__attribute__((noinline)) void tick(void) {
    __asm__ volatile("");
}

static void *nothing(void *unused) {
    return unused;
}

static void change_kernel(void) {
    static pthread_t thread;
    static struct robust_list_head locks = {{&locks.list}, 0, NULL};
    if (robust) {
        CHECK(syscall(SYS_set_robust_list, &locks, sizeof locks) == 0);
        return;
    }
    if (*path) {
        static int file = -1;
        file = file < 0 ? open(path, O_WRONLY | O_CREAT, 0600) : file;
        CHECK(write(file, "12345", 5) == 5);
    } else {
        CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(pthread_create(&thread, NULL, read_thread, NULL) == 0);
    }
}

// Steps with odd numbers block a signal, those with even ones let it in again.
static void change_mask(void) {
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 3);
    CHECK(pthread_sigmask(step % 2 ? SIG_BLOCK : SIG_UNBLOCK, &set, &before) == 0);
    CHECK(sigismember(&before, SIGRTMIN + 3) == (step % 2 == 0));
}

static void on_even(int number) {
    (void)number;
}

static void on_odd(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
}

static struct sigaction action_in(long at) {
    struct sigaction action = {.sa_handler = at == 0 ? SIG_DFL : SIG_IGN};
    sigemptyset(&action.sa_mask);
    if (at % 3 == 1) {
        action.sa_sigaction = on_odd;
        action.sa_flags = SA_SIGINFO;
        sigaddset(&action.sa_mask, SIGHUP);
    } else if (at % 3 == 2) {
        action.sa_handler = on_even;
        action.sa_flags = SA_RESTART;
    }
    return action;
}

// Each step finds what the one before has set.
static void change_actions(void) {
    struct sigaction found, before = action_in(step - 1), next = action_in(step);
    CHECK(sigaction(SIGUSR2, &next, &found) == 0);
    CHECK(found.sa_handler == before.sa_handler);
    CHECK((found.sa_flags & (SA_SIGINFO | SA_RESTART)) == before.sa_flags);
    CHECK(sigismember(&found.sa_mask, SIGHUP) == sigismember(&before.sa_mask, SIGHUP));
}

static void work(void) {
    change_mask();
    if (actions) {
        change_actions();
    }
    uint64_t before = value;
    value = next_value(value);
    size_t at = (size_t)(value >> 16) % words;
    sum += value - memory[at];
    memory[at] = value;
    CHECK(value == next_value(before));
    if (heap) {
        change_blocks();
    }
    if (kernel_step && (step == kernel_step || (*path && step > kernel_step))) {
        change_kernel();
    }
    if (step == crash_step) {
        *(volatile int *)8 = 1;
    }
}

int main(int argc, char **argv) {
    static char file_name[4096];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "heap") == 0) {
            heap = 1;
        } else if (strcmp(argv[i], "calls") == 0) {
            calls = 1;
        } else if (strcmp(argv[i], "actions") == 0) {
            actions = 1;
        } else if (strcmp(argv[i], "robust") == 0) {
            robust = 1;
        } else if (sscanf(argv[i], "file=%4095s", file_name) == 1) {
            path = file_name;
        } else if (sscanf(argv[i], "steps=%ld", &steps) != 1 &&
                   sscanf(argv[i], "mib=%ld", &mib) != 1 &&
                   sscanf(argv[i], "kernel=%ld", &kernel_step) != 1 &&
                   sscanf(argv[i], "crash=%ld", &crash_step) != 1) {
            fprintf(stderr, "unknown: '%s'\n", argv[i]);
            return 2;
        }
    }
    words = (size_t)mib << 17;
    memory = malloc(words * sizeof *memory);
    for (size_t i = 0; i < words; i++) {
        memory[i] = i;
        sum += i;
    }
    sigset_t start;
    sigemptyset(&start);
    sigaddset(&start, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &start, NULL);
    sem_init(&never, 0, 0);
    pthread_t threads[CALLS + 1];
    CHECK(pipe(quiet_pipe) == 0);
    epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, quiet_pipe[0], &event) == 0);
    for (intptr_t i = 0; i < CALLS && calls; i++) {
        CHECK(pthread_create(&threads[i], NULL, call_thread, (void *)i) == 0);
    }
    if (calls) {
        CHECK(pthread_create(&threads[CALLS], NULL, read_thread, NULL) == 0);
    }
    CHECK(write(STDOUT_FILENO, "!", 1) == 1);
    int number;
    sigwait(&start, &number);
    for (step = 1; step <= steps; step++) {
        work();
        tick();
        if (calls) {
            usleep(2000);
        }
    }
    finished = 1;
    if (calls) {
        for (int i = 0; i < CALLS; i++) {
            pthread_join(threads[i], NULL);
        }
        CHECK(write(quiet_pipe[1], "x", 1) == 1);
        pthread_join(threads[CALLS], NULL);
    }
    uint64_t again = 0, expected = 1;
    for (size_t i = 0; i < words; i++) {
        again += memory[i];
    }
    for (long i = 0; i < steps; i++) {
        expected = next_value(expected);
    }
    CHECK(again == sum);
    CHECK(value == expected);
    return 0;
}
