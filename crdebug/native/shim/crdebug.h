/* What the two sides share: the shim inside a rank and the starter of the job on one, crdebug's
 * Python on the other (crdebug/native/shim/layout.py mirrors this file and checks CRDEBUG_ABI).
 *
 * CRDEBUG_ABI grows when a field changes its meaning or place. Structs grow only at their end. */
#ifndef CRDEBUG_H
#define CRDEBUG_H

#include <stdint.h>

#define CRDEBUG_ABI 2u
#define CRDEBUG_MAX_THREADS 2048
#ifndef CRDEBUG_DIR
#define CRDEBUG_DIR "/dev/shm/crdebug" /* where a job's directory is, in its container */
#endif
/* In it; see places.h. */
#define CRDEBUG_SOCKET "starter" /* SOCK_SEQPACKET, one registration a connection */
#define CRDEBUG_EVENTS "events" /* append-only lines, see starter.c */
#define CRDEBUG_INPUT "input" /* what the launcher is to read, see input.c */
#define CRDEBUG_INPUT_SIGNAL SIGIO /* tells PID 1 that there is more of it */
#define CRDEBUG_DEFAULT_SIGNAL 62 /* SIGRTMAX - 2: no MPI that we know uses it */

enum crdebug_crs_state { CRDEBUG_CRS_NONE = 0, CRDEBUG_CRS_CONTINUE = 1, CRDEBUG_CRS_RESTART = 2 };

enum crdebug_thread_flags {
    CRDEBUG_EXEMPT = 1, /* the waitpoint lets it pass */
    CRDEBUG_BLOCKED =
        2, /* it blocked the signal, which was unblocked from outside: block it again */
    CRDEBUG_ASKED = 4, /* it is not herded: it calls MPIR_checkpoint_debugger_detach and goes on */
    CRDEBUG_HELD_SHIFT = 8, /* bits 8 to 14: a signal with a handler that was put into the thread's
                               queue from outside; should it come now, it ends the system call */
};

#define CRDEBUG_NO_CALL (-1)
#define CRDEBUG_UNKNOWN_CALL (-2) /* it has run since somebody looked */

/* One thread that is to be herded. Written from outside while the thread is stopped. */
struct crdebug_thread {
    int32_t tid; /* in the job's PID namespace; 0 ends the list */
    int32_t syscall; /* number of the system call it was stopped in, or one of those below */
    uint32_t flags; /* enum crdebug_thread_flags */
    uint32_t inside; /* written by the thread: 1 while it is in the waitpoint */
};

/* The rank's side, in the rank's private memory: a restore takes it back with everything else. */
struct crdebug_shim {
    uint32_t abi;
    uint32_t size; /* sizeof(struct crdebug_shim) */
    int32_t rank; /* -1: this process is not a rank */
    int32_t signal;
    uint32_t waiting; /* threads in the waitpoint now */
    uint32_t clash; /* the application has set its own action for the signal */
    int32_t crs_state; /* enum crdebug_crs_state: what the hook is told when a waiting thread gets
                           the signal once more */
    uint32_t asker; /* PID, outside the container, of who wants a debugger that is not crdebug's to
                           let the rank go; back to 0 once he is done, or if nobody let it go */
    struct crdebug_thread threads[CRDEBUG_MAX_THREADS];
};

struct crdebug_register {
    uint32_t abi;
    int32_t rank;
    int32_t size; /* ranks in the job, 0 if not known */
    uint32_t mpi; /* an MPI library was linked when the process started */
    char executable[4096];
    uint32_t launched; /* by the launcher, not by another process of the rank */
};

struct crdebug_reply {
    uint32_t abi;
    uint32_t accepted; /* 0: another process is this rank; stay inert */
    uint32_t hold; /* 1: wait for the gate before main */
};

#endif
