/* Requests that are started, cancelled, freed; and what else needs more than its arguments. */
#include <stdlib.h>

#include "pmpi.h"
#include "pmpi_own.h"

/* ---- persistent --------------------------------------------------------------------------------- */

/* A template: MPI_Start posts it. */
void request_prepared(MPI_Request handle, unsigned call, const void *buffer, int count,
                      MPI_Datatype type, int peer, int tag, MPI_Comm comm) {
    if (C.mode == CRDEBUG_COUNTS || handle == mpi.request_null) return;
    unsigned flags = call == CALL_Recv_init ? R_RECV : 0;
    if (flags & R_RECV && peer != MPI_PROC_NULL && (peer == MPI_ANY_SOURCE || tag == MPI_ANY_TAG))
        flags |= R_WILD;
    struct request *request = request_new(handle, flags | R_PERSISTENT);
    if (request == NULL) return;
    request->call = call;
    request->buffer = (void *)(uintptr_t)buffer;
    request->count = count;
    request->type = type;
    request->source = peer;
    request->tag = tag;
    request->comm = comm;
    request->bytes = bytes_of(count, type);
}

void request_prepared_together(MPI_Request handle, MPI_Comm comm, int peer, unsigned call,
                               uint64_t bytes) {
    static int prepared;
    if (C.mode == CRDEBUG_COUNTS) return;
    prepared++;
    struct request *request =
        handle == mpi.request_null ? NULL : request_new(handle, R_PERSISTENT | R_TOGETHER);
    if (request == NULL) return;
    request->call = call;
    request->source = peer;
    request->tag = prepared;
    request->comm = comm;
    request->bytes = bytes;
}

/* A wild receive that is repeated: MPI gets a request of its own, with the sender that it had. */
static int start_known(struct request *request, int source, int tag) {
    int rc = PMPI_Irecv(request->buffer, request->count, request->type, source, tag, request->comm,
                        &request->shadow);
    if (rc == MPI_SUCCESS) {
        request->shadowed = 1;
        shadows++;
    }
    return rc;
}

/* What the record of a started request says of it. */
static unsigned kind_of(const struct request *request) {
    if (request->flags & R_TOGETHER) return CRDEBUG_TOGETHER;
    if (request->flags & R_RECV)
        return CRDEBUG_PACKED | (request->source == MPI_ANY_SOURCE ? CRDEBUG_WILD_SOURCE : 0) |
               (request->tag == MPI_ANY_TAG && request->source != MPI_PROC_NULL ? CRDEBUG_WILD_TAG
                                                                                : 0);
    return request->call == CALL_Ssend_init   ? CRDEBUG_SYNCHRONOUS
           : request->call == CALL_Bsend_init ? CRDEBUG_BUFFERED
                                              : 0;
}

/* Start one, as the log says that it ended, if it does: with the peer and the tag that a wild receive
 * got; not at all if it was cancelled; later, if it did not end before the tail, and is open or behind
 * an open one (see wrap_Irecv). */
static int start(MPI_Request *handle, struct request *request, bool recorded, bool done,
                 bool cancelled, uint32_t peer, uint32_t tag) {
    if (!request || !(request->flags & R_RECV)) return PMPI_Start(handle);
    if (!recorded) {
        int source = chosen_for_good(request->source);
        return source == request->source ? PMPI_Start(handle)
                                         : start_known(request, source, request->tag);
    }
    if (done && cancelled) return request_defer(request, R_DEAD);
    if (done && request->flags & R_WILD)
        return start_known(request,
                           request->source == MPI_ANY_SOURCE ? rank_of(peer) : request->source,
                           request->tag == MPI_ANY_TAG ? tag_of(tag) : request->tag);
    if (!done && (request->flags & R_WILD || deferred)) return request_defer(request, R_DEFERRED);
    return PMPI_Start(handle);
}

/* The MPI has it: its record follows (request_recorded). */
static void started(struct request *request, uint32_t slot) {
    posted++;
    if (request == NULL) return;
    request->flags |= R_ACTIVE | R_NEW;
    request->number = posted;
    request->record = NOBODY;
    request->slot = slot;
    if (request->flags & R_WILD) C.pending_wild++;
    if (request->flags & (R_WILD | R_DEAD) || (request->flags & R_RECV && watched))
        request_watch(request);
}

int wrap_Start(uint64_t site, MPI_Request *handle) {
    struct request *request = request_find(*handle);
    struct note note = note_of(CALL_Start, site, 0, 0, 0, 0);
    if (request && request->comm != mpi.comm_null) {
        note = note_of(CALL_Start, site, comm_number(request->comm), peer_code(request->source),
                       tag_code(request->tag), request->bytes);
        note.head |= FLAG(kind_of(request));
        note.site |= request->site & ~ADDRESS(request->site);
    }
    const struct crdebug_record *record = begin(&note);
    uint64_t head = record ? record->head : 0, body = record ? record->body : 0;
    uint64_t before = times_back;
    int rc = start(handle, request, record, head & FLAG(CRDEBUG_DONE), head & FLAG(CRDEBUG_ODD),
                   BODY_PEER(body), BODY_TAG(body));
    started(request, 0);
    uint64_t place = finish(&note, rc);
    if (request) request_recorded(request, place, before);
    if (deferred && !behind()) requests_caught_up();
    return rc;
}

int wrap_Startall(uint64_t site, int count, MPI_Request handles[]) {
    struct note note = note_of(CALL_Startall, site, 0, 0, 0, (uint64_t)(int64_t)count);
    uint32_t *words = calloc(CRDEBUG_SLOT * (size_t)count + 1, sizeof *words);
    int rc = MPI_SUCCESS;
    if (words == NULL) {
        refuse(CRDEBUG_MEMORY);
        return PMPI_Startall(count, handles);
    }
    for (int i = 0; i < count; i++) {
        const struct request *request = request_find(handles[i]);
        uint32_t *slot = words + CRDEBUG_SLOT * i;
        if (request == NULL || request->comm == mpi.comm_null) continue;
        slot[CRDEBUG_SLOT_PEER] = peer_code(request->source) | CRDEBUG_SLOT_FLAGS(kind_of(request));
        slot[CRDEBUG_SLOT_TAG] = tag_code(request->tag);
        slot[CRDEBUG_SLOT_COMM] = comm_number(request->comm);
        slot[CRDEBUG_SLOT_SIZE] = request->bytes < SIZE_MOST ? (uint32_t)request->bytes : SIZE_MOST;
    }
    const struct crdebug_record *record = begin(&note);
    uint64_t before = times_back;
    for (int i = 0; i < count && rc == MPI_SUCCESS; i++) {
        struct request *request = request_find(handles[i]);
        uint32_t *slot = words + CRDEBUG_SLOT * i;
        unsigned at = CRDEBUG_SLOT * (unsigned)i;
        uint32_t was = record ? word_of(record, at + CRDEBUG_SLOT_PEER) : 0;
        uint32_t tag = record ? word_of(record, at + CRDEBUG_SLOT_TAG) : 0;
        bool done = was & CRDEBUG_SLOT_DONE, cancelled = was & CRDEBUG_SLOT_CANCELLED;
        rc = start(&handles[i], request, record, done, cancelled, was & PEER_MOST, tag);
        slot[CRDEBUG_SLOT_PEER] |= was & (CRDEBUG_SLOT_DONE | CRDEBUG_SLOT_CANCELLED);
        if (request && request->flags & R_WILD && done && !cancelled) {
            slot[CRDEBUG_SLOT_PEER] = was; /* it is told so by the log */
            slot[CRDEBUG_SLOT_TAG] = tag;
        }
    }
    note.words = words;
    note.count = CRDEBUG_SLOT * (uint32_t)count;
    for (int i = 0; i < count; i++) started(request_find(handles[i]), (uint32_t)i + 1);
    uint64_t place = finish(&note, rc);
    for (int i = 0; i < count; i++) {
        struct request *request = request_find(handles[i]);
        if (request) request_recorded(request, place, before);
    }
    if (deferred && !behind()) requests_caught_up();
    free(words);
    return rc;
}

/* ---- cancelled and freed ------------------------------------------------------------------------ */

int wrap_Cancel(uint64_t site, MPI_Request *handle) {
    struct request *request = request_find(*handle);
    struct note note = note_of(CALL_Cancel, site, 0, 0, 0, request_age(request));
    const struct crdebug_record *record = begin(&note);
    int rc = MPI_SUCCESS;
    bool was_received = false;
    if (request) {
        request->flags |= R_WATCH | R_CANCEL;
        was_received = record && request_was_received(request);
    }
    if (request && request->flags & R_DEFERRED) { /* the MPI never had it, and is not to get it */
        request->flags ^= R_DEFERRED | R_DEAD;
        deferred--;
    }
    if (request && request->flags & R_DEAD) was_received = true; /* it is cancelled, never posted */
    if (!was_received) rc = PMPI_Cancel(request && request->shadowed ? &request->shadow : handle);
    finish(&note, rc);
    return rc;
}

/* A receive that was cancelled and is freed: did it get a message? To wait for it is local (MPI 4.1,
 * section 3.8.4), and says so. Of sends it is not, in MPIs that cannot cancel any. Returns whether the
 * application's request is still to be freed. */
static bool end_cancelled(struct request *request, MPI_Request *handle) {
    MPI_Status status;
    bool persistent = request->flags & R_PERSISTENT;
    PMPI_Wait(request->shadowed ? &request->shadow : handle, &status);
    request_completed(request, &status);
    if (!persistent) *handle = mpi.request_null;
    return persistent;
}

int wrap_Request_free(uint64_t site, MPI_Request *handle) {
    struct request *request = request_find(*handle);
    struct note note = note_of(CALL_Request_free, site, 0, 0, 0, request_age(request));
    const unsigned asked = R_RECV | R_ACTIVE | R_CANCEL;
    begin(&note);
    if (request && (request->flags & asked) == asked && !end_cancelled(request, handle)) {
        finish(&note, MPI_SUCCESS);
        return MPI_SUCCESS;
    }
    if (request && request->shadowed && request->shadow != *handle)
        PMPI_Request_free(&request->shadow);
    if (request) request_drop(request);
    int rc = PMPI_Request_free(handle);
    finish(&note, rc);
    return rc;
}

/* ---- communicators ------------------------------------------------------------------------------ */

/* Not one function that is given the other: the address of an MPI function would have to be there as
   soon as the layer is loaded, also into the launcher, which has no MPI. A call is bound when made. */
int wrap_Comm_free(uint64_t site, MPI_Comm *comm) {
    struct note note = note_of(CALL_Comm_free, site, comm_number(*comm), 0, 0, 0);
    begin(&note);
    comm_gone(*comm);
    int rc = PMPI_Comm_free(comm);
    finish(&note, rc);
    return rc;
}

int wrap_Comm_disconnect(uint64_t site, MPI_Comm *comm) {
    struct note note = note_of(CALL_Comm_disconnect, site, comm_number(*comm), 0, 0, 0);
    begin(&note);
    comm_gone(*comm);
    int rc = PMPI_Comm_disconnect(comm);
    finish(&note, rc);
    return rc;
}

/* A duplicate that is there when its request completes. */
static void promised(uint64_t site, int rc, uint64_t place, MPI_Comm comm, MPI_Comm *newcomm,
                     const MPI_Request *handle) {
    struct request *request =
        request_posted(rc == MPI_SUCCESS ? *handle : mpi.request_null, R_COMM, place);
    uint32_t number = comm_promise(comm);
    if (request) {
        /* The bindings' variable is gone when the request completes: it is met when it is used. */
        request->new_comm = from_fortran(ADDRESS(site)) ? NULL : newcomm;
        request->comm_promised = number;
    }
}

int wrap_Comm_idup(uint64_t site, MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *handle) {
    struct note note = note_of(CALL_Comm_idup, site, comm_number(comm), 0, 0, 0);
    begin(&note);
    int rc = PMPI_Comm_idup(comm, newcomm, handle);
    promised(site, rc, finish(&note, rc), comm, newcomm, handle);
    return rc;
}

#ifdef HAS_MPI_Comm_idup_with_info
int wrap_Comm_idup_with_info(uint64_t site, MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm,
                             MPI_Request *handle) {
    struct note note = note_of(CALL_Comm_idup_with_info, site, comm_number(comm), 0, 0, 0);
    begin(&note);
    int rc = PMPI_Comm_idup_with_info(comm, info, newcomm, handle);
    promised(site, rc, finish(&note, rc), comm, newcomm, handle);
    return rc;
}
#endif

/* ---- others ------------------------------------------------------------------------------------- */

int wrap_Imrecv(uint64_t site, void *buf, int count, MPI_Datatype type, MPI_Message *message,
                MPI_Request *handle) {
    struct note note = matched_receive(CALL_Imrecv, site, bytes_of(count, type), *message);
    begin(&note);
    int rc = PMPI_Imrecv(buf, count, type, message, handle);
    uint64_t place = finish(&note, rc);
    request_posted(rc == MPI_SUCCESS ? *handle : mpi.request_null, R_RECV, place);
    return rc;
}

int wrap_Win_test(uint64_t site, MPI_Win win, int *flag) {
    struct note yes = note_of(CALL_Win_test, site, window_number(win), 0, 0, 0), no = yes;
    int rc;
    do {
        const struct crdebug_record *record = expected();
        if (record && says_no(record)) {
            told_no(&no, flag);
            return MPI_SUCCESS;
        }
        if (record) begin(&yes);
        rc = PMPI_Win_test(win, flag);
    } while (rc == MPI_SUCCESS && !*flag && expected()); /* until the log is cut */
    if (*flag) {
        epoch(win, E_WAITED, EVERYBODY);
        finish(&yes, rc);
    } else {
        finish_no(&no);
    }
    return rc;
}
