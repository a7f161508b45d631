// MPI calls that are wrong, and that most MPIs let pass; each mode in a way of its own.
//
// --mode NAME     see `modes`; it takes 4 ranks

#include "common.h"

enum { TAG = 7, OTHER_TAG = 8 };

static const char *mode = "unreceived";

static void unreceived(void) {
    for (int tag = TAG; tag < TAG + 2; tag++) {
        int left = (my_rank + rank_count - 1) % rank_count, right = (my_rank + 1) % rank_count;
        int value = my_rank, other;
        MPI_Send(&value, 1, MPI_INT, right, tag, MPI_COMM_WORLD);
        if (tag == TAG) MPI_Recv(&other, 1, MPI_INT, left, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void truncated(void) {
    int values[2] = {my_rank, my_rank};
    if (my_rank == 0) MPI_Send(values, 2, MPI_INT, 1, TAG, MPI_COMM_WORLD);
    if (my_rank == 1) MPI_Recv(values, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void refused(void) {
    if (my_rank == 2) MPI_Send(&my_rank, 1, MPI_INT, rank_count, TAG, MPI_COMM_WORLD);
}

static void uncompleted(void) {
    static int value;
    MPI_Request request;
    if (my_rank == 0) MPI_Send(&my_rank, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD);
    if (my_rank == 1) MPI_Irecv(&value, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, &request);
}

// Each one is the root.
static void root(void) {
    int value = my_rank;
    MPI_Bcast(&value, 1, MPI_INT, my_rank == 3 ? 3 : 0, MPI_COMM_WORLD);
}

static void size(void) {
    int values[2] = {my_rank, my_rank};
    MPI_Bcast(values, my_rank == 2 ? 2 : 1, MPI_INT, 0, MPI_COMM_WORLD);
}

// Of a small broadcast the root is done at once.
static void missing(void) {
    int value = my_rank;
    if (my_rank == 0) MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
}

// The MPI says what is wrong with them, to the call and not to whoever looks at it first.
static void handles(void) {
    int value = my_rank, kind = MPI_SUCCESS;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Error_class(MPI_Barrier((MPI_Comm)0), &kind);
    CHECK(kind == MPI_ERR_COMM, "class %d", kind);
    MPI_Error_class(MPI_Bcast(&value, 1, (MPI_Datatype)0, 0, MPI_COMM_WORLD), &kind);
    CHECK(kind == MPI_ERR_TYPE, "class %d", kind);
}

// Each half has a type of its own, and that is no error; a message that is too long is one.
static void two_types(void) {
    int whole = my_rank;
    double numbers[2] = {0, 0};
    MPI_Status status;
    if (my_rank == 0)
        MPI_Sendrecv(&whole, 1, MPI_INT, 1, TAG, numbers, 1, MPI_DOUBLE, 1, TAG, MPI_COMM_WORLD,
                     &status);
    if (my_rank == 1)
        MPI_Sendrecv(numbers, 2, MPI_DOUBLE, 0, TAG, &whole, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD,
                     &status);
}

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {{"unreceived", unreceived},
             {"truncated", truncated},
             {"refused", refused},
             {"uncompleted", uncompleted},
             {"root", root},
             {"size", size},
             {"missing", missing},
             {"handles", handles},
             {"two_types", two_types},
             {NULL, NULL}};

int main(int argc, char **argv) {
    const struct option_spec options[] = {{"--mode", NULL, &mode}, {NULL, NULL, NULL}};
    parse_options(argc, argv, options);
    start_mpi(&argc, &argv);
    CHECK(rank_count == 4, "it takes 4 ranks");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; modes[i].name; i++)
        if (strcmp(modes[i].name, mode) == 0) modes[i].run();
    MPI_Finalize();
    return 0;
}
