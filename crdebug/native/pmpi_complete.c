/* Wait and Test on one request or many: which were done is recorded; on a repeat those are waited
 * for, and a Test that was told no is told so without asking. */
#include <stdlib.h>
#include <string.h>

#include "pmpi.h"
#include "pmpi_own.h"

/* ---- one ---------------------------------------------------------------------------------------- */

static MPI_Request *real_of(struct request *request, MPI_Request *handle) {
    return request && request->shadowed ? &request->shadow : handle;
}

/* After the MPI has completed what it worked on: the application's handle, and our entry. */
static void done(struct request *request, MPI_Request *handle, MPI_Status *status) {
    if (request == NULL) return;
    bool clear = !(request->flags & R_PERSISTENT);
    request_completed(request, status);
    if (clear && *handle != mpi.request_null) *handle = mpi.request_null;
}

void told_no(struct note *note, int *flag) {
    unsigned patience = 0;
    *flag = 0;
    progress(&patience);
    finish_no(note);
}

/* real: what MPI works on, or what the application has. */
static int test(struct request *request, MPI_Request *real, int *flag, MPI_Status *status) {
    *flag = 0;
    return request_sends(request) ? MPI_SUCCESS : PMPI_Test(real_of(request, real), flag, status);
}

/* A wild receive is asked for again and again: MPI must not wait for it unseen. */
static int wait_open(struct request *request, MPI_Request *handle, MPI_Status *status) {
    int rc, flag;
    do {
        expected(); /* when we went back meanwhile, it is posted anew */
        rc = test(request, handle, &flag, status);
    } while (rc == MPI_SUCCESS && !flag);
    return rc;
}

/* Wait for what the log says was done, as long as it says so: it may be cut meanwhile. */
static bool wait_recorded(struct request *request, MPI_Request *real, MPI_Status *status, int *rc) {
    int flag;
    do *rc = test(request, real, &flag, status);
    while (*rc == MPI_SUCCESS && !flag && expected());
    return flag || *rc != MPI_SUCCESS;
}

static bool is_open(const struct request *request) {
    return request && request->flags & (R_WILD | R_SENDS) && request->flags & R_ACTIVE;
}

int wrap_Wait(uint64_t site, MPI_Request *handle, MPI_Status *status) {
    MPI_Status own;
    struct request *request = request_find(*handle);
    struct note note = note_of(CALL_Wait, site, 0, 0, 0, request_age(request));
    begin(&note);
    if (request && request->flags & (R_WILD | R_WATCH) && status == MPI_STATUS_IGNORE) status = &own;
    int rc = is_open(request) ? wait_open(request, handle, status)
                              : PMPI_Wait(real_of(request, handle), status);
    done(request, handle, status);
    finish(&note);
    return rc;
}

int wrap_Test(uint64_t site, MPI_Request *handle, int *flag, MPI_Status *status) {
    MPI_Status own;
    struct request *request = request_find(*handle);
    uint32_t age = request_age(request);
    struct note yes = note_of(CALL_Test, site, 0, 0, 0, age), no = yes;
    no.head = CALL_Test;
    no.body = age;
    const struct crdebug_record *record = expected();
    if (record && says_no(record)) {
        told_no(&no, flag);
        return MPI_SUCCESS;
    }
    if (status == MPI_STATUS_IGNORE) status = &own;
    int rc;
    if (record && begin(&yes) && wait_recorded(request, handle, status, &rc)) {
        *flag = 1;
    } else {
        rc = test(request, handle, flag, status);
    }
    if (!*flag) {
        finish_no(&no);
        return rc;
    }
    done(request, handle, status);
    finish(&yes);
    return rc;
}

int wrap_Request_get_status(uint64_t site, MPI_Request handle, int *flag, MPI_Status *status) {
    struct request *request = request_find(handle);
    uint32_t age = request_age(request);
    struct note yes = note_of(CALL_Request_get_status, site, 0, 0, 0, age), no = yes;
    no.head = CALL_Request_get_status;
    no.body = age;
    const struct crdebug_record *record = expected();
    if (record && says_no(record)) {
        told_no(&no, flag);
        return MPI_SUCCESS;
    }
    bool sure = record && begin(&yes);
    int rc = MPI_SUCCESS;
    do {
        *flag = 0;
        if (!request_sends(request)) rc = PMPI_Request_get_status(*real_of(request, &handle), flag, status);
    } while (sure && rc == MPI_SUCCESS && !*flag);
    if (*flag) finish(&yes);
    else finish_no(&no);
    return rc;
}

/* ---- many --------------------------------------------------------------------------------------- */

/* The requests of one call. real: what MPI is asked about. words: for the log. */
struct many {
    int count;
    bool open; /* a wild receive is among them */
    bool sends; /* a half that sends is under way */
    uint32_t active, oldest;
    uint64_t hash; /* tells this call from another, 48 bits */
    MPI_Request *real;
    MPI_Status *statuses;
    struct request **entries;
    uint32_t *ages, *words;
};

static struct many room;
static int room_count;

static bool make_room(int count) {
    if (count <= room_count) return true;
    size_t wanted = (size_t)count + 64;
    struct many bigger = {.real = realloc(room.real, wanted * sizeof *room.real)};
    if (bigger.real) room.real = bigger.real;
    bigger.statuses = realloc(room.statuses, wanted * sizeof *room.statuses);
    if (bigger.statuses) room.statuses = bigger.statuses;
    bigger.entries = realloc(room.entries, wanted * sizeof *room.entries);
    if (bigger.entries) room.entries = bigger.entries;
    bigger.ages = realloc(room.ages, wanted * sizeof *room.ages);
    if (bigger.ages) room.ages = bigger.ages;
    bigger.words = realloc(room.words, (2 * wanted + 2) * sizeof *room.words);
    if (bigger.words) room.words = bigger.words;
    if (!bigger.real || !bigger.statuses || !bigger.entries || !bigger.ages || !bigger.words) return false;
    room_count = (int)wanted;
    return true;
}

static struct many *look_at(int count, MPI_Request *handles) {
    if (!make_room(count)) {
        refuse(CRDEBUG_MEMORY);
        return NULL;
    }
    struct many *many = &room;
    many->count = count;
    many->open = many->sends = false;
    many->active = many->oldest = 0;
    many->hash = 0;
    for (int i = 0; i < count; i++) {
        struct request *entry = many->entries[i] = request_find(handles[i]);
        uint32_t age = many->ages[i] = request_age(entry);
        bool sends = request_sends(entry);
        many->real[i] = sends ? mpi.request_null : *real_of(entry, &handles[i]);
        many->sends |= sends;
        many->open |= is_open(entry);
        many->active += age != 0;
        if (age > many->oldest) many->oldest = age;
        many->hash = mix(many->hash, age + 1);
    }
    many->hash >>= 16;
    return many;
}

static void again_one(struct many *many, int i, MPI_Request *handles) {
    bool sends = request_sends(many->entries[i]);
    many->real[i] = sends ? mpi.request_null : *real_of(many->entries[i], &handles[i]);
    many->sends |= sends;
}

/* When we went back meanwhile, MPI works on others. What still sends is not to be asked for. */
static void again(struct many *many, MPI_Request *handles) {
    many->sends = false;
    for (int i = 0; i < many->count; i++) again_one(many, i, handles);
}

/* Of those that are recorded as done: when it is as the log says, MPI is asked for it. */
static bool wait_one(struct many *many, int i, MPI_Request *handles, MPI_Status *status, int *rc) {
    while (request_sends(many->entries[i]))
        if (!expected()) return false;
    again_one(many, i, handles);
    return wait_recorded(NULL, &many->real[i], status, rc);
}

static void done_one(struct many *many, int i, MPI_Request *handles, MPI_Status *status) {
    if (many->entries[i] == NULL) handles[i] = many->real[i];
    else done(many->entries[i], &handles[i], status);
}

static void give(MPI_Status *to, const MPI_Status *from, int count) {
    if (to != MPI_STATUSES_IGNORE) memcpy(to, from, (size_t)count * sizeof *to);
}

/* All of them: when they are the last that were posted their number says which. */
static struct note note_all(unsigned call, uint64_t site, struct many *many) {
    struct note note = note_of(call, site, 0, 0, 0, many->active);
    if (many->oldest == many->active) {
        note.head |= FLAG(CRDEBUG_PACKED);
    } else {
        uint32_t count = 0;
        for (int i = 0; i < many->count; i++)
            if (many->ages[i]) many->words[count++] = many->ages[i];
        note.words = many->words;
        note.count = count;
    }
    return note;
}

static void done_all(struct many *many, MPI_Request *handles, MPI_Status *statuses) {
    for (int i = 0; i < many->count; i++) done_one(many, i, handles, &many->statuses[i]);
    give(statuses, many->statuses, many->count);
}

int wrap_Waitall(uint64_t site, int count, MPI_Request handles[], MPI_Status statuses[]) {
    struct many *many = look_at(count, handles);
    if (many == NULL) return PMPI_Waitall(count, handles, statuses);
    struct note note = note_all(CALL_Waitall, site, many);
    begin(&note);
    int rc, flag = 0;
    if (many->open) {
        do {
            if (expected() || many->sends) again(many, handles);
            rc = many->sends ? MPI_SUCCESS : PMPI_Testall(count, many->real, &flag, many->statuses);
        } while (rc == MPI_SUCCESS && !flag);
    } else {
        rc = PMPI_Waitall(count, many->real, many->statuses);
    }
    done_all(many, handles, statuses);
    finish(&note);
    return rc;
}

static struct note note_no(unsigned call, uint64_t site, const struct many *many) {
    struct note note = {.head = call, .body = many->hash, .site = site};
    return note;
}

int wrap_Testall(uint64_t site, int count, MPI_Request handles[], int *flag, MPI_Status statuses[]) {
    struct many *many = look_at(count, handles);
    if (many == NULL) return PMPI_Testall(count, handles, flag, statuses);
    struct note yes = note_all(CALL_Testall, site, many), no = note_no(CALL_Testall, site, many);
    const struct crdebug_record *record = expected();
    int rc;
    if (record && says_no(record)) {
        told_no(&no, flag);
        return MPI_SUCCESS;
    }
    *flag = 0;
    if (record && begin(&yes)) {
        while (many->sends) again(many, handles);
        rc = PMPI_Waitall(count, many->real, many->statuses);
        *flag = 1;
    } else {
        rc = many->sends ? MPI_SUCCESS : PMPI_Testall(count, many->real, flag, many->statuses);
    }
    if (!*flag) {
        finish_no(&no);
        return rc;
    }
    done_all(many, handles, statuses);
    finish(&yes);
    return rc;
}

/* One of them. The index is in the tag's place; MPI_UNDEFINED is a flag. */
static void chose(struct note *note, const struct many *many, int index) {
    if (index == MPI_UNDEFINED) {
        note->head |= FLAG(CRDEBUG_ODD);
    } else {
        note->head |= (uint64_t)many->ages[index] << SIZE_SHIFT;
        note->body = tag_code(index);
    }
}

static int any(unsigned call, uint64_t site, int count, MPI_Request handles[], int *index, int *flag,
               MPI_Status *status) {
    struct many *many = look_at(count, handles);
    MPI_Status own;
    if (many == NULL)
        return flag ? PMPI_Testany(count, handles, index, flag, status)
                    : PMPI_Waitany(count, handles, index, status);
    struct note yes = note_of(call, site, 0, 0, 0, 0), no = note_no(call, site, many);
    int rc, found = 0;
    if (status == MPI_STATUS_IGNORE) status = &own;
    do {
        const struct crdebug_record *record = expected();
        if (record || many->sends) again(many, handles);
        if (record && says_no(record)) {
            told_no(&no, &found);
            *flag = 0;
            *index = MPI_UNDEFINED;
            return MPI_SUCCESS;
        }
        if (record) {
            bool none = record->head & FLAG(CRDEBUG_ODD);
            int wanted = none ? MPI_UNDEFINED : tag_of(BODY_TAG(record->body));
            if (none || (wanted >= 0 && wanted < count)) {
                struct note then = yes;
                chose(&then, many, wanted);
                if (begin(&then) && (none || wait_one(many, wanted, handles, status, &rc))) {
                    *index = wanted;
                    found = 1;
                    if (none) rc = PMPI_Testany(count, many->real, index, &found, status);
                    break;
                }
            } else {
                begin(&yes); /* and is told that it is another call */
            }
        }
        rc = PMPI_Testany(count, many->real, index, &found, status);
        if (many->sends && *index == MPI_UNDEFINED) found = 0;
    } while (rc == MPI_SUCCESS && !found && !flag);
    if (flag) *flag = found;
    if (!found) {
        finish_no(&no);
        return rc;
    }
    chose(&yes, many, *index);
    if (*index != MPI_UNDEFINED) done_one(many, *index, handles, status);
    finish(&yes);
    return rc;
}

int wrap_Waitany(uint64_t site, int count, MPI_Request handles[], int *index, MPI_Status *status) {
    return any(CALL_Waitany, site, count, handles, index, NULL, status);
}

int wrap_Testany(uint64_t site, int count, MPI_Request handles[], int *index, int *flag, MPI_Status *status) {
    return any(CALL_Testany, site, count, handles, index, flag, status);
}

/* Some of them: words are pairs of index and age, in the order in which MPI told them. */
static int some(unsigned call, uint64_t site, int count, MPI_Request handles[], int *outcount, int indices[],
                MPI_Status statuses[], bool wait) {
    struct many *many = look_at(count, handles);
    if (many == NULL)
        return wait ? PMPI_Waitsome(count, handles, outcount, indices, statuses)
                    : PMPI_Testsome(count, handles, outcount, indices, statuses);
    struct note yes = note_of(call, site, 0, 0, 0, 0), no = note_no(call, site, many);
    int rc = MPI_SUCCESS;
    do {
        const struct crdebug_record *record = expected();
        if (record || many->sends) again(many, handles);
        if (record && says_no(record)) {
            told_no(&no, outcount);
            return MPI_SUCCESS;
        }
        if (record && HEAD_CALL(record->head) == call && !(record->head & FLAG(CRDEBUG_ODD))) {
            int wanted = (int)HEAD_SIZE(record->head);
            bool other = false; /* another set of requests */
            for (int k = 0; k < wanted && !other; k++) {
                uint32_t i = word_of(record, 2 * (unsigned)k);
                other = i >= (uint32_t)count || many->ages[i] != word_of(record, 2 * (unsigned)k + 1);
                if (!other) indices[k] = (int)i;
            }
            int got = 0;
            while (!other && got < wanted && rc == MPI_SUCCESS &&
                   wait_one(many, indices[got], handles, &many->statuses[got], &rc))
                got++;
            if (got) {
                *outcount = got;
                break;
            }
            if (other) begin(&yes);
        } else if (record) {
            struct note undefined = yes;
            undefined.head |= FLAG(CRDEBUG_ODD);
            begin(&undefined);
        }
        rc = PMPI_Testsome(count, many->real, outcount, indices, many->statuses);
        if (many->sends && *outcount == MPI_UNDEFINED) *outcount = 0;
    } while (rc == MPI_SUCCESS && *outcount == 0 && wait);
    if (*outcount == 0) {
        finish_no(&no);
        return rc;
    }
    if (*outcount == MPI_UNDEFINED) {
        yes.head |= FLAG(CRDEBUG_ODD);
        finish(&yes);
        return rc;
    }
    for (int k = 0; k < *outcount; k++) {
        int i = indices[k];
        many->words[2 * k] = (uint32_t)i;
        many->words[2 * k + 1] = many->ages[i];
        done_one(many, i, handles, &many->statuses[k]);
    }
    yes.head |= (uint64_t)(uint32_t)*outcount << SIZE_SHIFT;
    yes.words = many->words;
    yes.count = 2 * (uint32_t)*outcount;
    give(statuses, many->statuses, *outcount);
    finish(&yes);
    return rc;
}

int wrap_Waitsome(uint64_t site, int count, MPI_Request handles[], int *outcount, int indices[],
                  MPI_Status statuses[]) {
    return some(CALL_Waitsome, site, count, handles, outcount, indices, statuses, true);
}

int wrap_Testsome(uint64_t site, int count, MPI_Request handles[], int *outcount, int indices[],
                  MPI_Status statuses[]) {
    return some(CALL_Testsome, site, count, handles, outcount, indices, statuses, false);
}
