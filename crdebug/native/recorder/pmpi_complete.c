/* Wait and Test on many requests: which were done is recorded; on a repeat those are waited
 * for, and a Test that was told no is told so without asking. */
#include <stdlib.h>
#include <string.h>

#include "pmpi.h"
#include "pmpi_own.h"

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
    if (!bigger.real || !bigger.statuses || !bigger.entries || !bigger.ages || !bigger.words)
        return false;
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
    doing_requests(many->ages, count);
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

enum wanted { ONE, SOME, ALL };
#define LOOKED_AT 16 /* more are not looked at one by one: each look lets the MPI work */

/* Of a call that is recorded: is so much done as is wanted? The MPI says so without taking any, and of the
 * requests only those are left to it that it is to take. -1: it is to be asked about all of them at once. */
static int look_first(struct many *many, enum wanted wanted) {
    int found = 0;
    if ((wanted != ALL && many->count > LOOKED_AT) || many->active == 0) return -1;
    for (int i = 0; i < many->count; i++) {
        const struct request *entry = many->entries[i];
        if (many->real[i] == mpi.request_null) continue;
        if (entry == NULL || entry->flags & R_SHARED || !request_may_be_asked(entry)) return -1;
        /* MPICH says of such a one that it is complete, and never that it completes. */
        if (entry->flags & R_PERSISTENT && entry->source == MPI_PROC_NULL) return -1;
    }
    for (int i = 0; i < many->count; i++) {
        int flag = 0;
        if (many->real[i] == mpi.request_null || !many->ages[i]) continue;
        bool enough = wanted == ONE && found;
        if (!enough &&
            PMPI_Request_get_status(many->real[i], &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            flag = 1; /* the MPI says how it failed when it is asked for it */
        found += flag;
        if (!flag && wanted == ALL) return 0;
        if (!flag) many->real[i] = mpi.request_null;
    }
    return found > 0;
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

/* The MPI leaves MPI_ERROR of a status as it is where nothing failed (MPI 4.1, section 3.7.5): what the
 * application has there is to stay. */
static void take(struct many *many, const MPI_Status *statuses, int count) {
    if (statuses != MPI_STATUSES_IGNORE)
        memcpy(many->statuses, statuses, (size_t)count * sizeof *statuses);
}

static int class_of(int rc) {
    int class = MPI_ERR_UNKNOWN;
    if (rc != MPI_SUCCESS) PMPI_Error_class(rc, &class);
    return rc == MPI_SUCCESS ? MPI_SUCCESS : class;
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

/* Of a call that failed, what its statuses say is done; or nothing, if it was not even tried. */
static void done_all(struct many *many, MPI_Request *handles, MPI_Status *statuses, int rc) {
    int class = class_of(rc);
    if (class != MPI_SUCCESS && class != MPI_ERR_IN_STATUS) return;
    for (int i = 0; i < many->count; i++)
        if (class == MPI_SUCCESS || class_of(many->statuses[i].MPI_ERROR) != MPI_ERR_PENDING)
            done_one(many, i, handles, &many->statuses[i]);
    give(statuses, many->statuses, many->count);
}

/* MPI_Testall gives up where one failed, and MPI_Waitall waits for the others. */
static void wait_pending(struct many *many, MPI_Request *handles) {
    for (int i = 0; i < many->count; i++) {
        MPI_Status *status = &many->statuses[i];
        int rc = MPI_SUCCESS, flag = 0;
        if (class_of(status->MPI_ERROR) != MPI_ERR_PENDING) continue;
        do {
            if (expected() || many->sends) again_one(many, i, handles);
            rc = request_sends(many->entries[i]) ? rc : PMPI_Test(&many->real[i], &flag, status);
        } while (rc == MPI_SUCCESS && !flag);
        status->MPI_ERROR = rc;
    }
}

int wrap_Waitall(uint64_t site, int count, MPI_Request handles[], MPI_Status statuses[]) {
    struct many *many = look_at(count, handles);
    if (many == NULL) return PMPI_Waitall(count, handles, statuses);
    take(many, statuses, count);
    struct note note = note_all(CALL_Waitall, site, many);
    begin(&note);
    int rc, flag = 0;
    if (many->open) {
        do {
            if (expected() || many->sends) again(many, handles);
            rc = many->sends ? MPI_SUCCESS : PMPI_Testall(count, many->real, &flag, many->statuses);
        } while (rc == MPI_SUCCESS && !flag);
        if (class_of(rc) == MPI_ERR_IN_STATUS) wait_pending(many, handles);
    } else {
        rc = PMPI_Waitall(count, many->real, many->statuses);
    }
    done_all(many, handles, statuses, rc);
    finish(&note, rc);
    return rc;
}

static struct note note_no(unsigned call, uint64_t site, const struct many *many) {
    struct note note = {.head = call, .body = many->hash, .site = site};
    return note;
}

int wrap_Testall(uint64_t site, int count, MPI_Request handles[], int *flag,
                 MPI_Status statuses[]) {
    struct many *many = look_at(count, handles);
    if (many == NULL) return PMPI_Testall(count, handles, flag, statuses);
    take(many, statuses, count);
    struct note yes = note_all(CALL_Testall, site, many), no = note_no(CALL_Testall, site, many);
    bool sure;
    int rc;
    do {
        const struct crdebug_record *record = expected();
        if (record && says_no(record)) {
            told_no(&no, flag);
            return MPI_SUCCESS;
        }
        sure = record && begin(&yes);
        if (record) again(many, handles);
        rc = MPI_SUCCESS;
        *flag = 0;
        if (!many->sends && (sure || (look_first(many, ALL) && !brought_back(NULL))))
            rc = PMPI_Testall(count, many->real, flag, many->statuses);
    } while (rc == MPI_SUCCESS && !*flag && expected()); /* until the log is cut */
    if (rc == MPI_SUCCESS && !*flag) {
        finish_no(&no);
        return rc;
    }
    done_all(many, handles, statuses, rc);
    finish(&yes, rc);
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

static int any(unsigned call, uint64_t site, int count, MPI_Request handles[], int *index,
               int *flag, MPI_Status *status) {
    struct many *many = look_at(count, handles);
    MPI_Status own;
    if (many == NULL)
        return flag ? PMPI_Testany(count, handles, index, flag, status)
                    : PMPI_Waitany(count, handles, index, status);
    struct note yes = note_of(call, site, 0, 0, 0, 0), no = note_no(call, site, many);
    int rc, found = 0;
    bool looked = false;
    if (status == MPI_STATUS_IGNORE) status = &own;
    const struct crdebug_record *record;
    do {
        record = expected();
        *index = MPI_UNDEFINED;
        if (record || many->sends || looked) again(many, handles);
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
        rc = MPI_SUCCESS;
        looked = true;
        if (look_first(many, ONE) && !brought_back(record))
            rc = PMPI_Testany(count, many->real, index, &found, status);
        if (many->sends && *index == MPI_UNDEFINED) found = 0;
    } while (rc == MPI_SUCCESS && !found && (!flag || brought_back(record)));
    if (rc != MPI_SUCCESS && (*index < 0 || *index >= count)) *index = MPI_UNDEFINED;
    if (flag) *flag = found;
    if (!found && rc == MPI_SUCCESS) {
        finish_no(&no);
        return rc;
    }
    chose(&yes, many, *index);
    if (*index != MPI_UNDEFINED) done_one(many, *index, handles, status);
    finish(&yes, rc);
    return rc;
}

int wrap_Waitany(uint64_t site, int count, MPI_Request handles[], int *index, MPI_Status *status) {
    return any(CALL_Waitany, site, count, handles, index, NULL, status);
}

int wrap_Testany(uint64_t site, int count, MPI_Request handles[], int *index, int *flag,
                 MPI_Status *status) {
    return any(CALL_Testany, site, count, handles, index, flag, status);
}

/* Wait for those that are recorded, one by one: returns how many came before the log was cut. What they
 * return is in the statuses, as of one call. */
static int some_recorded(struct many *many, int wanted, MPI_Request handles[], const int indices[],
                         int *rc) {
    int got = 0, one = MPI_SUCCESS;
    while (got < wanted && wait_one(many, indices[got], handles, &many->statuses[got], &one)) {
        if (one != MPI_SUCCESS && *rc == MPI_SUCCESS) {
            for (int k = 0; k < got; k++) many->statuses[k].MPI_ERROR = MPI_SUCCESS;
            *rc = MPI_ERR_IN_STATUS;
        }
        if (*rc != MPI_SUCCESS) many->statuses[got].MPI_ERROR = one;
        got++;
    }
    return got;
}

/* Some of them: words are pairs of index and age, in the order in which MPI told them. */
static int some(unsigned call, uint64_t site, int count, MPI_Request handles[], int *outcount,
                int indices[], MPI_Status statuses[], bool wait) {
    struct many *many = look_at(count, handles);
    if (many == NULL)
        return wait ? PMPI_Waitsome(count, handles, outcount, indices, statuses)
                    : PMPI_Testsome(count, handles, outcount, indices, statuses);
    struct note yes = note_of(call, site, 0, 0, 0, 0), no = note_no(call, site, many);
    int rc = MPI_SUCCESS;
    bool looked = false;
    take(many, statuses, count);
    *outcount = 0;
    const struct crdebug_record *record;
    do {
        record = expected();
        if (record || many->sends || looked) again(many, handles);
        if (record && says_no(record)) {
            told_no(&no, outcount);
            return MPI_SUCCESS;
        }
        if (record && HEAD_CALL(record->head) == call && !(record->head & FLAG(CRDEBUG_ODD))) {
            int wanted = (int)HEAD_SIZE(record->head);
            bool other = false; /* another set of requests */
            for (int k = 0; k < wanted && !other; k++) {
                uint32_t i = word_of(record, 2 * (unsigned)k);
                other =
                    i >= (uint32_t)count || many->ages[i] != word_of(record, 2 * (unsigned)k + 1);
                if (!other) indices[k] = (int)i;
            }
            int got = some_recorded(many, other ? 0 : wanted, handles, indices, &rc);
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
        looked = true;
        *outcount = 0;
        if (look_first(many, SOME) && !brought_back(record))
            rc = PMPI_Testsome(count, many->real, outcount, indices, many->statuses);
        if (many->sends && *outcount == MPI_UNDEFINED) *outcount = 0;
    } while (rc == MPI_SUCCESS && *outcount == 0 && (wait || brought_back(record)));
    if (*outcount == 0 && rc == MPI_SUCCESS) {
        finish_no(&no);
        return rc;
    }
    if (*outcount == MPI_UNDEFINED) {
        yes.head |= FLAG(CRDEBUG_ODD);
        finish(&yes, rc);
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
    finish(&yes, rc);
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
