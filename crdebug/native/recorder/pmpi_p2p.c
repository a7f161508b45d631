/* Receives and probes: who was matched is recorded, and on a repeat asked for by name.
 *
 * A blocking call whose sender is open polls instead of waiting inside the MPI: nothing is decided
 * there before the layer sees it, so a checkpoint in the middle of it can be replayed. */
#include <stdlib.h>

#include "pmpi.h"
#include "pmpi_own.h"

static bool wild(int source, int tag) {
    return source != MPI_PROC_NULL && (source == MPI_ANY_SOURCE || tag == MPI_ANY_TAG);
}

static struct note envelope(unsigned call, uint64_t site, int source, int tag, MPI_Comm comm,
                            uint64_t bytes) {
    struct note note =
        note_of(call, site, comm_number(comm), peer_code(source), tag_code(tag), bytes);
    if (source == MPI_ANY_SOURCE) note.head |= FLAG(CRDEBUG_WILD_SOURCE);
    if (tag == MPI_ANY_TAG && source != MPI_PROC_NULL) note.head |= FLAG(CRDEBUG_WILD_TAG);
    if (UNLIKELY(bytes >= SIZE_MOST || (source >= 0 && peer_code(source) == PEER_MOST) ||
                 (tag >= 0 && tag_code(tag) == TAG_MOST)))
        note_large(&note, bytes, (uint32_t)source, (uint32_t)tag);
    return note;
}

static void resolve(struct note *note, const MPI_Status *status) {
    if (BODY_PEER(note->body) == PEER_NULL) return; /* the status knows nothing of the tag */
    note->body &= (uint64_t)COMM_MOST << 48;
    note->body |= (uint64_t)peer_code(status->MPI_SOURCE) << 28 | tag_code(status->MPI_TAG);
}

/* What the record of a wild call says instead of its own source and tag. */
static void recorded(const struct crdebug_record *record, int *source, int *tag) {
    if (*source == MPI_ANY_SOURCE) {
        *source = rank_of(BODY_PEER(record->body));
        C.choice = 0; /* a repeat of what was chosen */
    }
    if (*tag == MPI_ANY_TAG) *tag = tag_of(BODY_TAG(record->body));
}

/* ---- receives ----------------------------------------------------------------------------------- */

/* Is there a message? If that is no question that can be asked, `spared` or what it returns says so. */
static int is_there(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status) {
    ask();
    int rc = PMPI_Iprobe(chosen(source), tag, comm, flag, status);
    answered(rc);
    return rc;
}

/* Does the MPI refuse it, whatever message there may be? Then nobody waits for one. */
static bool is_refused(int count, MPI_Datatype type) {
    return count < 0 || (C.mode != CRDEBUG_COUNTS && !type_entry(type)->known);
}

/* Nothing is taken before it is sure that it is to be taken here. */
static int receive_wild(struct note *note, void *buf, int count, MPI_Datatype type, int source,
                        int tag, MPI_Comm comm, MPI_Status *status) {
    const struct crdebug_record *record;
    int rc, flag;
    do {
        int from = source, with = tag;
        record = begin(note); /* until the log is cut */
        if (record) recorded(record, &from, &with);
        rc = is_there(from, with, comm, &flag, status);
        if (spared) return PMPI_Recv(buf, count, type, source, tag, comm, status);
        if (rc != MPI_SUCCESS) return rc;
    } while (!flag || brought_back(record));
    chosen_for_good(source);
    resolve(note, status);
    return PMPI_Recv(buf, count, type, status->MPI_SOURCE, status->MPI_TAG, comm, status);
}

int wrap_Recv(uint64_t site, void *buf, int count, MPI_Datatype type, int source, int tag,
              MPI_Comm comm, MPI_Status *status) {
    MPI_Status own;
    struct note note = envelope(CALL_Recv, site, source, tag, comm, bytes_of(count, type));
    int rc;
    if (LIKELY(!wild(source, tag)) || is_refused(count, type)) {
        begin(&note);
        rc = PMPI_Recv(buf, count, type, source, tag, comm, status);
    } else {
        if (status == MPI_STATUS_IGNORE) status = &own;
        rc = receive_wild(&note, buf, count, type, source, tag, comm, status);
    }
    finish(&note, rc);
    return rc;
}

/* Post a receive that is as `like` says, with all that is needed to post it anew. */
static int post_watched(struct note *note, const struct crdebug_record *record,
                        struct request *like, MPI_Request *handle) {
    bool done = record && record->head & FLAG(CRDEBUG_DONE),
         odd = record && record->head & FLAG(CRDEBUG_ODD);
    bool open = wild(like->source, like->tag);
    int rc, source = like->source, tag = like->tag;
    uint64_t before = times_back;
    if (record && (odd || (!done && (open || deferred)))) {
        rc = request_defer(like, odd ? R_DEAD : R_DEFERRED);
        *handle = like->shadow;
    } else {
        if (done) recorded(record, &source, &tag);
        else source = chosen_for_good(source);
        rc = PMPI_Irecv(like->buffer, like->count, like->type, source, tag, like->comm, handle);
    }
    struct request *request = request_posted(rc == MPI_SUCCESS ? *handle : mpi.request_null,
                                             R_RECV | R_NEW | (open ? R_WILD : 0), NOBODY);
    if (request == NULL) {
        finish(note, rc);
        return rc;
    }
    request->flags |= like->flags;
    request->shadow = like->shadow;
    request->shadowed = like->shadowed;
    request->buffer = like->buffer;
    request->count = like->count;
    request->type = like->type;
    request->source = like->source;
    request->tag = like->tag;
    request->comm = like->comm;
    request_watch(request);
    request_recorded(request, finish(note, rc), before);
    if (request->flags & R_DEFERRED && !behind()) requests_caught_up(); /* it was the last record */
    return rc;
}

/* On a repeat an open receive is posted as it ended. One that did not end before the tail is not
 * posted until there, nor a known one behind it: they would match what others are to have. */
int wrap_Irecv(uint64_t site, void *buf, int count, MPI_Datatype type, int source, int tag,
               MPI_Comm comm, MPI_Request *handle) {
    struct note note = envelope(CALL_Irecv, site, source, tag, comm, bytes_of(count, type));
    const struct crdebug_record *record = begin(&note);
    bool odd = record && record->head & FLAG(CRDEBUG_ODD);
    if (LIKELY(!wild(source, tag) && !watched && !odd)) {
        int rc = PMPI_Irecv(buf, count, type, source, tag, comm, handle);
        uint64_t place = finish(&note, rc);
        request_posted(rc == MPI_SUCCESS ? *handle : mpi.request_null, R_RECV, place);
        return rc;
    }
    struct request like = {.flags = R_RECV,
                           .buffer = buf,
                           .count = count,
                           .type = type,
                           .source = source,
                           .tag = tag,
                           .comm = comm};
    return post_watched(&note, record, &like, handle);
}

/* ---- both halves -------------------------------------------------------------------------------- */

static struct note halves(unsigned call, uint64_t site, uint64_t sent, int dest, int sendtag,
                          uint64_t received, int source, int recvtag, MPI_Comm comm) {
    struct note note =
        note_of(call, site, comm_number(comm), peer_code(dest), tag_code(sendtag), sent);
    uint32_t to = peer_code(dest), from = peer_code(source), tag = tag_code(sendtag);
    bool any = wild(source, recvtag);
    if (source == MPI_ANY_SOURCE) note.head |= FLAG(CRDEBUG_WILD_SOURCE);
    if (recvtag == MPI_ANY_TAG && source != MPI_PROC_NULL) note.head |= FLAG(CRDEBUG_WILD_TAG);
    if (LIKELY(!any && sendtag == recvtag && sent == received && sent < SIZE_MOST && to < 0xffff &&
               from < 0xffff && tag < 0xffff)) {
        note.head |= FLAG(CRDEBUG_PACKED);
        note.body =
            (uint64_t)comm_number(comm) << 48 | (uint64_t)to << 32 | (uint64_t)from << 16 | tag;
        return note;
    }
    /* The receiving half in the body, the sending one in words. */
    note.body = (uint64_t)comm_number(comm) << 48 | (uint64_t)from << 28 | tag_code(recvtag);
    note.few[0] = to;
    note.few[1] = tag;
    note.few[2] = (uint32_t)received;
    note.count = 3;
    return note;
}

/* Both go on at once, as in the call itself: the peer may do the same. */
static int exchange_wild(struct note *note, const void *sendbuf, int sendcount,
                         MPI_Datatype sendtype, int dest, int sendtag, void *recvbuf, int recvcount,
                         MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm,
                         MPI_Status *status) {
    MPI_Request sending;
    int rc = PMPI_Isend(sendbuf, sendcount, sendtype, dest, sendtag, comm, &sending);
    if (rc != MPI_SUCCESS) return rc;
    rc = receive_wild(note, recvbuf, recvcount, recvtype, source, recvtag, comm, status);
    int sent = PMPI_Wait(&sending, MPI_STATUS_IGNORE);
    return rc == MPI_SUCCESS ? sent : rc;
}

int wrap_Sendrecv(uint64_t site, const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                  int dest, int sendtag, void *recvbuf, int recvcount, MPI_Datatype recvtype,
                  int source, int recvtag, MPI_Comm comm, MPI_Status *status) {
    MPI_Status own;
    struct note note = halves(CALL_Sendrecv, site, bytes_of(sendcount, sendtype), dest, sendtag,
                              bytes_of(recvcount, recvtype), source, recvtag, comm);
    int rc;
    if (LIKELY(!wild(source, recvtag))) {
        begin(&note);
        rc = PMPI_Sendrecv(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount,
                           recvtype, source, recvtag, comm, status);
    } else {
        if (status == MPI_STATUS_IGNORE) status = &own;
        rc = exchange_wild(&note, sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount,
                           recvtype, source, recvtag, comm, status);
    }
    finish(&note, rc);
    return rc;
}

/* The buffer is needed for what comes: what goes is packed first. packed: its bytes. */
static int pack_copy(const void *buf, int count, MPI_Datatype type, MPI_Comm comm, void **copy,
                     int *packed) {
    int size = 0;
    int rc = PMPI_Pack_size(count, type, comm, &size);
    *packed = 0;
    *copy = rc == MPI_SUCCESS ? malloc((size_t)size + 1) : NULL;
    if (*copy == NULL) return rc == MPI_SUCCESS ? MPI_ERR_NO_MEM : rc;
    return PMPI_Pack(buf, count, type, *copy, size, packed, comm);
}

static int replace_wild(struct note *note, void *buf, int count, MPI_Datatype type, int dest,
                        int sendtag, int source, int recvtag, MPI_Comm comm, MPI_Status *status) {
    void *copy;
    int packed, rc = pack_copy(buf, count, type, comm, &copy, &packed);
    if (rc == MPI_SUCCESS)
        rc = exchange_wild(note, copy, packed, mpi.packed, dest, sendtag, buf, count, type, source,
                           recvtag, comm, status);
    free(copy);
    return rc;
}

int wrap_Sendrecv_replace(uint64_t site, void *buf, int count, MPI_Datatype type, int dest,
                          int sendtag, int source, int recvtag, MPI_Comm comm, MPI_Status *status) {
    MPI_Status own;
    uint64_t bytes = bytes_of(count, type);
    struct note note =
        halves(CALL_Sendrecv_replace, site, bytes, dest, sendtag, bytes, source, recvtag, comm);
    int rc;
    if (!wild(source, recvtag)) {
        begin(&note);
        rc = PMPI_Sendrecv_replace(buf, count, type, dest, sendtag, source, recvtag, comm, status);
    } else {
        if (status == MPI_STATUS_IGNORE) status = &own;
        rc = replace_wild(&note, buf, count, type, dest, sendtag, source, recvtag, comm, status);
    }
    finish(&note, rc);
    return rc;
}

#ifdef HAS_MPI_Isendrecv
/* Both halves are requests of their own, where the receive may have to be posted anew: the application
 * has that of the receive, which is complete when both are. copy: of what goes; kept until it is gone. */
static int post_halves(struct note *note, const struct crdebug_record *record, const void *sendbuf,
                       int sendcount, MPI_Datatype sendtype, int dest, int sendtag, void *copy,
                       struct request *like, MPI_Request *handle) {
    MPI_Request sending = mpi.request_null;
    int sent = PMPI_Isend(sendbuf, sendcount, sendtype, dest, sendtag, like->comm, &sending);
    int rc = post_watched(note, record, like, handle);
    if (rc != MPI_SUCCESS || sent != MPI_SUCCESS) return rc == MPI_SUCCESS ? sent : rc;
    struct request *request = request_find(*handle);
    if (request == NULL)
        request = request_new(*handle, R_RECV | R_ACTIVE); /* the record has just ended */
    if (request == NULL) return PMPI_Request_free(&sending);
    request->flags |= R_SENDS;
    request->sending = sending;
    request->copy = copy;
    shadows++;
    return rc;
}

static bool is_one(int source, int tag, const struct crdebug_record *record) {
    if (C.mode == CRDEBUG_COUNTS || source == MPI_PROC_NULL) return true;
    return !wild(source, tag) && !watched && !(record && record->head & FLAG(CRDEBUG_ODD));
}

int wrap_Isendrecv(uint64_t site, const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                   int dest, int sendtag, void *recvbuf, int recvcount, MPI_Datatype recvtype,
                   int source, int recvtag, MPI_Comm comm, MPI_Request *handle) {
    struct note note = halves(CALL_Isendrecv, site, bytes_of(sendcount, sendtype), dest, sendtag,
                              bytes_of(recvcount, recvtype), source, recvtag, comm);
    const struct crdebug_record *record = begin(&note);
    if (LIKELY(is_one(source, recvtag, record))) {
        int rc = PMPI_Isendrecv(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount,
                                recvtype, source, recvtag, comm, handle);
        uint64_t place = finish(&note, rc);
        request_posted(rc == MPI_SUCCESS ? *handle : mpi.request_null, 0, place);
        return rc;
    }
    struct request like = {.flags = R_RECV,
                           .buffer = recvbuf,
                           .count = recvcount,
                           .type = recvtype,
                           .source = source,
                           .tag = recvtag,
                           .comm = comm};
    return post_halves(&note, record, sendbuf, sendcount, sendtype, dest, sendtag, NULL, &like,
                       handle);
}

int wrap_Isendrecv_replace(uint64_t site, void *buf, int count, MPI_Datatype type, int dest,
                           int sendtag, int source, int recvtag, MPI_Comm comm,
                           MPI_Request *handle) {
    uint64_t bytes = bytes_of(count, type);
    struct note note =
        halves(CALL_Isendrecv_replace, site, bytes, dest, sendtag, bytes, source, recvtag, comm);
    const struct crdebug_record *record = begin(&note);
    void *copy = NULL;
    int packed;
    if (LIKELY(is_one(source, recvtag, record)) ||
        pack_copy(buf, count, type, comm, &copy, &packed) != MPI_SUCCESS) {
        int rc =
            PMPI_Isendrecv_replace(buf, count, type, dest, sendtag, source, recvtag, comm, handle);
        uint64_t place = finish(&note, rc);
        request_posted(rc == MPI_SUCCESS ? *handle : mpi.request_null, 0, place);
        return rc;
    }
    struct request like = {.flags = R_RECV,
                           .buffer = buf,
                           .count = count,
                           .type = type,
                           .source = source,
                           .tag = recvtag,
                           .comm = comm};
    return post_halves(&note, record, copy, packed, mpi.packed, dest, sendtag, copy, &like, handle);
}
#endif

/* ---- probes ------------------------------------------------------------------------------------- */

/* What matched probes took, until it is received; oldest first. */
static struct taken {
    MPI_Message message;
    uint64_t body; /* of the probe's record */
    struct taken *next;
} *taken;

static void keep_taken(MPI_Message message, const struct note *probe) {
    struct taken **end = &taken, *kept = malloc(sizeof *kept);
    if (message == mpi.message_no_proc || C.mode == CRDEBUG_COUNTS || kept == NULL) {
        if (kept == NULL) refuse(CRDEBUG_MEMORY);
        free(kept);
        return;
    }
    while (*end) end = &(*end)->next;
    *kept = (struct taken){message, probe->body, NULL};
    *end = kept;
}

/* message: NULL for a probe that takes none; so in all of these. */
static int look(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status) {
    return message ? PMPI_Mprobe(source, tag, comm, message, status)
                   : PMPI_Probe(source, tag, comm, status);
}

static int probe(unsigned call, uint64_t site, int source, int tag, MPI_Comm comm,
                 MPI_Message *message, MPI_Status *status) {
    MPI_Status own;
    struct note note = envelope(call, site, source, tag, comm, 0);
    int rc, flag = 0;
    if (status == MPI_STATUS_IGNORE) status = &own;
    do {
        int from = source, with = tag;
        const struct crdebug_record *record = begin(&note); /* until the log is cut */
        if (!wild(source, tag)) {
            rc = look(source, tag, comm, message, status);
            break;
        }
        if (record) recorded(record, &from, &with);
        rc = is_there(from, with, comm, &flag, status);
        if (spared) rc = look(source, tag, comm, message, status);
        if (rc == MPI_SUCCESS && flag && brought_back(record)) flag = 0;
    } while (rc == MPI_SUCCESS && !flag);
    if (flag) chosen_for_good(source);
    if (message && flag && rc == MPI_SUCCESS)
        rc = PMPI_Mprobe(status->MPI_SOURCE, status->MPI_TAG, comm, message, status);
    if (rc == MPI_SUCCESS) resolve(&note, status);
    if (message && rc == MPI_SUCCESS) keep_taken(*message, &note);
    finish(&note, rc);
    return rc;
}

int wrap_Probe(uint64_t site, int source, int tag, MPI_Comm comm, MPI_Status *status) {
    return probe(CALL_Probe, site, source, tag, comm, NULL, status);
}

int wrap_Mprobe(uint64_t site, int source, int tag, MPI_Comm comm, MPI_Message *message,
                MPI_Status *status) {
    return probe(CALL_Mprobe, site, source, tag, comm, message, status);
}

/* Is it recorded that this probe was told no? Then it is told so again; the MPI gets its turn. */
static bool recorded_no(struct note *note, const struct crdebug_record *record) {
    if (!record || !says_no(record)) return false;
    let_mpi_work();
    finish_no(note);
    return true;
}

static int probe_now(unsigned call, uint64_t site, int source, int tag, MPI_Comm comm, int *flag,
                     MPI_Message *message, MPI_Status *status) {
    MPI_Status own;
    struct note note = envelope(call, site, source, tag, comm, 0);
    const struct crdebug_record *record;
    int rc;
    if (status == MPI_STATUS_IGNORE) status = &own;
    do {
        int from = source, with = tag;
        *flag = 0;
        record = expected();
        if (recorded_no(&note, record)) return MPI_SUCCESS;
        if (record && (record = begin(&note))) recorded(record, &from, &with);
        rc = PMPI_Iprobe(chosen(from), with, comm, flag, status);
    } while (rc == MPI_SUCCESS && ((record && !*flag) || brought_back(record)));
    if (*flag) chosen_for_good(source);
    if (rc == MPI_SUCCESS && !*flag) {
        finish_no(&note);
    } else {
        if (message && rc == MPI_SUCCESS)
            rc = PMPI_Mprobe(status->MPI_SOURCE, status->MPI_TAG, comm, message, status);
        if (rc == MPI_SUCCESS) resolve(&note, status);
        if (message && rc == MPI_SUCCESS) keep_taken(*message, &note);
        finish(&note, rc);
    }
    return rc;
}

int wrap_Iprobe(uint64_t site, int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status) {
    return probe_now(CALL_Iprobe, site, source, tag, comm, flag, NULL, status);
}

int wrap_Improbe(uint64_t site, int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
                 MPI_Status *status) {
    return probe_now(CALL_Improbe, site, source, tag, comm, flag, message, status);
}

/* Which message it is was settled by the probe. A word: how many older ones with the same envelope
 * are taken and not received, if there are any. */
struct note matched_receive(unsigned call, uint64_t site, uint64_t bytes, MPI_Message message) {
    struct note note = note_of(call, site, 0, 0, 0, bytes);
    if (message == mpi.message_no_proc) note.body = (uint64_t)PEER_NULL << 28;
    for (struct taken **place = &taken; *place; place = &(*place)->next) {
        struct taken *found = *place;
        if (found->message != message) continue;
        note.body = found->body;
        for (struct taken *older = taken; older != found; older = older->next)
            note.few[0] += older->body == found->body;
        note.count = note.few[0] != 0;
        *place = found->next;
        free(found);
        break;
    }
    return note;
}

int wrap_Mrecv(uint64_t site, void *buf, int count, MPI_Datatype type, MPI_Message *message,
               MPI_Status *status) {
    struct note note = matched_receive(CALL_Mrecv, site, bytes_of(count, type), *message);
    begin(&note);
    int rc = PMPI_Mrecv(buf, count, type, message, status);
    finish(&note, rc);
    return rc;
}
