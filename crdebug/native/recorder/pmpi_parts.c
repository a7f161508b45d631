/* Messages of partitions: who sends says of each when it is ready, who receives may ask for each. */
#include "pmpi.h"
#include "pmpi_own.h"

#ifdef HAS_MPI_Psend_init

/* Words: as of a large one (note_large), and the number of partitions. */
struct parts {
    struct note note;
    uint32_t words[5];
    uint64_t bytes;
    MPI_Comm comm;
    int peer;
};

static void begin_parts(struct parts *parts, unsigned call, uint64_t site, int partitions,
                        MPI_Count count, MPI_Datatype type, int peer, int tag, MPI_Comm comm) {
    uint64_t bytes = (uint64_t)(int64_t)partitions * bytes_of(count, type);
    parts->note = note_of(call, site, comm_number(comm), peer_code(peer), tag_code(tag), 0);
    parts->note.head |= (bytes < SIZE_MOST ? bytes : SIZE_MOST) << SIZE_SHIFT;
    parts->note.words = parts->words;
    parts->note.count = 5;
    parts->words[0] = (uint32_t)bytes;
    parts->words[1] = (uint32_t)(bytes >> 32);
    parts->words[2] = (uint32_t)peer;
    parts->words[3] = (uint32_t)tag;
    parts->words[4] = (uint32_t)partitions;
    parts->bytes = bytes;
    parts->comm = comm;
    parts->peer = peer;
    begin(&parts->note);
}

static int finish_parts(struct parts *parts, unsigned call, int rc, const MPI_Request *handle) {
    finish(&parts->note, rc);
    request_prepared_together(rc == MPI_SUCCESS ? *handle : mpi.request_null, parts->comm,
                              parts->peer, call, parts->bytes);
    return rc;
}

int wrap_Psend_init(uint64_t site, const void *buf, int partitions, MPI_Count count,
                    MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Info info,
                    MPI_Request *handle) {
    struct parts parts;
    begin_parts(&parts, CALL_Psend_init, site, partitions, count, type, dest, tag, comm);
    int rc = PMPI_Psend_init(buf, partitions, count, type, dest, tag, comm, info, handle);
    return finish_parts(&parts, CALL_Psend_init, rc, handle);
}

int wrap_Precv_init(uint64_t site, void *buf, int partitions, MPI_Count count, MPI_Datatype type,
                    int source, int tag, MPI_Comm comm, MPI_Info info, MPI_Request *handle) {
    struct parts parts;
    begin_parts(&parts, CALL_Precv_init, site, partitions, count, type, source, tag, comm);
    int rc = PMPI_Precv_init(buf, partitions, count, type, source, tag, comm, info, handle);
    return finish_parts(&parts, CALL_Precv_init, rc, handle);
}

/* As of one that completes, the size says which request; of one the tag says which partition, of a range
 * words; of a list words, whose number is where the peer is. */
static struct note note_ready(unsigned call, uint64_t site, MPI_Request handle) {
    return note_of(call, site, 0, 0, 0, request_age(request_find(handle)));
}

int wrap_Pready(uint64_t site, int partition, MPI_Request handle) {
    struct note note = note_ready(CALL_Pready, site, handle);
    note.body = tag_code(partition);
    begin(&note);
    int rc = PMPI_Pready(partition, handle);
    finish(&note, rc);
    return rc;
}

int wrap_Pready_range(uint64_t site, int low, int high, MPI_Request handle) {
    struct note note = note_ready(CALL_Pready_range, site, handle);
    note.few[0] = (uint32_t)low;
    note.few[1] = (uint32_t)high;
    note.count = 2;
    begin(&note);
    int rc = PMPI_Pready_range(low, high, handle);
    finish(&note, rc);
    return rc;
}

int wrap_Pready_list(uint64_t site, int length, LISTED int partitions[], MPI_Request handle) {
    struct note note = note_ready(CALL_Pready_list, site, handle);
    note.words = (const uint32_t *)partitions;
    note.count = length > 0 ? (uint32_t)length : 0;
    note.body = (uint64_t)note.count << 28;
    begin(&note);
    int rc = PMPI_Pready_list(length, partitions, handle);
    finish(&note, rc);
    return rc;
}

int wrap_Parrived(uint64_t site, MPI_Request handle, int partition, int *flag) {
    uint32_t age = request_age(request_find(handle));
    struct note yes = note_of(CALL_Parrived, site, 0, 0, tag_code(partition), age);
    struct note no = {.head = CALL_Parrived,
                      .body = mix(mix(0, age + 1), (uint64_t)partition) >> 16,
                      .site = site};
    const struct crdebug_record *record;
    int rc;
    do {
        record = expected();
        if (record && says_no(record)) {
            told_no(&no, flag);
            return MPI_SUCCESS;
        }
        if (record) record = begin(&yes);
        rc = PMPI_Parrived(handle, partition, flag);
    } while (rc == MPI_SUCCESS && ((record && !*flag) || brought_back(record)));
    if (*flag || rc != MPI_SUCCESS) finish(&yes, rc);
    else finish_no(&no);
    return rc;
}

#endif
