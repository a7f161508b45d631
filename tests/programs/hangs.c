// MPI ranks of which some wait for ever, each mode in a way of its own.
//
// --mode NAME     see `modes`; it takes 4 ranks
// --rounds N      exchanges before that

#include "common.h"

enum { TAG = 7, OTHER_TAG = 8, LARGE = 1 << 22 };

static const char *mode = "cycle";
static long rounds = 3;
static int left_rank, right_rank, last_rank;
static char *large;
static volatile double heat;

static int receive(int source, int tag, MPI_Comm comm) {
    int value = 0;
    MPI_Recv(&value, 1, MPI_INT, source, tag, comm, MPI_STATUS_IGNORE);
    return value;
}

static void cycle(void) { receive(right_rank, TAG, MPI_COMM_WORLD); }

// The last rank does not come to the barrier.
static void member(void) {
    if (my_rank == last_rank) receive(0, TAG, MPI_COMM_WORLD);
    else MPI_Barrier(MPI_COMM_WORLD);
}

static void tag(void) {
    MPI_Send(&my_rank, 1, MPI_INT, right_rank, OTHER_TAG, MPI_COMM_WORLD);
    receive(left_rank, TAG, MPI_COMM_WORLD);
}

static void comm(void) {
    MPI_Comm other;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Send(&my_rank, 1, MPI_INT, right_rank, TAG, other);
    receive(left_rank, TAG, MPI_COMM_WORLD);
}

// The root of the one waits for the others, and the others wait for the root of the other one.
static void collective(void) {
    int value = my_rank, all[4];
    if (my_rank == 0) MPI_Gather(&value, 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD);
    else MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
}

static void root(void) {
    int value = my_rank;
    MPI_Bcast(&value, 1, MPI_INT, my_rank % 2 ? 0 : 1, MPI_COMM_WORLD);
}

static void wildcard(void) {
    if (my_rank == 0) receive(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD);
    else receive(0, TAG, MPI_COMM_WORLD);
}

static void rendezvous(void) {
    MPI_Send(large, LARGE, MPI_CHAR, right_rank, TAG, MPI_COMM_WORLD);
    MPI_Recv(large, LARGE, MPI_CHAR, left_rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void synchronous(void) {
    MPI_Ssend(&my_rank, 1, MPI_INT, right_rank, TAG, MPI_COMM_WORLD);
}

static void waitall(void) {
    int values[2];
    MPI_Request requests[3];
    MPI_Status statuses[3];
    MPI_Irecv(&values[0], 1, MPI_INT, left_rank, OTHER_TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(&my_rank, 1, MPI_INT, right_rank, OTHER_TAG, MPI_COMM_WORLD, &requests[1]);
    MPI_Irecv(&values[1], 1, MPI_INT, left_rank, TAG, MPI_COMM_WORLD, &requests[2]);
    MPI_Waitall(3, requests, statuses);
}

static void waitany(void) {
    int values[2], index;
    MPI_Request requests[2];
    MPI_Irecv(&values[0], 1, MPI_INT, left_rank, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&values[1], 1, MPI_INT, right_rank, TAG, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
}

static void halves(void) {
    int value;
    MPI_Sendrecv(&my_rank, 1, MPI_INT, right_rank, OTHER_TAG, &value, 1, MPI_INT, left_rank, TAG,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void probe(void) {
    MPI_Status status;
    MPI_Probe(left_rank, TAG, MPI_COMM_WORLD, &status);
}

static void polls(void) {
    int value, flag = 0;
    MPI_Request request;
    MPI_Irecv(&value, 1, MPI_INT, left_rank, TAG, MPI_COMM_WORLD, &request);
    while (!flag) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
}

static void fence(void) {
    static int shared;
    MPI_Win window;
    MPI_Win_create(&shared, sizeof shared, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    if (my_rank == last_rank) receive(0, TAG, MPI_COMM_WORLD);
    else MPI_Win_fence(0, window);
}

// Rank 1 has the lock and waits for rank 2, which waits for the lock.
static void lock(void) {
    static int shared;
    MPI_Win window;
    MPI_Win_create(&shared, sizeof shared, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    if (my_rank == 1) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Put(&my_rank, 1, MPI_INT, 0, 0, 1, MPI_INT, window);
        MPI_Win_flush(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (my_rank == 1) receive(2, TAG, MPI_COMM_WORLD);
    if (my_rank == 2) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Put(&my_rank, 1, MPI_INT, 0, 0, 1, MPI_INT, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

__attribute__((noinline)) static void compute(void) {
    while (heat >= 0) heat = heat * 0.5 + 1;
}

static void computes(void) {
    if (my_rank == last_rank) compute();
    MPI_Barrier(MPI_COMM_WORLD);
}

static void stopped(void) {
    if (my_rank == last_rank) raise(SIGSTOP);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void finalize(void) {
    if (my_rank != last_rank) MPI_Barrier(MPI_COMM_WORLD);
}

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {{"cycle", cycle},           {"member", member},     {"tag", tag},
             {"comm", comm},             {"collective", collective},
             {"root", root},             {"wildcard", wildcard}, {"rendezvous", rendezvous},
             {"synchronous", synchronous}, {"waitall", waitall}, {"waitany", waitany},
             {"halves", halves},         {"probe", probe},       {"polls", polls},
             {"fence", fence},           {"lock", lock},         {"computes", computes},
             {"stopped", stopped},       {"finalize", finalize}, {NULL, NULL}};

int main(int argc, char **argv) {
    parse_options(
        argc, argv,
        (struct option_spec[]){
            {"--mode", NULL, &mode}, {"--rounds", &rounds, NULL}, {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    left_rank = (my_rank + rank_count - 1) % rank_count;
    right_rank = (my_rank + 1) % rank_count;
    last_rank = rank_count - 1;
    large = calloc(1, LARGE);
    CHECK(large != NULL && rank_count == 4, "it takes 4 ranks");
    for (step = 1; step <= rounds; step++) exchange(0);
    for (int i = 0; modes[i].name; i++)
        if (strcmp(modes[i].name, mode) == 0) modes[i].run();
    MPI_Finalize();
    FAIL("mode '%s' has come to its end", mode);
}
