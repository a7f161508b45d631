/* How a process ends in a call that fails, where errors are fatal; or by exit or MPI_Abort, before
 * MPI_Finalize. The log says so: nobody returns from such a call, to record it. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <execinfo.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pmpi.h"

#define FRAMES 32

__thread bool asks, spared __attribute__((tls_model("initial-exec")));
static pid_t own;
static uint32_t leaves; /* with which status, + 1 */

static bool over;       /* MPI_Finalize has returned, and is on record */

/* Not in a child of the process, which has the same log. */
static bool is_recorded(void) { return C.mode == CRDEBUG_RECORDS && getpid() == own; }

static void ending(int status, void *unused) {
    (void)unused;
    leaves = (uint32_t)status + 1;
}

/* After all that the program has registered for its end, which may call MPI_Finalize. */
__attribute__((destructor)) static void ended(void) {
    if (!leaves || !is_recorded() || !C.initialized || C.now % 2) return;
    if (log_header->ended_now == C.now)
        return; /* it has failed, or called MPI_Abort, which exits */
    log_header->left = leaves;
    log_header->outside_failed = 0;
    log_header->ended_now = C.now;
}

void log_the_end(void) {
    own = getpid();
    on_exit(ending, NULL);
}

void log_no_end(void) { log_header->ended_now = 0; }
void log_is_over(void) { over = C.mode == CRDEBUG_RECORDS; }

EXPORTED int MPI_Abort(MPI_Comm comm, int code) {
    if (is_recorded() && C.initialized && !(C.now % 2)) {
        log_header->left = CRDEBUG_ABORTS;
        log_header->outside_failed = 0;
        log_header->ended_now = C.now;
    }
    return PMPI_Abort(comm, code);
}

static const void *object_of(const void *address) {
    Dl_info found;
    return dladdr(address, &found) ? found.dli_fbase : NULL;
}

/* Where the program has called the MPI: a call that is not counted says it to nobody. */
static uint64_t caller(void) {
    void *frames[FRAMES];
    const void *layer = object_of((const void *)&own), *mpis = dlsym(RTLD_DEFAULT, "PMPI_Init");
    int count = backtrace(frames, FRAMES);
    if (mpis) mpis = object_of(mpis);
    for (int at = 0; at < count; at++) {
        const void *object = object_of(frames[at]);
        if (object != layer && object != mpis) return site_of((uint64_t)(uintptr_t)frames[at]);
    }
    return 0;
}

/* An error in the MPI's function of this name, before its handler is asked. */
static void fails(const char *name, uint32_t failure) {
    if (!is_recorded() && !(over && getpid() == own)) return;
    if (C.now % 2) {
        log_header->doing_now = C.now | CRDEBUG_FAILED_NOW(failure);
        return;
    }
    memset(log_header->outside, 0, sizeof log_header->outside);
    if (name) strncpy(log_header->outside, name, sizeof log_header->outside - 1);
    log_header->outside_site = caller();
    log_header->outside_failed = failure;
    log_header->left = 0;
    log_header->ended_now = C.now;
}

#if defined(OPEN_MPI)
/* Open MPI's handlers, of which ours are in front. */
static void fatal(const char *handler, void *object, int *code, const char *name) {
    void (*next)(void *, int *, ...) = NULL;
    if (asks) {
        spared = true;
        return;
    }
    *(void **)&next = dlsym(RTLD_NEXT, handler);
    /* NULL: MPI has not begun, or is over, so it cannot be asked either */
    fails(name, code ? failure_of(*code) : failure_of_class(MPI_ERR_OTHER));
    if (next) next(object, code, name, NULL);
    PMPI_Abort(mpi.world, code ? *code : 1);
}

#define IN_FRONT_OF(handler) \
    EXPORTED void handler(void *object, int *code, ...); \
    EXPORTED void handler(void *object, int *code, ...) { \
        va_list rest; \
        va_start(rest, code); \
        const char *name = va_arg(rest, const char *); \
        va_end(rest); \
        fatal(#handler, object, code, name); \
    }
IN_FRONT_OF(ompi_mpi_errors_are_fatal_comm_handler)
IN_FRONT_OF(ompi_mpi_errors_are_fatal_win_handler)
IN_FRONT_OF(ompi_mpi_errors_are_fatal_file_handler)
#if OMPI_MAJOR_VERSION >= 5
IN_FRONT_OF(ompi_mpi_errors_are_fatal_instance_handler)
IN_FRONT_OF(ompi_mpi_errors_abort_comm_handler)
IN_FRONT_OF(ompi_mpi_errors_abort_win_handler)
IN_FRONT_OF(ompi_mpi_errors_abort_file_handler)
#endif

#elif defined(MPICH_VERSION)
/* MPICH's functions that ask a handler, whichever it is: they return unless it is fatal. */
static int returning(const char *function, void *object, const char *name, int code) {
    int (*next)(void *, const char *, int) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, function);
    if (asks) spared = true;
    if (asks || next == NULL) return code;
    fails(name, failure_of(code));
    int rc = next(object, name, code);
    if (!is_recorded()) return rc;
    if (C.now % 2) log_header->doing_now = C.now;
    else log_no_end();
    return rc;
}

#define IN_FRONT_OF(function) \
    EXPORTED int function(void *object, const char *name, int code); \
    EXPORTED int function(void *object, const char *name, int code) { \
        return returning(#function, object, name, code); \
    }
IN_FRONT_OF(MPIR_Err_return_comm)
IN_FRONT_OF(MPIR_Err_return_win)
#endif
