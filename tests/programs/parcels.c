// MPI ranks of which the first sends the last one messages that it does not look at for a while: until
// then they are on their way. It takes them all, in their order, and says so.
//
// The first one waits until the last one has surely left MPI, which would look at them.

#include "common.h"

enum { PARCELS = 20, WORDS = 500, TAG = 5 };

static volatile int changed;
static int parcel[WORDS];

static __attribute__((noinline)) void sent(void) { step++; }

static void sleep_for(time_t seconds) {
    struct timespec left = {seconds, 0};
    while (nanosleep(&left, &left) != 0) continue;
}

static void send_all(int to) {
    sleep_for(1);
    for (int number = 0; number < PARCELS; number++) {
        for (int word = 0; word < WORDS; word++) parcel[word] = 1000 * number + word;
        MPI_Send(parcel, WORDS, MPI_INT, to, TAG, MPI_COMM_WORLD);
    }
    sent();
}

static void receive_all(void) {
    sleep_for(4);
    for (int number = 0; number < PARCELS; number++) {
        MPI_Recv(parcel, WORDS, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int word = 0; word < WORDS; word++) {
            CHECK(parcel[word] == 1000 * number + word, "parcel %d has %d", number, parcel[word]);
        }
    }
    printf("all parcels came\n");
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
    MPI_Barrier(MPI_COMM_WORLD);
    if (my_rank == 0) send_all(rank_count - 1);
    if (my_rank == rank_count - 1) receive_all();
    MPI_Finalize();
    return 0;
}
