/* Wait and Test on one request: whether it was done is recorded; on a repeat it is waited for, and a
 * Test that was told no is told so without asking. */
#include <stdlib.h>

#include "pmpi.h"
#include "pmpi_own.h"

MPI_Request *real_of(struct request *request, MPI_Request *handle) {
    return request && request->shadowed ? &request->shadow : handle;
}

/* After the MPI has completed what it worked on: the application's handle, and our entry. */
void done(struct request *request, MPI_Request *handle, MPI_Status *status) {
    if (request == NULL) return;
    bool clear = !(request->flags & R_PERSISTENT);
    request_completed(request, status);
    if (clear && *handle != mpi.request_null) *handle = mpi.request_null;
}

void told_no(struct note *note, int *flag) {
    *flag = 0;
    let_mpi_work();
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
bool wait_recorded(struct request *request, MPI_Request *real, MPI_Status *status, int *rc) {
    int flag;
    do *rc = test(request, real, &flag, status);
    while (*rc == MPI_SUCCESS && !flag && expected());
    return flag || *rc != MPI_SUCCESS;
}

bool is_open(const struct request *request) {
    return request && request->flags & (R_WILD | R_SENDS) && request->flags & R_ACTIVE;
}

int wrap_Wait(uint64_t site, MPI_Request *handle, MPI_Status *status) {
    MPI_Status own;
    struct request *request = request_find(*handle);
    struct note note = note_of(CALL_Wait, site, 0, 0, 0, request_age(request));
    begin(&note);
    if (request && request->flags & (R_WILD | R_WATCH) && status == MPI_STATUS_IGNORE)
        status = &own;
    int rc = is_open(request) ? wait_open(request, handle, status)
                              : PMPI_Wait(real_of(request, handle), status);
    done(request, handle, status);
    finish(&note, rc);
    return rc;
}

/* Of a call that is recorded: done where the MPI says so, and taken only if that counts. */
static int test_first(struct request *request, MPI_Request *handle, int *flag, MPI_Status *status) {
    *flag = 0;
    if (request_sends(request)) return MPI_SUCCESS;
    if (request && !(request->flags & R_SHARED) && request_may_be_asked(request)) {
        int rc = PMPI_Request_get_status(*real_of(request, handle), flag, MPI_STATUS_IGNORE);
        if (rc == MPI_SUCCESS && (!*flag || brought_back(NULL))) {
            *flag = 0;
            return rc;
        }
    }
    return PMPI_Test(real_of(request, handle), flag, status);
}

int wrap_Test(uint64_t site, MPI_Request *handle, int *flag, MPI_Status *status) {
    MPI_Status own;
    struct request *request = request_find(*handle);
    uint32_t age = request_age(request);
    struct note yes = note_of(CALL_Test, site, 0, 0, 0, age), no = yes;
    no.head = CALL_Test;
    no.body = age;
    int rc;
    if (status == MPI_STATUS_IGNORE) status = &own;
    do {
        const struct crdebug_record *record = expected();
        if (record && says_no(record)) {
            told_no(&no, flag);
            return MPI_SUCCESS;
        }
        if (record && begin(&yes) && wait_recorded(request, handle, status, &rc)) {
            *flag = 1;
            break;
        }
        rc = test_first(request, handle, flag, status);
    } while (rc == MPI_SUCCESS && !*flag && brought_back(NULL));
    if (rc == MPI_SUCCESS && !*flag) {
        finish_no(&no);
        return rc;
    }
    if (*flag) done(request, handle, status);
    finish(&yes, rc);
    return rc;
}

int wrap_Request_get_status(uint64_t site, MPI_Request handle, int *flag, MPI_Status *status) {
    struct request *request = request_find(handle);
    uint32_t age = request_age(request);
    struct note yes = note_of(CALL_Request_get_status, site, 0, 0, 0, age), no = yes;
    no.head = CALL_Request_get_status;
    no.body = age;
    const struct crdebug_record *record;
    int rc;
    do {
        record = expected();
        if (record && says_no(record)) {
            told_no(&no, flag);
            return MPI_SUCCESS;
        }
        record = record ? begin(&yes) : NULL;
        rc = MPI_SUCCESS;
        *flag = 0;
        if (!request_sends(request))
            rc = PMPI_Request_get_status(*real_of(request, &handle), flag, status);
    } while (rc == MPI_SUCCESS && ((record && !*flag) || brought_back(record)));
    if (*flag || rc != MPI_SUCCESS) finish(&yes, rc);
    else finish_no(&no);
    return rc;
}
