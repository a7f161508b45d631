// Data that is received or accessed as another type than it has, or more than there is room for, each mode
// in another way; and the same without the error, with what looks like one and is none.
//
// --mode NAME     see `modes`; it takes 3 ranks
// --right 1       the right one of the two
//
// `// !` marks the calls that do not fit: the lines that crdebug is to name.

#include "common.h"

#define WORLD MPI_COMM_WORLD
#define NO_STATUS MPI_STATUS_IGNORE
#define WRONG_ELSE(wrong, fine) (right ? (fine) : (wrong))

static const char *mode = "";
static long right;
static int value, other, values[4], all[12];

static void other_type(void) {
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);  // !
    float number = 0;
    if (my_rank == 1 && right) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);
    if (my_rank == 1 && !right) MPI_Recv(&number, 1, MPI_FLOAT, 0, 7, WORLD, NO_STATUS);  // !
}

static void other_type_of_exchange(void) {
    MPI_Datatype type = my_rank == 1 ? WRONG_ELSE(MPI_FLOAT, MPI_INT) : MPI_INT;
    int peer = 1 - my_rank;
    if (my_rank < 2)
        MPI_Sendrecv(values, 1, MPI_INT, peer, 7, values, 1, type, peer, 7, WORLD,  // !
                     NO_STATUS);
}

static void other_type_started(void) {
    MPI_Request request;
    if (my_rank == 0) MPI_Send_init(&value, 1, MPI_INT, 1, 7, WORLD, &request);
    if (my_rank == 1)
        MPI_Recv_init(values, 1, WRONG_ELSE(MPI_FLOAT, MPI_INT), 0, 7, WORLD, &request);
    if (my_rank < 2) {
        MPI_Start(&request);  // !
        MPI_Wait(&request, NO_STATUS);
        MPI_Request_free(&request);
    }
}

// Only what the type is made of counts, not its shape.
static void other_type_of_elements(void) {
    MPI_Datatype pair;
    MPI_Type_vector(2, 1, 2, WRONG_ELSE(MPI_FLOAT, MPI_INT), &pair);
    MPI_Type_commit(&pair);
    if (my_rank == 0) MPI_Send(values, 1, pair, 1, 7, WORLD);                   // !
    if (my_rank == 1) MPI_Recv(values, 2, MPI_INT, 0, 7, WORLD, NO_STATUS);     // !
    MPI_Type_free(&pair);
}

// Bytes fit everything, nothing has no type, and a type of several has none that is compared.
static void other_type_than_bytes(void) {
    struct both { int one; float two; } both = {1, 2};
    MPI_Datatype mixed, parts[2] = {MPI_INT, MPI_FLOAT};
    MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 4}, parts, &mixed);
    MPI_Type_commit(&mixed);
    if (my_rank == 0) {
        MPI_Send(&both, 1, mixed, 1, 7, WORLD);
        MPI_Send(values, 1, MPI_INT, 1, 7, WORLD);
        MPI_Send(values, 4, MPI_BYTE, 1, 7, WORLD);
        MPI_Send(values, 0, MPI_INT, 1, 7, WORLD);
        MPI_Send(values, 1, MPI_C_FLOAT_COMPLEX, 1, 7, WORLD);
        MPI_Send(values, 1, MPI_UNSIGNED_LONG, 1, 7, WORLD);  // !
    }
    if (my_rank == 1) {
        MPI_Recv(&both, 1, mixed, 0, 7, WORLD, NO_STATUS);
        MPI_Recv(values, 4, MPI_BYTE, 0, 7, WORLD, NO_STATUS);
        MPI_Recv(values, 1, MPI_FLOAT, 0, 7, WORLD, NO_STATUS);
        MPI_Recv(values, 1, MPI_DOUBLE, 0, 7, WORLD, NO_STATUS);
        MPI_Recv(values, 2, MPI_FLOAT, 0, 7, WORLD, NO_STATUS);
        MPI_Recv(values, 1, WRONG_ELSE(MPI_DOUBLE, MPI_UINT64_T), 0, 7, WORLD, NO_STATUS);  // !
    }
    MPI_Type_free(&mixed);
}

// ---- the two halves of one call -----------------------------------------------------------------

static void other_count_of_own_half(void) {
    MPI_Allgather(&value, 1, MPI_INT, all, WRONG_ELSE(2, 1), MPI_INT, WORLD);  // !
}

static void other_type_of_own_half(void) {
    MPI_Datatype got = right ? MPI_INT : MPI_FLOAT;
    MPI_Gather(&value, 1, MPI_INT, all, 1, my_rank ? MPI_DATATYPE_NULL : got, 0, WORLD);  // !
}

static void other_count_of_scatter(void) {
    MPI_Scatter(all, WRONG_ELSE(2, 1), MPI_INT, &value, 1, MPI_INT, 0, WORLD);  // !
}

static MPI_Win made(void) {
    MPI_Win window;
    MPI_Win_create(values, sizeof values, sizeof(int), MPI_INFO_NULL, WORLD, &window);
    return window;
}

static void room_for_fewer(void) {
    MPI_Win window = made();
    MPI_Win_fence(0, window);
    if (my_rank == 0) MPI_Put(values, WRONG_ELSE(2, 1), MPI_INT, 1, 0, 1, MPI_INT, window);  // !
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

static void more_than_room(void) {
    MPI_Win window = made();
    MPI_Win_fence(0, window);
    if (my_rank == 0) MPI_Get(&other, 1, MPI_INT, 1, 0, WRONG_ELSE(2, 1), MPI_INT, window);  // !
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

// ---- before and after MPI --------------------------------------------------------------------------------

static void init_twice(void) {
    if (!right) MPI_Init(NULL, NULL);  // !
}

static void after_finalize(void) {
    if (right) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    if (!right) MPI_Barrier(MPI_COMM_WORLD);  // !
    exit(0);
}

#define MODE(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {
    MODE(other_type),
    MODE(other_type_of_exchange),
    MODE(other_type_started),
    MODE(other_type_of_elements),
    MODE(other_type_than_bytes),
    MODE(other_count_of_own_half),
    MODE(other_type_of_own_half),
    MODE(other_count_of_scatter),
    MODE(room_for_fewer),
    MODE(more_than_room),
    MODE(init_twice),
    MODE(after_finalize),
};

int main(int argc, char **argv) {
    parse_options(
        argc, argv,
        (struct option_spec[]){
            {"--mode", NULL, &mode}, {"--right", &right, NULL}, {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    CHECK(rank_count == 3, "it takes 3 ranks");
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(modes[i].name, mode) == 0) modes[i].run();
    MPI_Finalize();
    return 0;
}
