/* The rank's side of what a program may ask of crdebug (crdebug_app.h): the part of the shim that is
 * called by the program. libcrdebug_app.a looks these functions up, so that there is one of each.
 *
 * Whoever waits here looks at a word of memory some times a second: it is written from outside
 * (process_vm_writev(2)), where nobody can wake a futex of the rank. It owns no descriptor meanwhile,
 * so that an image of it needs nothing but memory. */
#define _GNU_SOURCE 1
#include "app.h"
#include "places.h"
#include "crdebug_app.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_CALLBACKS 256
enum { LOOK_MS = 5, LOOKS_A_SECOND = 200 };

EXPORT struct crdebug_app crdebug_app = {.abi = CRDEBUG_APP_ABI,
                                         .size = sizeof(struct crdebug_app)};
extern struct crdebug_shim crdebug_shim;

static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER, registering = PTHREAD_MUTEX_INITIALIZER;
static char last_reason[sizeof crdebug_app.reason];
static struct {
    crdebug_callback *function;
    void *data;
} callbacks[MAX_CALLBACKS];
static uint32_t first_ready, ready; /* from and up to where they wait for what comes after */

static uint32_t get(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
static void set(uint32_t *word, uint32_t value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }

static void wait_a_little(uint32_t *word, uint32_t value) {
    struct timespec limit = {.tv_nsec = LOOK_MS * 1000000L};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &limit);
}

static void copy(char *to, size_t size, const char *from) {
    snprintf(to, size, "%s", from == NULL ? "" : from);
}

static int fail(int status, const char *reason) {
    copy(last_reason, sizeof last_reason, reason);
    return status;
}

static int is_helper(void) {
    return crdebug_app.helper != 0 && crdebug_app.helper == (int32_t)syscall(SYS_gettid);
}

/* Does anybody read this FIFO? With a text, that is written. */
static int reads(const char *fifo, const char *text) {
    char place[PATH_MAX];
    int file = open(crdebug_place(place, fifo), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return 0;
    if (text != NULL && write(file, text, strlen(text)) < 0 && errno != EAGAIN) {
        close(file);
        return 0;
    }
    close(file);
    return 1;
}

static int ring(void) {
    char line[32];
    snprintf(line, sizeof line, "%d\n", (int)crdebug_shim.rank);
    return reads(CRDEBUG_ASKS, line);
}

/* ---- wishes ------------------------------------------------------------------------------------- */

static int ask(int wish, int wanted, const char *note, int *number) {
    if (crdebug_shim.rank < 0) return CRDEBUG_NOT_HERE;
    if (is_helper()) return fail(CRDEBUG_REFUSED, "a callback cannot ask for it");
    int saved_errno = errno, status;
    pthread_mutex_lock(&asking);
    if (!reads(CRDEBUG_ASKS, NULL)) {
        status = CRDEBUG_NOT_HERE;
        goto out;
    }
    if (get(&crdebug_app.quiet) != 0) {
        status = fail(CRDEBUG_REFUSED, "the rank that asks is in a quiet region itself");
        goto out;
    }
    crdebug_app.wish = wish;
    crdebug_app.wanted = wanted;
    copy(crdebug_app.note, sizeof crdebug_app.note, note);
    uint32_t own = crdebug_app.asked + 1;
    set(&crdebug_app.asked, own);
    for (int looks = 0; get(&crdebug_app.answered) != own; looks++) {
        if (looks % LOOKS_A_SECOND == 0 && !ring() && get(&crdebug_app.answered) != own) {
            /* Nobody reads any more. It may have been the last that he did to answer us. */
            crdebug_app.status = CRDEBUG_NOT_HERE;
            set(&crdebug_app.answered, own);
            break;
        }
        wait_a_little(&crdebug_app.answered, own - 1);
    }
    status = crdebug_app.status;
    if (status >= 0 && number != NULL) *number = crdebug_app.number;
    if (status < 0) fail(status, crdebug_app.reason);
out:
    pthread_mutex_unlock(&asking);
    errno = saved_errno;
    return status;
}

EXPORT int crdebug_app_checkpoint(const char *note, int *number) {
    return ask(CRDEBUG_WISH_CHECKPOINT, 0, note, number);
}

EXPORT int crdebug_app_restart(int number) { return ask(CRDEBUG_WISH_RESTART, number, NULL, NULL); }

EXPORT const char *crdebug_app_reason(void) { return last_reason; }

/* ---- quiet regions ------------------------------------------------------------------------------ */

/* Whoever takes a checkpoint closes the door, and then looks whether somebody is inside; who wants
 * in says so first, and then looks at the door. So one of the two sees the other. */
EXPORT int crdebug_app_quiet_start(void) {
    if (crdebug_shim.rank < 0) return CRDEBUG_NOT_HERE;
    int saved_errno = errno;
    for (int looks = 1;; looks++) {
        __atomic_fetch_add(&crdebug_app.quiet, 1, __ATOMIC_SEQ_CST);
        if (!get(&crdebug_app.door) || is_helper()) break;
        if (looks % LOOKS_A_SECOND == 0 &&
            !reads(CRDEBUG_DOOR, NULL)) { /* who closed it has died */
            set(&crdebug_app.door, 0);
            break;
        }
        __atomic_fetch_sub(&crdebug_app.quiet, 1, __ATOMIC_SEQ_CST);
        wait_a_little(&crdebug_app.door, 1);
    }
    errno = saved_errno;
    return CRDEBUG_DONE;
}

EXPORT int crdebug_app_quiet_end(void) {
    if (crdebug_shim.rank < 0) return CRDEBUG_NOT_HERE;
    uint32_t inside = get(&crdebug_app.quiet);
    do {
        if (inside == 0) return fail(CRDEBUG_REFUSED, "no quiet region has begun");
    } while (!__atomic_compare_exchange_n(&crdebug_app.quiet, &inside, inside - 1, 0,
                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return CRDEBUG_DONE;
}

/* ---- callbacks ---------------------------------------------------------------------------------- */

static void call_after(int moment) {
    for (uint32_t i = first_ready; i < ready; i++) callbacks[i].function(moment, callbacks[i].data);
    first_ready = ready = 0;
}

static void call_before(void) {
    first_ready = ready = get(&crdebug_app.callbacks);
    copy(crdebug_app.refusal, sizeof crdebug_app.refusal, NULL);
    crdebug_app.refused = 0;
    while (first_ready > 0 && !crdebug_app.refused) {
        uint32_t next = first_ready - 1;
        crdebug_app.refused =
            callbacks[next].function(CRDEBUG_BEFORE_CHECKPOINT, callbacks[next].data);
        if (!crdebug_app.refused) first_ready = next;
    }
    if (crdebug_app.refused) call_after(CRDEBUG_AFTER_CONTINUE);
}

static void call(int moment) {
    if (moment == CRDEBUG_BEFORE_CHECKPOINT) {
        call_before();
        return;
    }
    /* An image that was taken without a call before it is restarted all the same. */
    if (moment == CRDEBUG_AFTER_RESTART && ready == 0) ready = get(&crdebug_app.callbacks);
    call_after(moment);
}

static void *help(void *unused) {
    (void)unused;
    crdebug_app.helper = (int32_t)syscall(SYS_gettid);
    for (int looks = 1;; looks++) {
        uint32_t wanted = get(&crdebug_app.call);
        if (wanted != get(&crdebug_app.called)) {
            call(crdebug_app.moment);
            set(&crdebug_app.called, wanted);
        } else if (ready != 0 && looks % LOOKS_A_SECOND == 0 && !reads(CRDEBUG_DOOR, NULL)) {
            /* Who took the checkpoint has died. In an image it is gone for another reason. */
            if (wanted == get(&crdebug_app.call)) call(CRDEBUG_AFTER_CONTINUE);
        } else {
            wait_a_little(&crdebug_app.call, wanted);
        }
    }
    return NULL;
}

/* Signals are for the program's own threads, but for the waitpoint's. */
static int start_helper(void) {
    sigset_t ours, before;
    pthread_t thread;
    sigfillset(&ours);
    sigdelset(&ours, crdebug_shim.signal);
    pthread_sigmask(SIG_SETMASK, &ours, &before);
    int error = pthread_create(&thread, NULL, help, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) pthread_detach(thread);
    return error;
}

EXPORT int crdebug_app_register(crdebug_callback *callback, void *data) {
    if (crdebug_shim.rank < 0) return CRDEBUG_NOT_HERE;
    if (is_helper()) return fail(CRDEBUG_REFUSED, "a callback cannot register another");
    static int started;
    int status = CRDEBUG_DONE;
    pthread_mutex_lock(&registering);
    uint32_t next = get(&crdebug_app.callbacks);
    if (next == MAX_CALLBACKS) status = fail(CRDEBUG_REFUSED, "there are too many callbacks");
    else if (!started && start_helper() != 0)
        status = fail(CRDEBUG_FAILED, "no thread for callbacks");
    if (status == CRDEBUG_DONE) {
        started = 1;
        callbacks[next].function = callback;
        callbacks[next].data = data;
        set(&crdebug_app.callbacks, next + 1);
    }
    pthread_mutex_unlock(&registering);
    return status;
}

EXPORT int crdebug_app_refuse(const char *reason) {
    copy(crdebug_app.refusal, sizeof crdebug_app.refusal, reason);
    return 1;
}
