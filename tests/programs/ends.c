// Programs that end in unusual ways, which MPI allows.
//
// --mode NAME     see `modes`

#include "common.h"

static const char *mode = "";
static MPI_Comm kept;
static MPI_Datatype pair;
static MPI_Group everybody;

// As libraries do: in MPI_Finalize, by an attribute of MPI_COMM_SELF.
static int free_all(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    MPI_Comm_free(&kept);
    MPI_Type_free(&pair);
    MPI_Group_free(&everybody);
    return MPI_SUCCESS;
}

static void freed_at_the_end(void) {
    int key;
    MPI_Comm_dup(MPI_COMM_WORLD, &kept);
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Comm_group(MPI_COMM_WORLD, &everybody);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_all, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    MPI_Comm_free_keyval(&key);
    MPI_Finalize();
}

// Not the same as MPI_Finalize, but MPI allows it (MPI 4.1, 9.3).
static void aborts(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (my_rank == 0) MPI_Abort(MPI_COMM_WORLD, 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void finalizes_in_exit(void) { exit(0); }

static void finalize(void) {
    if (strcmp(mode, "finalizes_in_exit") == 0) MPI_Finalize();
}

// A send may be given back before it is done, and what a persistent one has left is no request.
static void given_back(void) {
    MPI_Request send, parts[2];
    int value = 1, got[2], next = (my_rank + 1) % rank_count,
        last = (my_rank + rank_count - 1) % rank_count;
    MPI_Isend(&value, 1, MPI_INT, next, 1, MPI_COMM_WORLD, &send);
    MPI_Request_free(&send);
    MPI_Recv(&got[0], 1, MPI_INT, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send_init(&value, 1, MPI_INT, next, 2, MPI_COMM_WORLD, &parts[0]);
    MPI_Recv_init(&got[1], 1, MPI_INT, last, 2, MPI_COMM_WORLD, &parts[1]);
    MPI_Startall(2, parts);
    MPI_Waitall(2, parts, MPI_STATUSES_IGNORE);
    MPI_Request_free(&parts[0]);
    MPI_Request_free(&parts[1]);
    MPI_Irecv(&value, 1, MPI_INT, last, 3, MPI_COMM_WORLD, &send);
    MPI_Cancel(&send);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Isend(&value, 1, MPI_INT, MPI_PROC_NULL, 4, MPI_COMM_WORLD, &parts[0]);
    MPI_Irecv(&value, 1, MPI_INT, MPI_PROC_NULL, 4, MPI_COMM_WORLD, &parts[1]);
    MPI_Waitall(2, parts, MPI_STATUSES_IGNORE);
    MPI_Finalize();
}

static void idup_and_window(void) {
    MPI_Request made;
    MPI_Comm comm;
    MPI_Win window;
    int word = 0;
    MPI_Comm_idup(MPI_COMM_WORLD, &comm, &made);
    MPI_Wait(&made, MPI_STATUS_IGNORE);
    MPI_Win_create(&word, sizeof word, sizeof word, MPI_INFO_NULL, comm, &window);
    MPI_Win_fence(0, window);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
    MPI_Comm_free(&comm);
    MPI_Finalize();
}

// Tells again and again whether the exposure is over: at first it is not.
static void win_test(void) {
    MPI_Win window;
    MPI_Group world, one;
    int word = 0, flag = 0, other = 1 - my_rank;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Win_create(&word, sizeof word, sizeof word, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    if (my_rank < 2) {
        MPI_Group_incl(world, 1, &other, &one);
        if (my_rank == 0) {
            MPI_Win_post(one, 0, window);
            MPI_Win_test(window, &flag);
            MPI_Send(&word, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
            while (!flag) MPI_Win_test(window, &flag);
        } else {
            MPI_Recv(&word, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Win_start(one, 0, window);
            MPI_Put(&word, 1, MPI_INT, 0, 0, 1, MPI_INT, window);
            MPI_Win_complete(window);
        }
        MPI_Group_free(&one);
    }
    MPI_Group_free(&world);
    MPI_Win_free(&window);
    MPI_Finalize();
}

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {{"freed_at_the_end", freed_at_the_end},
             {"aborts", aborts},
             {"finalizes_in_exit", finalizes_in_exit},
             {"given_back", given_back},
             {"idup_and_window", idup_and_window},
             {"win_test", win_test},
             {NULL, NULL}};

int main(int argc, char **argv) {
    const struct option_spec options[] = {{"--mode", NULL, &mode}, {NULL, NULL, NULL}};
    parse_options(argc, argv, options);
    atexit(finalize);
    start_mpi(&argc, &argv);
    for (int i = 0; modes[i].name; i++)
        if (strcmp(modes[i].name, mode) == 0) modes[i].run();
    return 0;
}
