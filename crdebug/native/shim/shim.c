/* The part of crdebug inside each rank. Preloaded; inert in a process that is not a rank.
 *
 * The symbols and their meaning are those of Hursey et al., "Checkpoint/Restart-Enabled Parallel
 * Debugging" (EuroMPI 2010), section 4. Between a signal's arrival and rt_sigreturn nothing here
 * calls into libc: raw system calls leave errno, the heap and the lazy-binding tables as they were. */
#define _GNU_SOURCE 1
#include "crdebug.h"
#include "places.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <ucontext.h>
#include <unistd.h>

#if !defined(__x86_64__) || !defined(__linux__)
#error "crdebug's waitpoints know x86-64 Linux only: undo_eintr() needs the machine's registers"
#endif

#define EXPORT __attribute__((visibility("default")))

EXPORT volatile int MPIR_debug_with_checkpoint = 0;
EXPORT volatile int MPIR_checkpoint_debug_gate = 0;
EXPORT struct crdebug_shim crdebug_shim = {
    .abi = CRDEBUG_ABI, .size = sizeof(struct crdebug_shim), .rank = -1};

static long raw_syscall(long number, long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}

/* ---- waitpoint (all of it async-signal-safe) -------------------------------------------------- */

static struct crdebug_thread *own_entry(void) {
    int32_t tid = (int32_t)raw_syscall(SYS_gettid, 0, 0, 0, 0);
    for (int i = 0; i < CRDEBUG_MAX_THREADS && crdebug_shim.threads[i].tid != 0; i++)
        if (crdebug_shim.threads[i].tid == tid) return &crdebug_shim.threads[i];
    return NULL;
}

EXPORT __attribute__((noinline)) int MPIR_checkpoint_debugger_detach(void) {
    __asm__ volatile(""); /* empty, for debuggers to break on: keep it from being optimised away */
    return 0;
}

/* Run by each waiting thread once the CRS is done: on continue and on restart. With a debugger
 * around the thread goes on waiting for it; without one it opens the gate for all. */
EXPORT void MPIR_checkpoint_debugger_crs_hook(int state) {
    if (state == CRDEBUG_CRS_NONE || MPIR_debug_with_checkpoint) return;
    MPIR_checkpoint_debug_gate = 1;
    raw_syscall(SYS_futex, (long)&MPIR_checkpoint_debug_gate, FUTEX_WAKE_PRIVATE, INT_MAX, 0);
}

EXPORT void MPIR_checkpoint_debugger_breakpoint(void) {
    __atomic_fetch_add(&crdebug_shim.waiting, 1, __ATOMIC_ACQ_REL);
    /* A debugger that opens the gate by writing to it has stopped this thread to do so, which
     * interrupts the wait: the kernel makes the call again and finds the new value. */
    while (!MPIR_checkpoint_debug_gate)
        raw_syscall(SYS_futex, (long)&MPIR_checkpoint_debug_gate, FUTEX_WAIT_PRIVATE, 0, 0);
    __atomic_fetch_sub(&crdebug_shim.waiting, 1, __ATOMIC_ACQ_REL);
}

EXPORT void MPIR_checkpoint_debugger_waitpoint(void) {
    struct crdebug_thread *own = own_entry();
    if (own != NULL && own->flags & CRDEBUG_EXEMPT) return;
    if (own != NULL && own->inside) {
        /* The signal once more, to a thread that waits: the CRS is done (see crdebug.h). */
        MPIR_checkpoint_debugger_crs_hook(crdebug_shim.crs_state);
        return;
    }
    if (own != NULL) __atomic_store_n(&own->inside, 1, __ATOMIC_RELEASE);
    MPIR_checkpoint_debugger_breakpoint();
    if (own != NULL) __atomic_store_n(&own->inside, 0, __ATOMIC_RELEASE);
}

EXPORT void MPIR_checkpoint_debugger_signal_handler(int number) {
    (void)number;
    MPIR_checkpoint_debugger_waitpoint();
}

/* The number that was loaded for the instruction (`mov $N, %eax`), as all C libraries do it, or -1;
 * not looked for on another page, which may not be there. */
static int loaded_call(const unsigned char *instruction, int (*is_wanted)(int)) {
    uintptr_t room = (uintptr_t)instruction & 4095;
    for (uintptr_t back = 5; back <= room && back <= 64; back++) {
        const unsigned char *load = instruction - back;
        int number = load[1] | load[2] << 8;
        if (load[0] == 0xb8 && load[3] == 0 && load[4] == 0 && is_wanted(number)) return number;
    }
    return -1;
}

static int goes_on_as_another(int number) {
    return number == SYS_poll || number == SYS_nanosleep || number == SYS_futex ||
           number == SYS_clock_nanosleep;
}

static int is_a_call(int number) { return number < 512; }

/* A call that was interrupted before, and went on, is in restart_syscall(2): its own number is known
 * to the kernel only, whose memory of it a signal handler ends. Only these four work that way. */
static int original_call(const greg_t *registers) {
    int loaded = loaded_call((const unsigned char *)(registers[REG_RIP] - 2), goes_on_as_another);
    if (loaded >= 0) return loaded;
    /* syscall(3) gets the number as an argument: tell by the others. */
    enum { LOWEST_POINTER = 65536 };
    unsigned long long first = (unsigned long long)registers[REG_RDI],
                       second = (unsigned long long)registers[REG_RSI],
                       third = (unsigned long long)registers[REG_RDX],
                       fourth = (unsigned long long)registers[REG_R10];
    unsigned long long operation =
        second & ~(unsigned long long)(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
    if (first < LOWEST_POINTER) return third < LOWEST_POINTER ? SYS_poll : SYS_clock_nanosleep;
    if (fourth >= LOWEST_POINTER && (operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET))
        return SYS_futex;
    return second == 0 || second >= LOWEST_POINTER ? SYS_nanosleep : SYS_poll;
}

/* A system call that the kernel does not restart after a handler (signal(7), "Interruption of
 * system calls") shows -EINTR in the interrupted context. The number of the call is lost by then;
 * whoever queued the signal wrote it into our table before. Take the PC back on to the `syscall`
 * instruction, so that the call is made again and the application never sees it. */
static void undo_eintr(ucontext_t *context, int number) {
    greg_t *registers = context->uc_mcontext.gregs;
    if (number == CRDEBUG_NO_CALL || registers[REG_RAX] != -EINTR) return;
    const unsigned char *before = (const unsigned char *)(registers[REG_RIP] - 2);
    if (before[0] != 0x0f || before[1] != 0x05) return;
    if (number == CRDEBUG_UNKNOWN_CALL) number = loaded_call(before, is_a_call);
    if (number < 0) return;
    registers[REG_RAX] = number == SYS_restart_syscall ? original_call(registers) : number;
    registers[REG_RIP] -= 2;
}

/* Does the thread get this signal as soon as the handler returns? */
static int comes_next(const ucontext_t *context, uint32_t number) {
    unsigned long pending = 0;
    if (number == 0) return 0;
    raw_syscall(SYS_rt_sigpending, (long)&pending, sizeof pending, 0, 0);
    return (pending & ~context->uc_sigmask.__val[0]) >> (number - 1) & 1;
}

/* Somebody wants a checkpoint while a debugger that is not crdebug's is here. It may let us go now,
 * by the waitpoint signal to all threads, this one too, which is in the middle of this function. */
static void ask_debugger(ucontext_t *context) {
    MPIR_checkpoint_debugger_detach();
    struct crdebug_thread *own = own_entry(); /* the table may be another one by now */
    if (own != NULL && own->flags & CRDEBUG_ASKED) {
        own->flags = 0;
        __atomic_store_n(&crdebug_shim.asker, 0, __ATOMIC_RELEASE);
    }
    undo_eintr(context, CRDEBUG_UNKNOWN_CALL);
}

static void on_signal(int number, siginfo_t *info, void *context) {
    (void)info;
    struct crdebug_thread *own = own_entry();
    if (own != NULL && own->flags & CRDEBUG_ASKED) {
        ask_debugger(context);
        return;
    }
    MPIR_checkpoint_debugger_signal_handler(number);
    own = own_entry();
    if (own == NULL) { /* a thread that began after the others were seen */
        undo_eintr(context, CRDEBUG_UNKNOWN_CALL);
        return;
    }
    if (own->inside) return; /* the signal once more, in the waitpoint itself */
    if (!comes_next(context, own->flags >> CRDEBUG_HELD_SHIFT & 127))
        undo_eintr(context, own->syscall);
    own->syscall = CRDEBUG_NO_CALL;
    if (own->flags & CRDEBUG_BLOCKED) /* what sigaddset() does */
        ((ucontext_t *)context)->uc_sigmask.__val[0] |= 1ul << (number - 1);
    own->flags = 0;
}

/* ---- the application's own use of the signal -------------------------------------------------- */

typedef int sigaction_function(int, const struct sigaction *, struct sigaction *);
typedef void (*handler_function)(int);
typedef handler_function signal_function(int, handler_function);

static void notice_clash(int number) {
    if (crdebug_shim.rank >= 0 && number == crdebug_shim.signal) crdebug_shim.clash = 1;
}

/* Behind the shim, and so behind a sanitizer, which is loaded before it: ThreadSanitizer's own calls
 * handlers late, when their frame has long been left. */
static int next_sigaction(int number, const struct sigaction *new, struct sigaction *old) {
    static sigaction_function *next;
    if (next == NULL) *(void **)&next = dlsym(RTLD_NEXT, "sigaction");
    return next(number, new, old);
}

EXPORT int sigaction(int number, const struct sigaction *new, struct sigaction *old) {
    if (new != NULL) notice_clash(number);
    return next_sigaction(number, new, old);
}

EXPORT handler_function signal(int number, handler_function handler) {
    static signal_function *real;
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "signal");
    notice_clash(number);
    return real(number, handler);
}

/* ---- registration ----------------------------------------------------------------------------- */

/* The launchers' own names for "which rank am I" and "how many": Open MPI, MPICH's and PMI-1
 * launchers, Slurm, and any PMIx one (which tells no size in the environment). */
static const char *const rank_names[][2] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"PMIX_RANK", "PMIX_SIZE"},
    {"SLURM_PROCID", "SLURM_NTASKS"},
};

static int number_of(const char *name) {
    const char *text = getenv(name);
    if (text == NULL || *text == 0) return -1;
    char *end;
    long value = strtol(text, &end, 10);
    return *end == 0 && value >= 0 && value < INT_MAX ? (int)value : -1;
}

/* What a launcher starts need not be the MPI program. It may be a shell that runs some commands
 * first, and all of them have the rank's environment. */
static const char *const wrappers[] = {
    "sh",     "dash",    "bash",    "ash",     "zsh",    "ksh",     "mksh",    "csh",
    "tcsh",   "fish",    "busybox", "env",     "nice",   "nohup",   "time",    "timeout",
    "stdbuf", "setsid",  "ionice",  "xargs",   "script", "taskset", "numactl", "hwloc-bind",
    "chrt",   "prlimit", "unshare", "setpriv", "strace", "perf",
};

/* These may load an MPI library later on. */
static const char *const interpreters[] = {"python", "pypy",   "julia", "R",    "perl",   "ruby",
                                           "lua",    "octave", "java",  "node", "ipython"};

/* Slurm, asked by another launcher to start its daemons, gives each of them a rank's number. */
static const char *const daemons[] = {"orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy"};

static int is_wrapper(const char *name) {
    for (size_t i = 0; i < sizeof daemons / sizeof *daemons; i++)
        if (strcmp(name, daemons[i]) == 0) return 1;
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (strcmp(name, wrappers[i]) == 0) return 1;
    return 0;
}

static int is_interpreter(const char *name) {
    for (size_t i = 0; i < sizeof interpreters / sizeof *interpreters; i++) {
        size_t length = strlen(interpreters[i]);
        /* python3.11 is one; rsync is no R */
        if (strncmp(name, interpreters[i], length) == 0 &&
            strspn(name + length, "0123456789.-") == strlen(name + length))
            return 1;
    }
    return 0;
}

/* Was this process started by another one of the same rank, not by the launcher? */
static int parent_is_of_the_rank(const char *variable) {
    char path[32], text[4096], wanted[64];
    size_t kept = 0, length = (size_t)snprintf(wanted, sizeof wanted, "%s=", variable);
    snprintf(path, sizeof path, "/proc/%d/environ", (int)getppid());
    int file = open(path, O_RDONLY | O_CLOEXEC), found = 0;
    if (file < 0) return 0;
    /* Variables end with a null byte, so that each but the first begins behind one. */
    int fresh = 1;
    for (ssize_t got; !found && (got = read(file, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < got && !found; i++) {
            if (fresh && text[i] == wanted[kept]) found = ++kept == length;
            else fresh = kept = 0;
            if (text[i] == 0) fresh = 1, kept = 0;
        }
    close(file);
    return found;
}

static int may_be_the_rank(const struct crdebug_register *request) {
    const char *slash = strrchr(request->executable, '/');
    const char *name = slash ? slash + 1 : request->executable;
    if (request->mpi || is_interpreter(name)) return 1;
    return !is_wrapper(name) && request->launched;
}

static int ask_starter(const struct crdebug_register *request, struct crdebug_reply *reply) {
    struct sockaddr_un address = {0};
    int channel = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (channel < 0) return -1;
    int through = crdebug_address(&address);
    int ok = connect(channel, (const struct sockaddr *)&address, sizeof address) == 0 &&
             send(channel, request, sizeof *request, MSG_NOSIGNAL) == (ssize_t)sizeof *request &&
             recv(channel, reply, sizeof *reply, 0) == (ssize_t)sizeof *reply &&
             reply->abi == CRDEBUG_ABI;
    if (through >= 0) close(through);
    close(channel);
    return ok ? 0 : -1;
}

/* Without a starter, on one of several hosts, every process that may be the rank is. Not one that a
 * rank has started; a rank that becomes another program is still the rank, but nobody looks for it. */
static int accept_over_hosts(const char *hold, struct crdebug_reply *reply) {
    char own[32];
    const char *first = getenv("CRDEBUG_RANK");
    snprintf(own, sizeof own, "%d", (int)getpid());
    if (first != NULL && strcmp(first, own) != 0) return -1;
    reply->accepted = 1;
    reply->hold = first == NULL && access(hold, F_OK) == 0;
    return setenv("CRDEBUG_RANK", own, 1);
}

static void install_handler(int number) {
    /* All signals but ours are blocked in the waitpoint: no handler of the application's runs there.
     * Ours once more makes a waiting thread run the hook. The alternate stack is not used: its
     * memory does not lie below a stack pointer, so the frame would show in the application's
     * memory after the walk out. */
    struct sigaction action = {.sa_sigaction = on_signal,
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER};
    sigfillset(&action.sa_mask);
    sigdelset(&action.sa_mask, number);
    if (next_sigaction(number, &action, NULL) != 0) crdebug_shim.clash = 1;
    crdebug_shim.signal = number;
}

/* Called from outside in a process that has loaded the shim late: it is this rank from now on. */
EXPORT int crdebug_adopt(int rank, int number) {
    int saved_errno = errno;
    install_handler(number);
    crdebug_shim.rank = rank;
    errno = saved_errno;
    return (int)crdebug_shim.clash;
}

__attribute__((constructor)) static void start(void) {
    int saved_errno = errno;
    struct crdebug_register request = {.abi = CRDEBUG_ABI, .rank = -1};
    struct crdebug_reply reply;
    const char *variable = NULL;
    for (size_t i = 0; i < sizeof rank_names / sizeof *rank_names && request.rank < 0; i++) {
        variable = rank_names[i][0];
        request.rank = number_of(variable);
        int size = number_of(rank_names[i][1]);
        request.size = size > 0 ? size : 0;
    }
    if (request.rank < 0) return;
    request.mpi = dlsym(RTLD_DEFAULT, "PMPI_Init") != NULL; /* the layer has MPI_Init everywhere */
    if (readlink("/proc/self/exe", request.executable, sizeof request.executable - 1) < 0)
        request.executable[0] = 0;
    request.launched = !parent_is_of_the_rank(variable);
    if (!may_be_the_rank(&request)) {
        errno = saved_errno;
        return;
    }
    const char *hold = getenv(CRDEBUG_OVER_HOSTS_VARIABLE);
    int asked = hold ? accept_over_hosts(hold, &reply) : ask_starter(&request, &reply);
    if (asked == 0 && reply.accepted) {
        int number = number_of("CRDEBUG_SIGNAL");
        crdebug_shim.rank = request.rank;
        install_handler(number > 0 ? number : CRDEBUG_DEFAULT_SIGNAL);
        if (reply.hold) MPIR_checkpoint_debugger_breakpoint();
    }
    errno = saved_errno;
}
