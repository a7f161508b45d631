// Collectives and one-sided calls that go wrong, each mode after an error that collections of wrong
// MPI programs have; and the same without the error.
//
// --mode NAME     see `modes`; it takes 3 ranks
// --right 1       the right one of the two
//
// `// !` marks the calls that do not fit: the lines that crdebug is to name.

#include "common.h"

#define WORLD MPI_COMM_WORLD
#define NO_STATUS MPI_STATUS_IGNORE
#define WRONG_ELSE(wrong, fine) (right ? (fine) : (wrong))
#define ONE_IS(rank, odd, others) (!right && my_rank == (rank) ? (odd) : (others))

static const char *mode = "";
static long right;
static int value, other, values[12], others[12];
static double number, sum;

// ---- order and members --------------------------------------------------------------------------

static void other_order(void) {
    if (ONE_IS(1, true, false)) {
        MPI_Allreduce(&value, &other, 1, MPI_INT, MPI_SUM, WORLD);  // !
        MPI_Barrier(WORLD);
    } else {
        MPI_Barrier(WORLD);  // !
        MPI_Allreduce(&value, &other, 1, MPI_INT, MPI_SUM, WORLD);
    }
}

static void bcast_for_reduce(void) {
    if (ONE_IS(1, true, false)) MPI_Bcast(&value, 1, MPI_INT, 0, WORLD);  // !
    else MPI_Reduce(&value, &other, 1, MPI_INT, MPI_SUM, 0, WORLD);       // !
}

static void gather_for_scatter(void) {
    if (ONE_IS(0, true, false)) MPI_Gather(&value, 1, MPI_INT, values, 1, MPI_INT, 0, WORLD);  // !
    else MPI_Scatter(values, 1, MPI_INT, &value, 1, MPI_INT, 0, WORLD);                        // !
}

static void no_barrier(void) {
    if (right || my_rank != 2) MPI_Barrier(WORLD);  // !
}

static void no_allreduce(void) {
    if (right || my_rank != 0) MPI_Allreduce(&number, &sum, 1, MPI_DOUBLE, MPI_SUM, WORLD);  // !
}

static void only_the_root(void) {
    if (right || my_rank == 0) MPI_Bcast(&value, 1, MPI_INT, 0, WORLD);  // !
}

static void not_the_root(void) {
    if (right || my_rank != 0) MPI_Bcast(&value, 1, MPI_INT, 0, WORLD);  // !
}

static void reduce_without_one(void) {
    if (right || my_rank != 1) MPI_Reduce(&value, &other, 1, MPI_INT, MPI_SUM, 0, WORLD);  // !
}

static void scan_without_first(void) {
    if (right || my_rank != 0) MPI_Scan(&value, &other, 1, MPI_INT, MPI_SUM, WORLD);  // !
}

static void posted_without_one(void) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (right || my_rank != 1) MPI_Ibarrier(WORLD, &request);  // !
    MPI_Wait(&request, NO_STATUS);                             // !
}

static void posted_other_order(void) {
    MPI_Request requests[2];
    bool first = ONE_IS(1, true, false);
    if (first) MPI_Iallreduce(&value, &other, 1, MPI_INT, MPI_SUM, WORLD, &requests[1]);  // !
    MPI_Ibarrier(WORLD, &requests[0]);                                                    // !
    if (!first) MPI_Iallreduce(&value, &other, 1, MPI_INT, MPI_SUM, WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void posted_and_blocking(void) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (ONE_IS(1, true, false)) MPI_Bcast(&value, 1, MPI_INT, 0, WORLD);  // !
    else MPI_Ibcast(&value, 1, MPI_INT, 0, WORLD, &request);              // !
    MPI_Wait(&request, NO_STATUS);
}

static void posted_not_completed(void) {
    MPI_Request request;
    MPI_Iallreduce(&value, &other, 1, MPI_INT, MPI_SUM, WORLD, &request);  // !
    if (right) MPI_Wait(&request, NO_STATUS);
    MPI_Barrier(WORLD);
}

static void other_communicator(void) {
    MPI_Comm twin;
    MPI_Comm_dup(WORLD, &twin);
    MPI_Barrier(ONE_IS(1, WORLD, twin));  // !
    MPI_Comm_free(&twin);
}

static void communicators_cross(void) {
    MPI_Comm twin;
    MPI_Comm_dup(WORLD, &twin);
    if (ONE_IS(1, true, false)) {
        MPI_Barrier(WORLD);  // !
        MPI_Barrier(twin);
    } else {
        MPI_Barrier(twin);  // !
        MPI_Barrier(WORLD);
    }
    MPI_Comm_free(&twin);
}

static void receive_before_barrier(void) {
    if (my_rank == 1 && !right) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);  // !
    MPI_Barrier(WORLD);                                                                // !
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank == 1 && right) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);
}

static void synchronous_and_bcast(void) {
    if (my_rank == 1) MPI_Ssend(&value, 1, MPI_INT, 0, 7, WORLD);  // !
    if (my_rank == 0 && right) MPI_Recv(&other, 1, MPI_INT, 1, 7, WORLD, NO_STATUS);
    MPI_Allreduce(&number, &sum, 1, MPI_DOUBLE, MPI_SUM, WORLD);  // !
    if (my_rank == 0 && !right) MPI_Recv(&other, 1, MPI_INT, 1, 7, WORLD, NO_STATUS);
}

static void split_without_one(void) {
    MPI_Comm part = MPI_COMM_NULL;
    if (right || my_rank != 2) MPI_Comm_split(WORLD, my_rank % 2, 0, &part);  // !
    if (part != MPI_COMM_NULL) MPI_Comm_free(&part);
}

static void dup_without_one(void) {
    MPI_Comm twin = MPI_COMM_NULL;
    if (right || my_rank != 0) MPI_Comm_dup(WORLD, &twin);  // !
    if (twin != MPI_COMM_NULL) MPI_Comm_free(&twin);
}

// ---- arguments that differ ----------------------------------------------------------------------

static void other_root_of_bcast(void) {
    MPI_Bcast(&value, 1, MPI_INT, ONE_IS(2, 1, 0), WORLD);  // !
}

static void each_its_own_root(void) {
    MPI_Bcast(values, 1, MPI_INT, WRONG_ELSE(my_rank, 0), WORLD);  // !
}

static void other_root_of_reduce(void) {
    MPI_Reduce(&value, &other, 1, MPI_INT, MPI_SUM, ONE_IS(1, 1, 0), WORLD);  // !
}

static void other_root_of_gather(void) {
    MPI_Gather(&value, 1, MPI_INT, values, 1, MPI_INT, ONE_IS(2, 2, 0), WORLD);  // !
}

static void other_count_of_bcast(void) {
    MPI_Bcast(values, ONE_IS(0, 2, 1), MPI_INT, 0, WORLD);  // !
}

static void other_count_of_allreduce(void) {
    MPI_Allreduce(values, others, ONE_IS(1, 2, 1), MPI_INT, MPI_SUM, WORLD);  // !
}

static void other_count_of_alltoall(void) {
    int count = ONE_IS(1, 2, 1);
    MPI_Alltoall(values, count, MPI_INT, others, count, MPI_INT, WORLD);  // !
}

static void other_counts_of_gatherv(void) {
    int counts[3] = {1, 1, 1}, places[3] = {0, 4, 8};
    MPI_Gatherv(values, ONE_IS(1, 3, 1), MPI_INT, others, counts, places, MPI_INT, 0, WORLD);  // !
}

static void other_counts_of_reduce_scatter(void) {
    int counts[3] = {1, 1, ONE_IS(1, 2, 1)};
    MPI_Reduce_scatter(values, others, counts, MPI_INT, MPI_SUM, WORLD);  // !
}

static void other_operation(void) {
    MPI_Allreduce(&value, &other, 1, MPI_INT, ONE_IS(1, MPI_MAX, MPI_SUM), WORLD);  // !
}

static void other_operation_of_reduce(void) {
    MPI_Reduce(&value, &other, 1, MPI_INT, ONE_IS(2, MPI_PROD, MPI_SUM), 0, WORLD);  // !
}

static void other_type_of_bcast(void) {
    MPI_Bcast(values, 1, ONE_IS(2, MPI_FLOAT, MPI_INT), 0, WORLD);  // !
    MPI_Datatype three;
    MPI_Type_contiguous(3, MPI_INT, &three);
    MPI_Type_commit(&three);
    MPI_Bcast(values, my_rank ? 1 : 3, my_rank ? three : MPI_INT, 0, WORLD);
    MPI_Type_free(&three);
}

// What only the root gives may be anything elsewhere, and with MPI_IN_PLACE its own part counts.
static void other_type_of_gather(void) {
    const void *own = my_rank ? (void *)values : MPI_IN_PLACE;
    MPI_Datatype sent = my_rank ? ONE_IS(2, MPI_FLOAT, MPI_INT) : MPI_DATATYPE_NULL;
    MPI_Datatype got = my_rank ? MPI_DATATYPE_NULL : MPI_INT;
    MPI_Gather(own, 1, sent, others, 1, got, 0, WORLD);  // !
}

static void add(void *in, void *out, int *count, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *count; i++) ((int *)out)[i] += ((int *)in)[i];
}

static void other_operation_of_its_own(void) {
    MPI_Op op = MPI_SUM;
    if (ONE_IS(0, true, false)) MPI_Op_create(add, true, &op);
    MPI_Allreduce(&value, &other, 1, MPI_INT, op, WORLD);  // !
    if (op != MPI_SUM) MPI_Op_free(&op);
}

static void other_type_of_allreduce(void) {
    MPI_Allreduce(values, others, 1, ONE_IS(0, MPI_FLOAT, MPI_INT), MPI_SUM, WORLD);  // !
}

static void other_type_and_size(void) {
    MPI_Bcast(values, 1, ONE_IS(1, MPI_DOUBLE, MPI_INT), 0, WORLD);  // !
}

// ---- what the MPI refuses -----------------------------------------------------------------------

static void no_such_root(void) {
    MPI_Bcast(&value, 1, MPI_INT, WRONG_ELSE(rank_count, 0), WORLD);  // !
}

static void negative_root(void) {
    MPI_Reduce(&value, &other, 1, MPI_INT, MPI_SUM, WRONG_ELSE(-77, 0), WORLD);  // !
}

static void null_operation(void) {
    MPI_Allreduce(&value, &other, 1, MPI_INT, right ? MPI_SUM : MPI_OP_NULL, WORLD);  // !
}

static void operation_not_for_type(void) {
    MPI_Allreduce(&number, &sum, 1, MPI_DOUBLE, right ? MPI_SUM : MPI_BAND, WORLD);  // !
}

static void null_type_of_bcast(void) {
    MPI_Bcast(&value, 1, right ? MPI_INT : MPI_DATATYPE_NULL, 0, WORLD);  // !
}

static void negative_count_of_bcast(void) {
    MPI_Bcast(&value, WRONG_ELSE(-1, 1), MPI_INT, 0, WORLD);  // !
}

static void null_communicator_of_barrier(void) {
    MPI_Barrier(right ? WORLD : MPI_COMM_NULL);  // !
}

static void null_communicator_of_ibarrier(void) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(right ? WORLD : MPI_COMM_NULL, &request);  // !
    MPI_Wait(&request, NO_STATUS);
}

static void same_buffer(void) {
    MPI_Allreduce(right ? &number : &sum, &sum, 1, MPI_DOUBLE, MPI_SUM, WORLD);  // !
}

// ---- never freed --------------------------------------------------------------------------------

static void communicator_not_freed(void) {
    MPI_Comm twin;
    MPI_Comm_dup(WORLD, &twin);  // !
    MPI_Barrier(twin);
    if (right) MPI_Comm_free(&twin);
}

static void type_not_freed(void) {
    MPI_Datatype pair;
    MPI_Type_contiguous(2, MPI_INT, &pair);  // !
    MPI_Type_commit(&pair);
    MPI_Bcast(values, 1, pair, 0, WORLD);
    if (right) MPI_Type_free(&pair);
}

static void window_not_freed(void) {
    MPI_Win window;
    MPI_Win_create(values, sizeof values, 1, MPI_INFO_NULL, WORLD, &window);  // !
    MPI_Win_fence(0, window);
    if (right) MPI_Win_free(&window);
}

static void operation_not_freed(void) {
    MPI_Op op;
    MPI_Op_create(add, 1, &op);  // !
    MPI_Allreduce(&value, &other, 1, MPI_INT, op, WORLD);
    if (right) MPI_Op_free(&op);
}

static void group_not_freed(void) {
    MPI_Group group;
    MPI_Comm_group(WORLD, &group);  // !
    if (right) MPI_Group_free(&group);
}

// ---- one-sided ----------------------------------------------------------------------------------

static MPI_Win made(void) {
    MPI_Win window;
    MPI_Win_create(values, sizeof values, sizeof(int), MPI_INFO_NULL, WORLD, &window);
    return window;
}

static void put(int target, MPI_Win window) {
    MPI_Put(&value, 1, MPI_INT, target, 0, 1, MPI_INT, window);
}

static void put_outside_of_epoch(void) {
    MPI_Win window = made();
    if (right) MPI_Win_fence(0, window);
    if (my_rank == 0) MPI_Put(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, window);  // !
    if (right) MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

static void fence_without_one(void) {
    MPI_Win window = made();
    MPI_Win_fence(0, window);
    if (my_rank == 0) put(1, window);
    if (right || my_rank != 2) MPI_Win_fence(0, window);  // !
    MPI_Win_free(&window);                                // !
}

static void free_without_fence(void) {
    MPI_Win window = made();
    MPI_Win_fence(0, window);
    if (my_rank == 0) MPI_Put(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, window);
    if (right) MPI_Win_fence(0, window);
    MPI_Win_free(&window);  // !
}

static void root_goes_on(void) {
    if (my_rank == 0 && right) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank == 1) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);  // !
    MPI_Bcast(&value, 1, MPI_INT, 0, WORLD);                                 // !
    if (my_rank == 0 && !right) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
}

static void unlock_without_lock(void) {
    MPI_Win window = made();
    if (my_rank == 0 && right) MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window);
    if (my_rank == 0) MPI_Win_unlock(1, window);  // !
    MPI_Win_free(&window);
}

static void lock_twice(void) {
    MPI_Win window = made();
    if (my_rank == 0) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);
    if (my_rank == 0 && !right) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);  // !
    if (my_rank == 0) MPI_Win_unlock(1, window);
    MPI_Win_free(&window);
}

static void flush_without_lock(void) {
    MPI_Win window = made();
    if (my_rank == 0 && right) MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window);
    if (my_rank == 0) MPI_Win_flush(1, window);  // !
    if (my_rank == 0 && right) MPI_Win_unlock(1, window);
    MPI_Win_free(&window);
}

static void put_to_nobody(void) {
    MPI_Win window = made();
    MPI_Win_fence(0, window);
    if (my_rank == 0)
        MPI_Put(&value, 1, MPI_INT, WRONG_ELSE(rank_count, 1), 0, 1, MPI_INT, window);  // !
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

static MPI_Group only(int rank) {
    MPI_Group all, one;
    MPI_Comm_group(WORLD, &all);
    MPI_Group_incl(all, 1, &rank, &one);
    MPI_Group_free(&all);
    return one;
}

static void start_without_post(void) {
    MPI_Win window = made();
    MPI_Group group = only(1 - my_rank % 2);
    if (my_rank == 1 && right) MPI_Win_post(group, 0, window);
    if (my_rank == 0) {
        MPI_Win_start(group, 0, window), put(1, window), MPI_Win_complete(window);  // !
    }
    if (my_rank == 1 && right) MPI_Win_wait(window);
    MPI_Group_free(&group);
    MPI_Win_free(&window);
}

static void post_without_start(void) {
    MPI_Win window = made();
    MPI_Group group = only(1 - my_rank % 2);
    if (my_rank == 0 && right) {
        MPI_Win_start(group, 0, window);
        MPI_Win_complete(window);
    }
    if (my_rank == 1) {
        MPI_Win_post(group, 0, window);
        MPI_Win_wait(window);  // !
    }
    MPI_Group_free(&group);
    MPI_Win_free(&window);
}

static void complete_without_start(void) {
    MPI_Win window = made();
    if (my_rank == 0 && !right) MPI_Win_complete(window);  // !
    MPI_Win_free(&window);
}

// Each has the one's memory, and waits for the other's.
static void locks_cross(void) {
    MPI_Win window = made();
    int mine = WRONG_ELSE(my_rank % 2, 0), next = 1 - mine;
    if (my_rank < 2) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, mine, 0, window);
        put(mine, window);
        MPI_Win_flush(mine, window);
        if (!right) MPI_Sendrecv(&value, 1, MPI_INT, 1 - my_rank, 7, &other, 1, MPI_INT,
                                 1 - my_rank, 7, WORLD, NO_STATUS);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window), MPI_Win_unlock(next, window);  // !
        MPI_Win_unlock(mine, window);
    }
    MPI_Win_free(&window);
}

static void window_without_one(void) {
    MPI_Win window = MPI_WIN_NULL;
    if (right || my_rank != 1)
        MPI_Win_create(values, sizeof values, 1, MPI_INFO_NULL, WORLD, &window);  // !
    if (window != MPI_WIN_NULL) MPI_Win_free(&window);
}

static void two_put_at_once(void) {
    MPI_Win window = made();
    MPI_Win_fence(0, window);
    if (my_rank == 0 || (my_rank == 2 && !right)) put(1, window);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

static void got_and_read_too_soon(void) {
    MPI_Win window = made();
    MPI_Win_fence(0, window);
    if (my_rank == 0) MPI_Get(&other, 1, MPI_INT, 1, 0, 1, MPI_INT, window);
    if (!right) value = other;
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

static void posted_exscan(void) {
    MPI_Request request;
    MPI_Iexscan(&value, &other, 1, MPI_INT, MPI_SUM, WORLD, &request);
    MPI_Wait(&request, NO_STATUS);
}

static void posted_and_waited_for(void) {
    MPI_Request request;
    bool first = ONE_IS(1, true, false);
    if (first) posted_exscan();
    MPI_Iallreduce(&value, &other, 1, MPI_INT, MPI_SUM, WORLD, &request);  // !
    MPI_Wait(&request, NO_STATUS);
    if (!first) posted_exscan();
}

// ---- handles that are none ----------------------------------------------------------------------

static void no_handle_of_communicator(void) {
    MPI_Allgather(&value, 1, MPI_INT, others, 1, MPI_INT, right ? WORLD : (MPI_Comm)0);  // !
}

static void no_handle_of_type(void) {
    MPI_Bcast(&value, 1, right ? MPI_INT : (MPI_Datatype)0, 0, WORLD);  // !
}

#define MODE(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {
    MODE(other_order),          MODE(bcast_for_reduce),        MODE(gather_for_scatter),
    MODE(no_barrier),           MODE(no_allreduce),            MODE(only_the_root),
    MODE(not_the_root),         MODE(reduce_without_one),      MODE(scan_without_first),
    MODE(posted_without_one),   MODE(posted_other_order),      MODE(posted_and_blocking),
    MODE(posted_and_waited_for),
    MODE(posted_not_completed), MODE(other_communicator),      MODE(communicators_cross),
    MODE(receive_before_barrier), MODE(synchronous_and_bcast), MODE(split_without_one),
    MODE(dup_without_one),      MODE(other_root_of_bcast),     MODE(each_its_own_root),
    MODE(other_root_of_reduce), MODE(other_root_of_gather),    MODE(other_count_of_bcast),
    MODE(other_count_of_allreduce), MODE(other_count_of_alltoall), MODE(other_counts_of_gatherv),
    MODE(other_counts_of_reduce_scatter), MODE(other_operation), MODE(other_operation_of_reduce),
    MODE(other_type_of_bcast),  MODE(other_type_of_allreduce), MODE(other_type_and_size),
    MODE(other_type_of_gather), MODE(other_operation_of_its_own),
    MODE(no_such_root),         MODE(negative_root),           MODE(null_operation),
    MODE(operation_not_for_type), MODE(null_type_of_bcast),    MODE(negative_count_of_bcast),
    MODE(null_communicator_of_barrier), MODE(null_communicator_of_ibarrier), MODE(same_buffer),
    MODE(communicator_not_freed), MODE(type_not_freed),        MODE(window_not_freed),
    MODE(operation_not_freed),  MODE(group_not_freed),         MODE(put_outside_of_epoch),
    MODE(free_without_fence),   MODE(root_goes_on),
    MODE(fence_without_one),    MODE(unlock_without_lock),     MODE(lock_twice),
    MODE(flush_without_lock),   MODE(put_to_nobody),           MODE(start_without_post),
    MODE(post_without_start),   MODE(complete_without_start),  MODE(locks_cross),
    MODE(window_without_one),   MODE(two_put_at_once),         MODE(got_and_read_too_soon),
    MODE(no_handle_of_communicator), MODE(no_handle_of_type),
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
