/* Messages of partitions: who sends says of each when it is ready, who receives may ask for each. */
#include "pmpi.h"
#include "pmpi_own.h"

#ifdef HAS_MPI_Psend_init

/* Words: as of a large one (note_large), and the number of partitions. */
static uint64_t describe(struct note *note, uint32_t words[5], int partitions, MPI_Count count, MPI_Datatype type,
                         int peer, int tag) {
    uint64_t bytes = (uint64_t)(int64_t)partitions * bytes_of(count, type);
    words[0] = (uint32_t)bytes;
    words[1] = (uint32_t)(bytes >> 32);
    words[2] = (uint32_t)peer;
    words[3] = (uint32_t)tag;
    words[4] = (uint32_t)partitions;
    note->head |= (bytes < SIZE_MOST ? bytes : SIZE_MOST) << SIZE_SHIFT;
    note->words = words;
    note->count = 5;
    return bytes;
}

int wrap_Psend_init(uint64_t site, const void *buf, int partitions, MPI_Count count, MPI_Datatype type, int dest,
                    int tag, MPI_Comm comm, MPI_Info info, MPI_Request *handle) {
    uint32_t words[5];
    struct note note =
        note_of(CALL_Psend_init, site, comm_number(comm), peer_code(dest), tag_code(tag), 0);
    uint64_t bytes = describe(&note, words, partitions, count, type, dest, tag);
    begin(&note);
    int rc = PMPI_Psend_init(buf, partitions, count, type, dest, tag, comm, info, handle);
    finish(&note);
    request_prepared_together(rc == MPI_SUCCESS ? *handle : mpi.request_null, comm, dest, CALL_Psend_init,
                              bytes);
    return rc;
}

int wrap_Precv_init(uint64_t site, void *buf, int partitions, MPI_Count count, MPI_Datatype type, int source,
                    int tag, MPI_Comm comm, MPI_Info info, MPI_Request *handle) {
    uint32_t words[5];
    struct note note =
        note_of(CALL_Precv_init, site, comm_number(comm), peer_code(source), tag_code(tag), 0);
    uint64_t bytes = describe(&note, words, partitions, count, type, source, tag);
    begin(&note);
    int rc = PMPI_Precv_init(buf, partitions, count, type, source, tag, comm, info, handle);
    finish(&note);
    request_prepared_together(rc == MPI_SUCCESS ? *handle : mpi.request_null, comm, source, CALL_Precv_init,
                              bytes);
    return rc;
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
    finish(&note);
    return rc;
}

int wrap_Pready_range(uint64_t site, int low, int high, MPI_Request handle) {
    struct note note = note_ready(CALL_Pready_range, site, handle);
    note.few[0] = (uint32_t)low;
    note.few[1] = (uint32_t)high;
    note.words = note.few;
    note.count = 2;
    begin(&note);
    int rc = PMPI_Pready_range(low, high, handle);
    finish(&note);
    return rc;
}

int wrap_Pready_list(uint64_t site, int length, LISTED int partitions[], MPI_Request handle) {
    struct note note = note_ready(CALL_Pready_list, site, handle);
    note.words = (const uint32_t *)partitions;
    note.count = length > 0 ? (uint32_t)length : 0;
    note.body = (uint64_t)note.count << 28;
    begin(&note);
    int rc = PMPI_Pready_list(length, partitions, handle);
    finish(&note);
    return rc;
}

int wrap_Parrived(uint64_t site, MPI_Request handle, int partition, int *flag) {
    uint32_t age = request_age(request_find(handle));
    struct note yes = note_of(CALL_Parrived, site, 0, 0, tag_code(partition), age);
    struct note no = {
        .head = CALL_Parrived, .body = mix(mix(0, age + 1), (uint64_t)partition) >> 16, .site = site};
    const struct crdebug_record *record = expected();
    if (record && says_no(record)) {
        told_no(&no, flag);
        return MPI_SUCCESS;
    }
    bool sure = record && begin(&yes);
    int rc;
    do rc = PMPI_Parrived(handle, partition, flag);
    while (sure && rc == MPI_SUCCESS && !*flag && expected());
    if (*flag) finish(&yes);
    else finish_no(&no);
    return rc;
}

#endif
