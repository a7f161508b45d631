/* The layer's clock: counting, holding, threads; MPI_Init and MPI_Finalize. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "pmpi.h"
#include "pmpi_own.h" /* generated: what the wrappers call of these files */

union page {
    struct crdebug_clock clock;
    char page[4096];
};
/* In pages of its own: crdebug may watch and write it without the rest. */
EXPORTED __attribute__((aligned(4096))) union page crdebug_clock = {
    .clock = {.abi = CRDEBUG_CLOCK_ABI,
              .size = sizeof(struct crdebug_clock),
              .rank = -1,
              .stop = CRDEBUG_NEVER,
              .enforce = CRDEBUG_ENFORCE,
              .calls = CRDEBUG_TABLE}};
extern
    __attribute__((alias("crdebug_clock"), visibility("hidden"))) struct crdebug_clock crdebug_own;

__thread int depth __attribute__((tls_model("initial-exec")));
int *owner;
struct constants mpi;

/* ---- MPI's constants ---------------------------------------------------------------------------- */

#if defined(OPEN_MPI)
#pragma weak ompi_mpi_comm_world
#pragma weak ompi_mpi_comm_self
#pragma weak ompi_mpi_comm_null
#pragma weak ompi_request_null
#pragma weak ompi_message_null
#pragma weak ompi_message_no_proc
#pragma weak ompi_mpi_datatype_null
#pragma weak ompi_mpi_packed
#pragma weak ompi_mpi_op_max
#pragma weak ompi_mpi_op_min
#pragma weak ompi_mpi_op_sum
#pragma weak ompi_mpi_op_prod
#pragma weak ompi_mpi_op_land
#pragma weak ompi_mpi_op_band
#pragma weak ompi_mpi_op_lor
#pragma weak ompi_mpi_op_bor
#pragma weak ompi_mpi_op_lxor
#pragma weak ompi_mpi_op_bxor
#pragma weak ompi_mpi_op_maxloc
#pragma weak ompi_mpi_op_minloc
#pragma weak ompi_mpi_op_replace
#pragma weak ompi_mpi_op_no_op
#define CONSTANT(value, symbol) ((void *)(value) ? (void *)(value) : dlsym(RTLD_DEFAULT, symbol))
#else
#define CONSTANT(value, symbol) (value)
#endif

static int promote(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    if (info->dlpi_name == NULL || *info->dlpi_name == 0) return 0;
    void *library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) return 0;
    int found = dlsym(library, "PMPI_Init") != NULL &&
                dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL) != NULL;
    dlclose(library);
    return found;
}

/* An MPI that was loaded by an extension module of an interpreter is not where our references are
 * looked up, until it is made global. */
static void find_mpi(void) {
    if (dlsym(RTLD_DEFAULT, "PMPI_Init") == NULL) dl_iterate_phdr(promote, NULL);
    mpi.world = CONSTANT(MPI_COMM_WORLD, "ompi_mpi_comm_world");
    mpi.self = CONSTANT(MPI_COMM_SELF, "ompi_mpi_comm_self");
    mpi.comm_null = CONSTANT(MPI_COMM_NULL, "ompi_mpi_comm_null");
    mpi.request_null = CONSTANT(MPI_REQUEST_NULL, "ompi_request_null");
    mpi.message_null = CONSTANT(MPI_MESSAGE_NULL, "ompi_message_null");
    mpi.message_no_proc = CONSTANT(MPI_MESSAGE_NO_PROC, "ompi_message_no_proc");
    mpi.type_null = CONSTANT(MPI_DATATYPE_NULL, "ompi_mpi_datatype_null");
    mpi.packed = CONSTANT(MPI_PACKED, "ompi_mpi_packed");
    const uint64_t ops[CRDEBUG_OPS] = {
        (uintptr_t)CONSTANT(MPI_MAX, "ompi_mpi_op_max"),
        (uintptr_t)CONSTANT(MPI_MIN, "ompi_mpi_op_min"),
        (uintptr_t)CONSTANT(MPI_SUM, "ompi_mpi_op_sum"),
        (uintptr_t)CONSTANT(MPI_PROD, "ompi_mpi_op_prod"),
        (uintptr_t)CONSTANT(MPI_LAND, "ompi_mpi_op_land"),
        (uintptr_t)CONSTANT(MPI_BAND, "ompi_mpi_op_band"),
        (uintptr_t)CONSTANT(MPI_LOR, "ompi_mpi_op_lor"),
        (uintptr_t)CONSTANT(MPI_BOR, "ompi_mpi_op_bor"),
        (uintptr_t)CONSTANT(MPI_LXOR, "ompi_mpi_op_lxor"),
        (uintptr_t)CONSTANT(MPI_BXOR, "ompi_mpi_op_bxor"),
        (uintptr_t)CONSTANT(MPI_MAXLOC, "ompi_mpi_op_maxloc"),
        (uintptr_t)CONSTANT(MPI_MINLOC, "ompi_mpi_op_minloc"),
        (uintptr_t)CONSTANT(MPI_REPLACE, "ompi_mpi_op_replace"),
        (uintptr_t)CONSTANT(MPI_NO_OP, "ompi_mpi_op_no_op"),
    };
    memcpy(C.ops, ops, sizeof ops);
}

/* ---- holding ------------------------------------------------------------------------------------ */

static void look_at_messages(void) {
    int flag;
    if (C.initialized) PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi.self, &flag, MPI_STATUS_IGNORE);
}

/* A peer's large message to a held rank must still be delivered. */
void progress(unsigned *patience) {
    look_at_messages();
    if (++*patience < 1000) {
        sched_yield();
        return;
    }
    struct timespec pause = {.tv_nsec = *patience < 3000 ? 50000 : 1000000};
    nanosleep(&pause, NULL);
}

static int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* In a test that the log answers. A program may test a million times until its message comes, and an MPI
 * may give its processor away each time that it looks, which takes milliseconds on a busy machine: so it
 * gets at most half of the time. */
void let_mpi_work(void) {
    static int64_t ended, pause;
    int64_t now = nanoseconds();
    if (now >= ended && now - ended < pause) return;
    look_at_messages();
    ended = nanoseconds();
    pause = 20000 + (ended - now < 10000000 ? ended - now : 10000000);
}

EXPORTED __attribute__((noinline)) void crdebug_hold(void) {
    volatile struct crdebug_clock *clock = &crdebug_own;
    unsigned patience = 0;
    clock->held = CRDEBUG_AT_STOP;
    while (clock->now == clock->stop) {
        if (C.mode == CRDEBUG_RECORDS && behind()) went_back();
        else if (C.mode == CRDEBUG_RECORDS && unsettled) requests_sweep(UINT32_MAX);
        progress(&patience);
    }
    clock->held = CRDEBUG_FREE;
}

/* Where nothing is mapped yet, there is nothing that could change. */
void compare_bytes(void) {
    uint64_t words[512], seen = 0;
    int before = errno;
    for (uint64_t done = 0; done < C.look_size; done += sizeof words) {
        size_t part = C.look_size - done < sizeof words ? C.look_size - done : sizeof words;
        struct iovec here = {words, part}, there = {(void *)(uintptr_t)(C.look_at + done), part};
        words[part / 8 < 512 ? part / 8 : 0] = 0; /* the rest of the last one */
        if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != (ssize_t)part) {
            C.look_known = 0;
            errno = before;
            return;
        }
        for (size_t i = 0; i < (part + 7) / 8; i++) seen = mix(seen, words[i]);
    }
    if (C.look_known && seen != C.look_seen) C.look_changed = C.now;
    C.look_known = 1;
    C.look_seen = seen;
    errno = before;
}

/* ---- what a call leaves behind ------------------------------------------------------------------- */

/* No caller expects anything in these; but ld.so saves them on the stack when it binds a function. */
static void wipe_registers(void) {
#define ZERO(n) "vpxord %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n"
#define MASK(n) "kxorw %%k" #n ", %%k" #n ", %%k" #n "\n"
    if (__builtin_cpu_supports("avx512f"))
        __asm__ volatile(ZERO(16) ZERO(17) ZERO(18) ZERO(19) ZERO(20) ZERO(21) ZERO(22) ZERO(23)
                             ZERO(24) ZERO(25) ZERO(26) ZERO(27) ZERO(28) ZERO(29) ZERO(30) ZERO(31)
                                 MASK(0) MASK(1) MASK(2) MASK(3) MASK(4) MASK(5) MASK(6) MASK(7)::);
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("vzeroall" ::
                             : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                               "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                               "xmm15");
    __asm__ volatile("xorl %%eax, %%eax\n xorl %%ecx, %%ecx\n xorl %%edx, %%edx\n"
                     "xorl %%esi, %%esi\n xorl %%edi, %%edi\n xorl %%r8d, %%r8d\n"
                     "xorl %%r9d, %%r9d\n xorl %%r10d, %%r10d\n xorl %%r11d, %%r11d\n" ::
                         : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc");
}

/* Below here the stack is of calls that have returned; they do not use more than this, mostly. */
static __attribute__((noinline)) void wipe_below(void) {
    char dead[1 << 16];
    memset(dead, 0, sizeof dead);
    __asm__ volatile("" : : "r"(dead) : "memory"); /* somebody may look at it */
}

void wipe_stack(void) {
    if (syscall(SYS_gettid) == getpid()) wipe_below(); /* another thread's stack may be small */
    wipe_registers();
}

/* ---- what the rank is in ------------------------------------------------------------------------- */

void doing_words(const uint32_t *words, uint32_t count) {
    memcpy(C.doing_words, words, (count < CRDEBUG_DOING ? count : CRDEBUG_DOING) * sizeof *words);
}

void doing_requests(const uint32_t *ages, int count) {
    uint32_t active = 0;
    for (int i = 0; i < count; i++) {
        if (ages[i] && active < CRDEBUG_DOING) C.doing_words[active] = ages[i];
        active += ages[i] != 0;
    }
    C.doing_count = active;
}

bool outside(void) {
    if (owner != NULL && &depth != owner) refuse(CRDEBUG_THREADS);
    unfreed_called();
    return false;
}

/* ---- beginning and end -------------------------------------------------------------------------- */

static void started(unsigned call, uint64_t site) {
    int rank, world;
    PMPI_Comm_rank(mpi.world, &rank);
    PMPI_Comm_size(mpi.world, &world);
    PMPI_Query_thread(&C.thread_level);
    C.rank = rank;
    C.world = world;
    /* One that was spawned has the number of a rank of its parents' world, whose log that is. */
    MPI_Comm parent = mpi.comm_null;
    PMPI_Comm_get_parent(&parent);
    if (parent == mpi.comm_null && log_open(rank, world)) C.mode = CRDEBUG_RECORDS;
    struct note note = note_of(call, site, 0, 0, 0, 0);
    begin(&note);
    finish(&note, MPI_SUCCESS);
    comm_made(mpi.world);
    comm_made(mpi.self);
    C.initialized = 1;
    log_the_end();
    unfreed_begin();
}

static bool starting(unsigned call, uint64_t site) {
    if (owner != NULL || depth || C.now != 0) return false;
    find_mpi();
    find_bindings();
    const char *stop = getenv("CRDEBUG_STOP"); /* for a run without crdebug */
    if (stop != NULL) C.stop = strtoull(stop, NULL, 10);
    owner = &depth;
    if (!enter()) return false;
    struct note note = note_of(call, site, 0, 0, 0, 0);
    doing(&note);
    return true;
}

int wrap_Init(uint64_t site, int *argc, char ***argv) {
    if (!starting(CALL_Init, site)) return PMPI_Init(argc, argv);
    int rc = PMPI_Init(argc, argv);
    if (rc == MPI_SUCCESS) connect_all();
    if (rc == MPI_SUCCESS) started(CALL_Init, site);
    leave();
    return rc;
}

int wrap_Init_thread(uint64_t site, int *argc, char ***argv, int required, int *provided) {
    if (!starting(CALL_Init_thread, site)) return PMPI_Init_thread(argc, argv, required, provided);
    int rc = PMPI_Init_thread(argc, argv, required, provided);
    if (rc == MPI_SUCCESS) connect_all();
    if (rc == MPI_SUCCESS) started(CALL_Init_thread, site);
    leave();
    return rc;
}

int wrap_Finalize(uint64_t site) {
    if (C.last == CRDEBUG_WAITS && &depth == owner && !depth) {
        C.last = CRDEBUG_IS_THERE;
        C.stop = C.now;
    }
    if (!enter()) return PMPI_Finalize();
    if (C.mode == CRDEBUG_RECORDS) log_no_end();
    struct note note = note_of(CALL_Finalize, site, 0, 0, 0, 0);
    doing(&note);
    begin(&note);
    unfreed_finalizing();
    C.initialized = 0;
    int rc = PMPI_Finalize();
    finish(&note, rc);
    log_is_over();
    C.mode = CRDEBUG_COUNTS;
    leave();
    owner = NULL;
    return rc;
}

/* Time does not go back: Open MPI's counts from the first call in this process. */
static double last_time;
static double not_before(double value) {
    static double shift;
    if (value + shift < last_time) shift = last_time - value;
    return last_time = value + shift;
}

double wrap_Wtime(uint64_t site) {
    if (!enter()) return PMPI_Wtime();
    struct note note = note_of(CALL_Wtime, site, 0, 0, 0, 0);
    const struct crdebug_record *before = expected();
    double value;
    if (before && HEAD_CALL(before->head) == CALL_Wtime) {
        memcpy(&value, &before->body, sizeof value);
        PMPI_Wtime(); /* counts from now on, then */
        last_time = value;
    } else {
        begin(&note);
        value = not_before(PMPI_Wtime());
    }
    memcpy(&note.body, &value, sizeof value);
    finish(&note, MPI_SUCCESS);
    leave();
    return value;
}
