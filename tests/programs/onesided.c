// Puts under a fence, a lock, and a post; says after each step which epochs the layer sees open.

#include <dlfcn.h>

#include "../../crdebug/native/recorder/clock.h"
#include "common.h"

static struct crdebug_clock *times;

static void expect(unsigned open) {
    CHECK(!times || times->open_epochs == open, "%u epochs are open, not %u", times->open_epochs, open);
    step++;
}

static __attribute__((noinline)) void flushed(void) { expect(0); }

/* What is locked is no open epoch, only what was accessed and not flushed. */
static void lock_for_long(MPI_Win win) {
    long value = 300 + my_rank, got = 0;
    int other = 1 - my_rank;
    MPI_Win_lock_all(0, win);
    expect(0);
    MPI_Put(&value, 1, MPI_LONG, other, 0, 1, MPI_LONG, win);
    MPI_Get(&got, 1, MPI_LONG, my_rank, 0, 1, MPI_LONG, win);
    MPI_Put(&value, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, win);
    expect(1);
    MPI_Win_flush(other, win);
    expect(1);
    MPI_Win_flush_local(my_rank, win);
    expect(1);
    MPI_Win_flush(my_rank, win);
    expect(0);
    MPI_Put(&value, 1, MPI_LONG, other, 0, 1, MPI_LONG, win);
    MPI_Put(&value, 1, MPI_LONG, my_rank, 0, 1, MPI_LONG, win);
    expect(1);
    MPI_Win_flush_all(win);
    flushed();
    MPI_Put(&value, 1, MPI_LONG, other, 0, 1, MPI_LONG, win);
    expect(1);
    MPI_Win_unlock_all(win);
    expect(0);
}

int main(int argc, char **argv) {
    long mine = -1;
    MPI_Win win;
    MPI_Group all, others;
    start_mpi(&argc, &argv);
    CHECK(rank_count == 2, "wanted: two ranks");
    times = dlsym(RTLD_DEFAULT, "crdebug_clock");
    int other = 1 - my_rank;
    long value = 100 + my_rank;
    MPI_Win_create(&mine, sizeof mine, sizeof mine, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
    expect(0);
    MPI_Put(&value, 1, MPI_LONG, other, 0, 1, MPI_LONG, win);
    expect(1);
    MPI_Win_fence(0, win);
    expect(0);
    MPI_Win_fence(0, win);
    CHECK(mine == 100 + other, "%ld was put", mine);
    MPI_Barrier(MPI_COMM_WORLD);
    value = 200 + my_rank;
    MPI_Win_lock(MPI_LOCK_SHARED, other, 0, win);
    expect(0);
    MPI_Put(&value, 1, MPI_LONG, other, 0, 1, MPI_LONG, win);
    expect(1);
    MPI_Win_unlock(other, win);
    expect(0);
    lock_for_long(win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &other, &others);
    MPI_Win_post(others, 0, win);
    expect(1);
    MPI_Win_start(others, 0, win);
    expect(2);
    MPI_Win_complete(win);
    expect(1);
    MPI_Win_wait(win);
    expect(0);
    MPI_Group_free(&others);
    MPI_Group_free(&all);
    MPI_Win_free(&win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (my_rank == 0) {
        puts("done");
    }
    MPI_Finalize();
    return 0;
}
