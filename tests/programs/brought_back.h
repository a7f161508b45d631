// To be included before a program (-include, -rdynamic): its ranks are brought back inside their calls.
//
// A rank that is saved inside a call which it records, and brought back when its log has become longer,
// sees when the MPI returns that the call is on record. That is played here without saving anything: in a
// repeat the log's end is moved to where the rank is, at each BROUGHT_BACK-th of the calls below, and
// back as soon as the layer asks the MPI. With BROUGHT_BACK_POSTING also where a receive is posted: not
// otherwise, as the MPI would give it what has come by then, and in truth nothing had.

#ifndef CRDEBUG_TESTS_BROUGHT_BACK_H
#define CRDEBUG_TESTS_BROUGHT_BACK_H

#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"

static struct crdebug_clock *brought_clock;
static struct crdebug_log *brought_log;
static bool brought_posting;
static uint64_t brought_every, brought_calls, brought_hidden; // hidden: the log's end, or 0

static void *brought_next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) {
        fprintf(stderr, "there is no %s\n", name);
        _exit(3);
    }
    return found;
}

static void brought_find(void) {
    char path[4096];
    const char *every = getenv("BROUGHT_BACK");
    brought_clock = brought_next("crdebug_clock");
    snprintf(path, sizeof path, "%s/%d", getenv("CRDEBUG_TIME"), brought_clock->rank);
    int file = open(path, O_RDWR);
    brought_log = mmap(NULL, CRDEBUG_LOG_HEADER, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || brought_log == MAP_FAILED) {
        perror(path);
        _exit(3);
    }
    close(file);
    brought_posting = getenv("BROUGHT_BACK_POSTING") != NULL;
    brought_every = every ? strtoull(every, NULL, 10) : 0;
}

// Not between two equal answers that are one record: what is ahead of the rank begins in its midst.
static void brought_hide(bool posting) {
    if (brought_clock == NULL) brought_find();
    if ((posting && !brought_posting) || brought_every == 0 || brought_calls++ % brought_every ||
        brought_clock->held)
        return;
    if (brought_clock->cursor == brought_log->tail || brought_clock->repeat) return;
    brought_hidden = brought_log->tail;
    brought_log->tail = brought_clock->cursor;
    brought_clock->replaying = 0;
}

static void brought_show(void) {
    if (brought_hidden) brought_log->tail = brought_hidden;
    brought_hidden = 0;
}

static void brought_done(const char *call) {
    if (!brought_hidden && !brought_clock->diverged) return;
    fprintf(stderr, "rank %d: %s did not ask the MPI\n", brought_clock->rank, call);
    _exit(3);
}

static void brought_look(void) {
    static unsigned looks;
    brought_show();
    if (!brought_clock || !brought_clock->diverged || looks++ < 10) return;
    const struct crdebug_record *was = &brought_clock->expected, *came = &brought_clock->actual;
    fprintf(stderr,
            "rank %d, tick %" PRIu64 ": {%" PRIx64 ", %" PRIx64 "} of call %u was recorded, "
            "and {%" PRIx64 ", %" PRIx64 "} of call %u came\n",
            brought_clock->rank, brought_clock->diverged_now / 2, was->head, was->body,
            (unsigned)was->head & 0x1ff, came->head, came->body, (unsigned)came->head & 0x1ff);
    _exit(3);
}

// The program's call: to the layer. ASKED: the layer's: to the MPI.
#define CALLED(call, posting, arguments, names) \
    int MPI_##call arguments { \
        static int(*next) arguments; \
        if (next == NULL) next = brought_next("MPI_" #call); \
        brought_hide(posting); \
        int rc = next names; \
        brought_done("MPI_" #call); \
        return rc; \
    }
#define ASKED(call, arguments, names) \
    int PMPI_##call arguments { \
        static int(*next) arguments; \
        if (next == NULL) next = brought_next("PMPI_" #call); \
        brought_look(); \
        return next names; \
    }
#define BOTH(call, posting, arguments, names) \
    CALLED(call, posting, arguments, names) ASKED(call, arguments, names)

BOTH(Recv, false,
     (void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
      MPI_Status *status),
     (buf, count, type, source, tag, comm, status))
BOTH(Irecv, true,
     (void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
      MPI_Request *request),
     (buf, count, type, source, tag, comm, request))
BOTH(Probe, false, (int source, int tag, MPI_Comm comm, MPI_Status *status),
     (source, tag, comm, status))
BOTH(Iprobe, false, (int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status),
     (source, tag, comm, flag, status))
BOTH(Mprobe, false, (int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status),
     (source, tag, comm, message, status))
BOTH(Improbe, false,
     (int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status),
     (source, tag, comm, flag, message, status))
BOTH(Mrecv, false,
     (void *buf, int count, MPI_Datatype type, MPI_Message *message, MPI_Status *status),
     (buf, count, type, message, status))
BOTH(Imrecv, false,
     (void *buf, int count, MPI_Datatype type, MPI_Message *message, MPI_Request *request),
     (buf, count, type, message, request))
BOTH(Sendrecv, false,
     (const void *out, int sent, MPI_Datatype sending, int dest, int sendtag, void *in,
      int received, MPI_Datatype receiving, int source, int tag, MPI_Comm comm, MPI_Status *status),
     (out, sent, sending, dest, sendtag, in, received, receiving, source, tag, comm, status))
BOTH(Wait, false, (MPI_Request * request, MPI_Status *status), (request, status))
BOTH(Test, false, (MPI_Request * request, int *flag, MPI_Status *status), (request, flag, status))
BOTH(Request_get_status, false, (MPI_Request request, int *flag, MPI_Status *status),
     (request, flag, status))
BOTH(Waitall, false, (int count, MPI_Request *requests, MPI_Status *statuses),
     (count, requests, statuses))
BOTH(Testall, false, (int count, MPI_Request *requests, int *flag, MPI_Status *statuses),
     (count, requests, flag, statuses))
BOTH(Waitany, false, (int count, MPI_Request *requests, int *index, MPI_Status *status),
     (count, requests, index, status))
BOTH(Testany, false, (int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status),
     (count, requests, index, flag, status))
BOTH(Waitsome, false,
     (int count, MPI_Request *requests, int *out, int *indices, MPI_Status *statuses),
     (count, requests, out, indices, statuses))
BOTH(Testsome, false,
     (int count, MPI_Request *requests, int *out, int *indices, MPI_Status *statuses),
     (count, requests, out, indices, statuses))
BOTH(Start, true, (MPI_Request * request), (request))
CALLED(Startall, true, (int count, MPI_Request *requests), (count, requests))

#endif
