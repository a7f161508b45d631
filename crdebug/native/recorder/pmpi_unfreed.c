/* What the program has made of MPI's objects and not freed, and where it made them: told in MPI_Finalize,
 * in a file beside the log. Types, groups and operations are kept here for that; communicators, windows
 * and requests are known anyway.
 *
 * Libraries free what they have made in callbacks of MPI_COMM_SELF's attributes, which MPI_Finalize calls
 * first, those of the attributes that were set last before others (MPI 4.1, 11.2.4). So ours, which
 * is the first that is set, tells. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "pmpi.h"

#define BUCKETS 256

enum kind { TYPE, GROUP, OP };
static const char *const kinds[] = {"type", "group", "operation"};

/* A handle may be given more than once, as that of a communicator's group is. */
static struct made {
    uint64_t handle, site, now;
    const char *function; /* that made it */
    enum kind kind;
    uint32_t code; /* of a type: that of all its elements, or 0 */
    struct made *next;
} *made[BUCKETS];

static struct made **place_of(enum kind kind, uint64_t handle) {
    return &made[mix(kind, handle) % BUCKETS];
}

/* Other threads have made or freed such, which is not followed. */
static volatile bool elsewhere;
/* MPI_Finalize is under way; and it has called back, and there the program has called what is counted. */
static bool finalizing, called_back;

static bool is_followed(void) {
    if (C.mode != CRDEBUG_RECORDS || owner == NULL) return false;
    elsewhere |= &depth != owner;
    return &depth == owner;
}

/* What the MPI's own functions make, they free themselves. */
static bool counts(void) { return is_followed() && C.initialized && !depth; }

static void keep(enum kind kind, uint64_t handle, const char *function, uint64_t site,
                 uint32_t code) {
    struct made **place = place_of(kind, handle), *one = malloc(sizeof *one);
    if (one == NULL) return;
    *one = (struct made){handle, site, C.now, function, kind, code, *place};
    *place = one;
}

static void forget(enum kind kind, uint64_t handle) {
    for (struct made **place = place_of(kind, handle); *place; place = &(*place)->next) {
        struct made *one = *place;
        if (one->kind != kind || one->handle != handle) continue;
        *place = one->next;
        free(one);
        return;
    }
}

uint32_t made_type(MPI_Datatype type, bool *found) {
    uint64_t handle = (uint64_t)(uintptr_t)type;
    const struct made *one = *place_of(TYPE, handle);
    while (one && (one->kind != TYPE || one->handle != handle)) one = one->next;
    *found = one != NULL;
    return one ? one->code : 0;
}

/* The basic type that all elements have of a type that is made of others. */
static uint32_t common_code(int count, const MPI_Datatype parts[]) {
    uint32_t code = count > 0 ? type_code(parts[0]) : 0;
    for (int i = 1; i < count; i++)
        if (type_code(parts[i]) != code) code = 0;
    return code;
}

static FILE *file;

/* A line: the kind, the address that the call returned to, the clock, and the call, if it is not counted. */
static void tell(const char *kind, uint64_t site, uint64_t now, const char *function) {
    if (file) fprintf(file, "%s %" PRIu64 " %" PRIu64 " %s\n", kind, ADDRESS(site), now, function);
}

void tell_unfreed(const char *kind, uint64_t site, uint64_t now) { tell(kind, site, now, "-"); }

static void tell_all(void) {
    if (C.mode != CRDEBUG_RECORDS || (file = log_beside("unfreed")) == NULL) return;
    if (!called_back) {
        requests_tell_unfreed();
        comms_tell_unfreed();
    }
    for (unsigned i = 0; !elsewhere && i < BUCKETS; i++)
        for (const struct made *one = made[i]; one; one = one->next)
            tell(kinds[one->kind], one->site, one->now, one->function);
    fclose(file);
    file = NULL;
}

static int told(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    if (finalizing) tell_all();
    finalizing = false;
    return MPI_SUCCESS;
}

/* Not MPI's function for that: its address would have to be there where there is no MPI. */
static int not_copied(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *flag) {
    (void)comm, (void)key, (void)extra, (void)value, (void)copy;
    *flag = 0;
    return MPI_SUCCESS;
}

void unfreed_begin(void) {
    int key;
    if (C.mode != CRDEBUG_RECORDS) return;
    if (PMPI_Comm_create_keyval(not_copied, told, &key, NULL) == MPI_SUCCESS)
        PMPI_Comm_set_attr(mpi.self, key, NULL);
}

void unfreed_finalizing(void) { finalizing = true; }

void unfreed_called(void) { called_back |= finalizing; }

/* ---- the calls, which are not counted ----------------------------------------------------------- */

#define MAKES(name, parameters, arguments, ...) \
    EXPORTED int MPI_##name parameters { \
        int rc = PMPI_##name arguments; \
        if (rc == MPI_SUCCESS && counts()) \
            keep(TYPE, (uint64_t)(uintptr_t)*type, "MPI_" #name, SITE, common_code(__VA_ARGS__)); \
        return rc; \
    }

MAKES(Type_contiguous, (int count, MPI_Datatype old, MPI_Datatype *type), (count, old, type), 1,
      &old)
MAKES(Type_vector, (int count, int length, int stride, MPI_Datatype old, MPI_Datatype *type),
      (count, length, stride, old, type), 1, &old)
MAKES(Type_create_hvector,
      (int count, int length, MPI_Aint stride, MPI_Datatype old, MPI_Datatype *type),
      (count, length, stride, old, type), 1, &old)
MAKES(Type_indexed,
      (int count, const int lengths[], const int places[], MPI_Datatype old, MPI_Datatype *type),
      (count, lengths, places, old, type), 1, &old)
MAKES(Type_create_hindexed,
      (int count, const int lengths[], const MPI_Aint places[], MPI_Datatype old,
       MPI_Datatype *type),
      (count, lengths, places, old, type), 1, &old)
MAKES(Type_create_indexed_block,
      (int count, int length, const int places[], MPI_Datatype old, MPI_Datatype *type),
      (count, length, places, old, type), 1, &old)
MAKES(Type_create_hindexed_block,
      (int count, int length, const MPI_Aint places[], MPI_Datatype old, MPI_Datatype *type),
      (count, length, places, old, type), 1, &old)
MAKES(Type_create_struct,
      (int count, const int lengths[], const MPI_Aint places[], const MPI_Datatype types[],
       MPI_Datatype *type),
      (count, lengths, places, types, type), count, types)
MAKES(Type_create_subarray,
      (int n, const int sizes[], const int parts[], const int starts[], int order, MPI_Datatype old,
       MPI_Datatype *type),
      (n, sizes, parts, starts, order, old, type), 1, &old)
MAKES(Type_create_darray,
      (int size, int rank, int n, const int sizes[], const int spread[], const int how[],
       const int ranks[], int order, MPI_Datatype old, MPI_Datatype *type),
      (size, rank, n, sizes, spread, how, ranks, order, old, type), 1, &old)
MAKES(Type_create_resized, (MPI_Datatype old, MPI_Aint low, MPI_Aint extent, MPI_Datatype *type),
      (old, low, extent, type), 1, &old)
MAKES(Type_dup, (MPI_Datatype old, MPI_Datatype *type), (old, type), 1, &old)

EXPORTED int MPI_Op_create(MPI_User_function *function, int commutes, MPI_Op *op) {
    int rc = PMPI_Op_create(function, commutes, op);
    if (rc == MPI_SUCCESS && counts()) keep(OP, (uint64_t)(uintptr_t)*op, "MPI_Op_create", SITE, 0);
    return rc;
}

EXPORTED int MPI_Type_free(MPI_Datatype *type) {
    uint64_t handle = (uint64_t)(uintptr_t)*type;
    types_forget();
    int rc = PMPI_Type_free(type);
    if (rc == MPI_SUCCESS && is_followed()) forget(TYPE, handle);
    return rc;
}

EXPORTED int MPI_Op_free(MPI_Op *op) {
    uint64_t handle = (uint64_t)(uintptr_t)*op;
    int rc = PMPI_Op_free(op);
    if (rc == MPI_SUCCESS && is_followed()) forget(OP, handle);
    return rc;
}

/* An empty group is the MPI's own, and need not be freed. */
static void keep_group(MPI_Group group, const char *function, uint64_t site) {
    int size = 0;
    PMPI_Group_size(group, &size);
    if (size) keep(GROUP, (uint64_t)(uintptr_t)group, function, site, 0);
}

#define GROUPS(name, parameters, arguments) \
    EXPORTED int MPI_##name parameters { \
        int rc = PMPI_##name arguments; \
        if (rc == MPI_SUCCESS && counts()) keep_group(*group, "MPI_" #name, SITE); \
        return rc; \
    }

GROUPS(Comm_group, (MPI_Comm comm, MPI_Group *group), (comm, group))
GROUPS(Comm_remote_group, (MPI_Comm comm, MPI_Group *group), (comm, group))
GROUPS(Win_get_group, (MPI_Win win, MPI_Group *group), (win, group))
GROUPS(File_get_group, (MPI_File file, MPI_Group *group), (file, group))
GROUPS(Group_incl, (MPI_Group old, int n, const int ranks[], MPI_Group *group),
       (old, n, ranks, group))
GROUPS(Group_excl, (MPI_Group old, int n, const int ranks[], MPI_Group *group),
       (old, n, ranks, group))
GROUPS(Group_range_incl, (MPI_Group old, int n, int ranges[][3], MPI_Group *group),
       (old, n, ranges, group))
GROUPS(Group_range_excl, (MPI_Group old, int n, int ranges[][3], MPI_Group *group),
       (old, n, ranges, group))
GROUPS(Group_union, (MPI_Group one, MPI_Group two, MPI_Group *group), (one, two, group))
GROUPS(Group_intersection, (MPI_Group one, MPI_Group two, MPI_Group *group), (one, two, group))
GROUPS(Group_difference, (MPI_Group one, MPI_Group two, MPI_Group *group), (one, two, group))

EXPORTED int MPI_Group_free(MPI_Group *group) {
    uint64_t handle = (uint64_t)(uintptr_t)*group;
    int rc = PMPI_Group_free(group);
    if (rc == MPI_SUCCESS && is_followed()) forget(GROUP, handle);
    return rc;
}
