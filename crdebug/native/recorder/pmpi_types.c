/* The types of messages: their sizes, and the basic type that all of their elements have. */
#include <string.h>

#include "pmpi.h"

struct type_entry types[256];

static const struct {
    const char *name;
    int size;
} basic[] = {CRDEBUG_TYPES};

/* By the name that each MPI gives its own (MPI 4.1, 7.8): handles may be addresses or numbers. */
static uint32_t basic_code(MPI_Datatype type, int size) {
    char name[MPI_MAX_OBJECT_NAME + 1] = "";
    int length;
    if (PMPI_Type_get_name(type, name, &length) != MPI_SUCCESS) return 0;
    for (unsigned i = 0; i < sizeof basic / sizeof *basic; i++)
        if (strcmp(basic[i].name, name) == 0) return basic[i].size == size ? i + 1 : 0;
    return 0;
}

const struct type_entry *type_slow(MPI_Datatype type) {
    static const struct type_entry none;
    struct type_entry *entry = &types[((uintptr_t)type >> 4 ^ (uintptr_t)type >> 10) % 256];
    struct type_entry found = {.type = type, .known = 1};
    bool made;
    if (type == mpi.type_null || C.mode == CRDEBUG_COUNTS) return &none;
    ask();
    if (!answered(PMPI_Type_size(type, &found.size))) return &none;
    found.code = made_type(type, &made);
    if (!made) found.code = basic_code(type, found.size);
    *entry = found;
    return entry;
}

void types_forget(void) {
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++) types[i].known = 0;
}

uint64_t bytes_if(const void *buffer, int64_t count, MPI_Datatype type, int64_t other,
                  MPI_Datatype other_type, MPI_Comm comm) {
    if (C.mode == CRDEBUG_COUNTS || comm == mpi.comm_null || comm_entry(comm)->inter) return 0;
    return buffer == MPI_IN_PLACE ? bytes_of(other, other_type) : bytes_of(count, type);
}

uint32_t type_if(const void *buffer, MPI_Datatype type, MPI_Datatype other_type, MPI_Comm comm) {
    if (C.mode == CRDEBUG_COUNTS || comm == mpi.comm_null || comm_entry(comm)->inter) return 0;
    return type_code(buffer == MPI_IN_PLACE ? other_type : type);
}

uint32_t half_code(const void *buffer, int64_t count, MPI_Datatype type, const void *other_buffer,
                   int64_t other_count, MPI_Datatype other_type, int root, MPI_Comm comm) {
    if (C.mode == CRDEBUG_COUNTS || buffer == MPI_IN_PLACE || other_buffer == MPI_IN_PLACE)
        return 0;
    const struct comm_entry *in = comm_entry(comm);
    if (in->inter || (root != EVERYBODY && root != in->rank)) return 0;
    if (bytes_of(count, type) != bytes_of(other_count, other_type)) return CRDEBUG_UNEQUAL;
    return type_code(type) == type_code(other_type) ? 0 : type_code(other_type);
}

uint32_t room_code(int64_t count, MPI_Datatype type, int64_t target_count, MPI_Datatype target_type,
                   bool gets) {
    if (C.mode == CRDEBUG_COUNTS) return 0;
    uint64_t here = bytes_of(count, type), there = bytes_of(target_count, target_type);
    return (gets ? there > here : here > there) ? CRDEBUG_UNEQUAL : type_code(target_type);
}

uint32_t op_code(MPI_Op op) {
    for (uint32_t i = 0; i < CRDEBUG_OPS; i++)
        if (C.ops[i] == (uintptr_t)op) return i + 1;
    return CRDEBUG_OPS + 1; /* the program's own */
}
