/* Requests that the application holds, with where and as what they were posted. */
#include <stdlib.h>

#include "pmpi.h"

#define BUCKETS CRDEBUG_BUCKETS
#define CHUNK 256

uint64_t posted, shadows, times_back;
struct request *watched;
unsigned unsettled, deferred;
static struct request *buckets[BUCKETS], *unused, *last_watched;

static struct request **bucket(MPI_Request handle) {
    uint64_t bits = (uint64_t)(uintptr_t)handle;
    return &buckets[(bits ^ bits >> 6 ^ bits >> 16) % BUCKETS];
}

struct request *request_find(MPI_Request handle) {
    if (handle == mpi.request_null) return NULL;
    struct request *request = *bucket(handle);
    while (request && request->handle != handle) request = request->next;
    return request;
}

struct request *request_new(MPI_Request handle, unsigned flags) {
    if (unused == NULL) {
        struct request *chunk = calloc(CHUNK, sizeof *chunk);
        if (chunk == NULL) {
            refuse(CRDEBUG_MEMORY);
            return NULL;
        }
        for (unsigned i = 0; i < CHUNK; i++) {
            chunk[i].next = unused;
            unused = &chunk[i];
        }
        C.requests = (uint64_t)(uintptr_t)buckets;
    }
    struct request *request = unused, **place = bucket(handle);
    unused = request->next;
    request->handle = handle;
    request->flags = flags;
    request->record = NOBODY;
    request->site = C.doing_site;
    request->now = C.now;
    request->slot = request->shadowed = request->comm_promised = 0;
    request->earlier = request->later = NULL;
    request->copy = NULL;
    request->next = *place;
    *place = request;
    return request;
}

static void unwatch(struct request *request) {
    if (watched != request && request->earlier == NULL) return;
    if (request->earlier) request->earlier->later = request->later;
    else watched = request->later;
    if (request->later) request->later->earlier = request->earlier;
    else last_watched = request->earlier;
    request->earlier = request->later = NULL;
    if (request->flags & R_WILD && !(request->flags & R_SETTLED)) unsettled--;
    if (request->flags & R_DEFERRED) deferred--;
    request->flags &= ~(unsigned)(R_SETTLED | R_DEFERRED);
}

void request_watch(struct request *request) {
    request->flags |= R_WATCH;
    request->earlier = last_watched;
    request->later = NULL;
    if (last_watched) last_watched->later = request;
    else watched = request;
    last_watched = request;
    if (request->flags & R_WILD) unsettled++;
}

void request_drop(struct request *request) {
    unwatch(request);
    struct request **place = bucket(request->handle);
    while (*place != request) place = &(*place)->next;
    *place = request->next;
    if (request->flags & R_WILD && request->flags & R_ACTIVE) C.pending_wild--;
    if (request->shadowed) shadows--;
    if (request->flags & R_SENDS) {
        PMPI_Request_free(&request->sending); /* a copy of what goes stays, for it may still go */
        shadows--;
    }
    request->next = unused;
    unused = request;
}

struct request *request_posted(MPI_Request handle, unsigned flags, uint64_t record) {
    posted++;
    if (C.mode == CRDEBUG_COUNTS || handle == mpi.request_null) return NULL;
    struct request *request = request_find(handle);
    if (request && !(flags & R_WILD)) { /* the MPI gives it more than once */
        request->flags = R_SHARED;
        return NULL;
    }
    if (request)
        request_drop(request); /* an open receive has one of its own: that was another one's */
    request = request_new(handle, flags | R_ACTIVE);
    if (request == NULL) return NULL;
    request->number = posted;
    request->record = record;
    if (flags & R_WILD) C.pending_wild++;
    return request;
}

/* The record of its posting, or NULL. */
static struct crdebug_record *record_of(const struct request *request) {
    return request->record == NOBODY ? NULL : posting_at(request->record);
}

static uint32_t *slot_of(const struct request *request, struct crdebug_record *record) {
    return word_at(record, CRDEBUG_SLOT * (request->slot - 1));
}

/* What the posting left open is known now: a replay posts it so. */
static void settle_in(struct crdebug_record *record, const struct request *request, int source,
                      int tag, bool cancelled) {
    if (request->slot) {
        uint32_t *words = slot_of(request, record);
        words[CRDEBUG_SLOT_PEER] |= CRDEBUG_SLOT_DONE | (cancelled ? CRDEBUG_SLOT_CANCELLED : 0);
        if (!cancelled && request->flags & R_WILD) {
            words[CRDEBUG_SLOT_PEER] = (words[CRDEBUG_SLOT_PEER] & ~PEER_MOST) | peer_code(source);
            words[CRDEBUG_SLOT_TAG] = tag_code(tag);
        }
        return;
    }
    record->head |= FLAG(CRDEBUG_DONE) | (cancelled ? FLAG(CRDEBUG_ODD) : 0);
    if (!cancelled && request->flags & R_WILD) {
        record->body &= ~(((uint64_t)PEER_MOST << 28) | TAG_MOST);
        record->body |= (uint64_t)peer_code(source) << 28 | tag_code(tag);
    }
}

/* Again if the record was copied elsewhere meanwhile: crdebug may have stopped us in the midst of it. */
static void settle(struct request *request, int source, int tag, bool cancelled) {
    struct crdebug_record *record = record_of(request), *before = NULL;
    if (C.mode == CRDEBUG_COUNTS) return;
    for (; record && record != before; before = record, record = record_of(request))
        settle_in(record, request, source, tag, cancelled);
}

static void end_shadow(struct request *request) {
    if (!request->shadowed) return;
    if (request->flags & R_OWN_SHADOW) PMPI_Request_free(&request->shadow);
    request->flags &= ~(unsigned)R_OWN_SHADOW;
    request->shadowed = 0;
    shadows--;
}

bool request_sends_slow(struct request *request) {
    int flag = 0;
    if (PMPI_Test(&request->sending, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && !flag) return true;
    request->flags &= ~(unsigned)R_SENDS;
    shadows--;
    free(request->copy);
    request->copy = NULL;
    return false;
}

void request_completed(struct request *request, MPI_Status *status) {
    if (request->flags & R_SHARED) return;
    if (request->flags & R_DEAD) PMPI_Status_set_cancelled(status, 1);
    if (request->flags & R_ACTIVE && request->flags & (R_WILD | R_WATCH)) {
        int cancelled = 0;
        PMPI_Test_cancelled(status, &cancelled);
        settle(request, status->MPI_SOURCE, status->MPI_TAG, cancelled);
        unwatch(request);
        if (request->flags & R_WILD) C.pending_wild--;
    }
    if (request->flags & R_COMM && request->new_comm)
        comm_keep(request->comm_promised, *request->new_comm, request->site, request->now);
    if (request->flags & R_PERSISTENT) {
        request->flags &= ~(unsigned)(R_ACTIVE | R_WATCH | R_DEAD | R_CANCEL);
        end_shadow(request);
        return;
    }
    request->flags &= ~(unsigned)R_ACTIVE;
    /* What the application has is not what completed: it was cancelled when we went back. */
    if (request->shadowed && request->handle != request->shadow && request->flags & R_RECV) {
        MPI_Request cancelled = request->handle;
        if (request->flags & R_OWN_HANDLE) PMPI_Request_free(&cancelled);
        else PMPI_Wait(&cancelled, MPI_STATUS_IGNORE);
    }
    end_shadow(request);
    request_drop(request);
}

void requests_unsettle(void) {
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct request *request = buckets[i]; request; request = request->next) {
            bool known = request->shadowed && !(request->flags & R_DEFERRED);
            struct crdebug_record *record = record_of(request);
            if (!(request->flags & R_ACTIVE) || !(request->flags & R_WILD) || known ||
                request->flags & R_NEW || record == NULL)
                continue;
            if (request->flags & R_SETTLED) unsettled++;
            request->flags &= ~(unsigned)R_SETTLED;
            if (request->slot) {
                uint32_t *words = slot_of(request, record);
                words[CRDEBUG_SLOT_PEER] &= CRDEBUG_SLOT_FLAGS(~0u) & ~CRDEBUG_SLOT_DONE;
                words[CRDEBUG_SLOT_PEER] &= ~CRDEBUG_SLOT_CANCELLED;
                words[CRDEBUG_SLOT_PEER] |= peer_code(request->source);
                words[CRDEBUG_SLOT_TAG] = tag_code(request->tag);
                continue;
            }
            record->head &= ~FLAG(CRDEBUG_DONE | CRDEBUG_ODD);
            record->body &= ~(((uint64_t)PEER_MOST << 28) | TAG_MOST);
            record->body |= (uint64_t)peer_code(request->source) << 28 | tag_code(request->tag);
        }
}

/* ---- receives that are open, on the way back and forward ---------------------------------------- */

/* MPICH from 4.2 on takes a persistent request that is complete for inactive once it was asked for its
 * status, and never tells of it. What such a one got, the log is told when it completes. */
bool request_may_be_asked(const struct request *request) {
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40200000
    return request->shadowed || !(request->flags & R_PERSISTENT);
#else
    (void)request;
    return true;
#endif
}

/* What has been matched inside the MPI, though the application has not asked: a replay must match
 * it so, or a sender would wait there for a receive that comes later. */
void requests_sweep(unsigned most) {
    for (struct request *request = watched; request && most; request = request->later) {
        int flag = 0;
        MPI_Status status;
        if (!(request->flags & R_WILD) ||
            request->flags & (R_SETTLED | R_DEFERRED | R_DEAD | R_NEW))
            continue;
        if (!request_may_be_asked(request)) continue;
        most--;
        MPI_Request real = request->shadowed ? request->shadow : request->handle;
        if (PMPI_Request_get_status(real, &flag, &status) != MPI_SUCCESS || !flag) continue;
        int cancelled = 0;
        PMPI_Test_cancelled(&status, &cancelled);
        if (cancelled) continue; /* what a cancelled one is, its completion says */
        settle(request, status.MPI_SOURCE, status.MPI_TAG, false);
        request->flags |= R_SETTLED;
        unsettled--;
    }
}

int request_defer(struct request *request, unsigned flag) {
    int rc = MPI_SUCCESS;
    if (!(request->flags & R_PERSISTENT)) {
        rc = PMPI_Recv_init(request->buffer, request->count, request->type, request->source,
                            request->tag, request->comm, &request->shadow);
        request->flags |= R_OWN_SHADOW;
        request->shadowed = 1;
        shadows++;
    }
    request->flags |= flag;
    deferred += flag == R_DEFERRED;
    return rc;
}

void requests_caught_up(void) {
    for (struct request *request = watched; request && deferred; request = request->later)
        if (request->flags & R_DEFERRED) {
            request->flags &= ~(unsigned)R_DEFERRED;
            deferred--;
            PMPI_Start(request->shadowed ? &request->shadow : &request->handle);
        }
}

/* How the log says that a posted receive ends: 0 not before its tail, 1 with a message, 2 cancelled. */
static int outcome(const struct request *request, int *source, int *tag) {
    struct crdebug_record *record = record_of(request);
    if (record == NULL) return 0;
    uint32_t peer = BODY_PEER(record->body), code = BODY_TAG(record->body);
    bool done = record->head & FLAG(CRDEBUG_DONE), odd = record->head & FLAG(CRDEBUG_ODD);
    if (request->slot) {
        const uint32_t *words = slot_of(request, record);
        peer = words[CRDEBUG_SLOT_PEER] & PEER_MOST;
        code = words[CRDEBUG_SLOT_TAG];
        done = words[CRDEBUG_SLOT_PEER] & CRDEBUG_SLOT_DONE;
        odd = words[CRDEBUG_SLOT_PEER] & CRDEBUG_SLOT_CANCELLED;
    }
    if (!done || odd) return done ? 2 : 0;
    if (*source == MPI_ANY_SOURCE) *source = rank_of(peer);
    if (*tag == MPI_ANY_TAG) *tag = tag_of(code);
    return 1;
}

bool request_was_received(const struct request *request) {
    int source = 0, tag = 0;
    return outcome(request, &source, &tag) == 1;
}

/* Has the MPI got it as the application posted it, or is to have it at the log's tail? */
static bool is_posted_open(const struct request *request) {
    bool known = request->shadowed && !(request->flags & R_OWN_SHADOW);
    return !known && !(request->flags & (R_DEFERRED | R_DEAD));
}

/* Of one that was taken back: post it as the log says that it ended. */
static void post_anew(struct request *request) {
    int flag = 0, cancelled = 0, source = request->source, tag = request->tag;
    MPI_Status status;
    bool own = request->flags & R_OWN_SHADOW; /* once deferred, and started since */
    if (!is_posted_open(request)) return;
    MPI_Request real = request->shadowed ? request->shadow : request->handle;
    PMPI_Request_get_status(real, &flag, &status);
    if (flag) PMPI_Test_cancelled(&status, &cancelled);
    if (!flag || !cancelled) return; /* matched already */
    /* A persistent one is inactive then, and can be started again. */
    if (own || request->flags & R_PERSISTENT) PMPI_Wait(&real, MPI_STATUS_IGNORE);
    int end = outcome(request, &source, &tag);
    if (end != 1 && own) {
        request->flags |= end ? R_DEAD : R_DEFERRED;
        deferred += !end;
    } else if (end != 1) {
        request_defer(request, end ? R_DEAD : R_DEFERRED);
    } else {
        if (own && request->handle != request->shadow) PMPI_Request_free(&request->shadow);
        else if (own) request->flags |= R_OWN_HANDLE;
        if (own) shadows--;
        request->flags &= ~(unsigned)R_OWN_SHADOW;
        PMPI_Irecv(request->buffer, request->count, request->type, source, tag, request->comm,
                   &request->shadow);
        request->shadowed = 1;
        shadows++;
    }
}

/* The process was put back to an earlier time, in which it had posted receives that were open. MPI
 * may match them otherwise now. Take back those that have not been matched yet, and post them as
 * the log says that they ended, in their order. */
void requests_went_back(void) {
    /* First all of them: MPI matches nothing in between, as it may once it is asked for a status. */
    for (struct request *request = watched; request; request = request->later) {
        MPI_Request real = request->shadowed ? request->shadow : request->handle;
        if (is_posted_open(request)) PMPI_Cancel(&real);
    }
    for (struct request *request = watched; request; request = request->later)
        if (!(request->flags & R_NEW)) post_anew(request);
}

void request_recorded(struct request *request, uint64_t record, uint64_t before) {
    request->record = record;
    request->flags &= ~(unsigned)R_NEW;
    if (times_back != before && request->flags & R_WATCH) post_anew(request);
}

/* A handle that the MPI gives more than once does not tell of which call it is. */
void requests_tell_unfreed(void) {
    for (unsigned i = 0; i < BUCKETS; i++)
        for (const struct request *request = buckets[i]; request; request = request->next) {
            if (request->flags & R_PERSISTENT)
                tell_unfreed("persistent", request->site, request->now);
            else if (!(request->flags & R_SHARED) && request->flags & R_ACTIVE)
                tell_unfreed("request", request->site, request->now);
        }
}
