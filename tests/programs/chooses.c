// Receives and probes that take whichever message is first; what came of it, rank 0 prints.
//
// --modes NAMES   with commas between them, or "all"; it takes 3 ranks
//
// In each mode ranks 1 and 2 send one message each, the second one later, and rank 0 says whose came
// first. The collectives between the modes keep their messages apart.

#include "common.h"

#define WORLD MPI_COMM_WORLD
enum { TAG = 7, LATER = 20000, LARGE = 1 << 20 };  // in microseconds; in bytes

static int first, sent;
static char *large;
static MPI_Comm few, copy, across;

static int is_sender(void) {
    if (my_rank == 0) return 0;
    if (my_rank == 2) usleep(LATER);
    sent = my_rank;
    return 1;
}

static void send_on(MPI_Comm comm) { MPI_Send(&sent, 1, MPI_INT, 0, TAG, comm); }

// The other one's message, whosever it is.
static void take_other(MPI_Comm comm) {
    int other;
    MPI_Recv(&other, 1, MPI_INT, first == 1 ? 2 : 1, TAG, comm, MPI_STATUS_IGNORE);
    if (first + other != 3) MPI_Abort(WORLD, 3);
}

static void receive(void) {
    if (is_sender()) return send_on(WORLD);
    MPI_Recv(&first, 1, MPI_INT, MPI_ANY_SOURCE, TAG, WORLD, MPI_STATUS_IGNORE);
    take_other(WORLD);
}

static void any_tag(void) {
    if (is_sender()) return send_on(WORLD);
    MPI_Status status;
    MPI_Recv(&first, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, WORLD, &status);
    if (status.MPI_SOURCE != first || status.MPI_TAG != TAG) MPI_Abort(WORLD, 4);
    take_other(WORLD);
}

static void posted(void) {
    if (is_sender()) return send_on(WORLD);
    MPI_Request request;
    MPI_Irecv(&first, 1, MPI_INT, MPI_ANY_SOURCE, TAG, WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    take_other(WORLD);
}

static void tested(void) {
    if (is_sender()) return send_on(WORLD);
    MPI_Request request;
    int done = 0;
    MPI_Irecv(&first, 1, MPI_INT, MPI_ANY_SOURCE, TAG, WORLD, &request);
    while (!done) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    take_other(WORLD);
}

static void posted_twice(void) {
    if (is_sender()) return send_on(WORLD);
    MPI_Request requests[2];
    int second;
    MPI_Irecv(&first, 1, MPI_INT, MPI_ANY_SOURCE, TAG, WORLD, &requests[0]);
    MPI_Irecv(&second, 1, MPI_INT, MPI_ANY_SOURCE, TAG, WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    if (first + second != 3) MPI_Abort(WORLD, 3);
}

static void exchanged(void) {
    if (is_sender()) return send_on(WORLD);
    int own = 0, back;
    MPI_Sendrecv(&own, 1, MPI_INT, 0, TAG + 1, &first, 1, MPI_INT, MPI_ANY_SOURCE, TAG, WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Recv(&back, 1, MPI_INT, 0, TAG + 1, WORLD, MPI_STATUS_IGNORE);
    take_other(WORLD);
}

static void replaced(void) {
    if (is_sender()) return send_on(WORLD);
    int back;
    first = 0;
    MPI_Sendrecv_replace(&first, 1, MPI_INT, 0, TAG + 1, MPI_ANY_SOURCE, TAG, WORLD,
                         MPI_STATUS_IGNORE);
    MPI_Recv(&back, 1, MPI_INT, 0, TAG + 1, WORLD, MPI_STATUS_IGNORE);
    take_other(WORLD);
}

static void probed(void) {
    if (is_sender()) return send_on(WORLD);
    MPI_Status status;
    MPI_Probe(MPI_ANY_SOURCE, TAG, WORLD, &status);
    MPI_Recv(&first, 1, MPI_INT, status.MPI_SOURCE, TAG, WORLD, MPI_STATUS_IGNORE);
    take_other(WORLD);
}

static void looked(void) {
    if (is_sender()) return send_on(WORLD);
    MPI_Status status;
    int there = 0;
    while (!there) MPI_Iprobe(MPI_ANY_SOURCE, TAG, WORLD, &there, &status);
    MPI_Recv(&first, 1, MPI_INT, status.MPI_SOURCE, TAG, WORLD, MPI_STATUS_IGNORE);
    take_other(WORLD);
}

static void taken(void) {
    if (is_sender()) return send_on(WORLD);
    MPI_Message message;
    MPI_Mprobe(MPI_ANY_SOURCE, TAG, WORLD, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(&first, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
    take_other(WORLD);
}

static void taken_if_there(void) {
    if (is_sender()) return send_on(WORLD);
    MPI_Message message;
    int there = 0;
    while (!there)
        MPI_Improbe(MPI_ANY_SOURCE, TAG, WORLD, &there, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(&first, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
    take_other(WORLD);
}

static void persistent(void) {
    if (is_sender()) return send_on(WORLD);
    MPI_Request request;
    MPI_Recv_init(&first, 1, MPI_INT, MPI_ANY_SOURCE, TAG, WORLD, &request);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
    take_other(WORLD);
}

static void persistent_twice(void) {
    if (is_sender()) return send_on(WORLD);
    MPI_Request request;
    int numbers[2];
    MPI_Recv_init(&first, 1, MPI_INT, MPI_ANY_SOURCE, TAG, WORLD, &request);
    for (int i = 0; i < 2; i++) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        numbers[i] = first;
    }
    first = numbers[0];
    MPI_Request_free(&request);
    if (first + numbers[1] != 3) MPI_Abort(WORLD, 3);
}

static void copied(void) {
    if (is_sender()) return send_on(copy);
    MPI_Recv(&first, 1, MPI_INT, MPI_ANY_SOURCE, TAG, copy, MPI_STATUS_IGNORE);
    take_other(copy);
}

// Another number for each rank: 2, 1, 0.
static void reversed(void) {
    MPI_Status status;
    if (is_sender()) {
        MPI_Send(&sent, 1, MPI_INT, 2, TAG, few);
        return;
    }
    MPI_Recv(&first, 1, MPI_INT, MPI_ANY_SOURCE, TAG, few, &status);
    if (status.MPI_SOURCE != 2 - first) MPI_Abort(WORLD, 4);
    MPI_Recv(&sent, 1, MPI_INT, first == 1 ? 0 : 1, TAG, few, MPI_STATUS_IGNORE);
}

static void of_other_group(void) {
    if (is_sender()) return send_on(across);
    int other;
    MPI_Status status;
    MPI_Recv(&first, 1, MPI_INT, MPI_ANY_SOURCE, TAG, across, &status);
    if (status.MPI_SOURCE != first - 1) MPI_Abort(WORLD, 4);
    MPI_Recv(&other, 1, MPI_INT, 2 - first, TAG, across, MPI_STATUS_IGNORE);
}

static void synchronous(void) {
    if (is_sender()) {
        MPI_Ssend(&sent, 1, MPI_INT, 0, TAG, WORLD);
        return;
    }
    MPI_Recv(&first, 1, MPI_INT, MPI_ANY_SOURCE, TAG, WORLD, MPI_STATUS_IGNORE);
    take_other(WORLD);
}

static void waits_for_its_receive(void) {
    if (is_sender()) {
        large[0] = (char)sent;
        MPI_Send(large, LARGE, MPI_CHAR, 0, TAG, WORLD);
        return;
    }
    MPI_Recv(large, LARGE, MPI_CHAR, MPI_ANY_SOURCE, TAG, WORLD, MPI_STATUS_IGNORE);
    first = large[0];
    MPI_Recv(large, LARGE, MPI_CHAR, 3 - first, TAG, WORLD, MPI_STATUS_IGNORE);
}

// The answer to the first one is what the second one works with.
static void served(void) {
    int answer;
    if (is_sender()) {
        send_on(WORLD);
        MPI_Recv(&answer, 1, MPI_INT, 0, TAG, WORLD, MPI_STATUS_IGNORE);
        return;
    }
    for (int i = 0; i < 2; i++) {
        MPI_Status status;
        MPI_Recv(&answer, 1, MPI_INT, MPI_ANY_SOURCE, TAG, WORLD, &status);
        if (i == 0) first = answer;
        MPI_Send(&i, 1, MPI_INT, status.MPI_SOURCE, TAG, WORLD);
    }
}

// One of two receives takes what the other one does not.
static void one_is_open(void) {
    if (is_sender()) return send_on(WORLD);
    MPI_Request requests[2];
    int index;
    MPI_Irecv(&first, 1, MPI_INT, MPI_ANY_SOURCE, TAG, WORLD, &requests[0]);
    MPI_Irecv(&sent, 1, MPI_INT, MPI_ANY_SOURCE, TAG, WORLD, &requests[1]);
    MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
    MPI_Wait(&requests[1 - index], MPI_STATUS_IGNORE);
    if (first + sent != 3) MPI_Abort(WORLD, 3);
}

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {
    {"receive", receive},
    {"posted", posted},
    {"looked", looked},
    {"any_tag", any_tag},
    {"tested", tested},
    {"posted_twice", posted_twice},
    {"exchanged", exchanged},
    {"replaced", replaced},
    {"probed", probed},
    {"taken", taken},
    {"taken_if_there", taken_if_there},
    {"persistent", persistent},
    {"persistent_twice", persistent_twice},
    {"copied", copied},
    {"reversed", reversed},
    {"of_other_group", of_other_group},
    {"synchronous", synchronous},
    {"waits_for_its_receive", waits_for_its_receive},
    {"served", served},
    {"one_is_open", one_is_open},
};

static int is_wanted(const char *names, const char *name) {
    size_t length = strlen(name);
    for (const char *at = names; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, length) && (at[length] == ',' || at[length] == 0)) return 1;
    return !strcmp(names, "all");
}

int main(int argc, char **argv) {
    const char *names = "all";
    for (int i = 1; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], "--modes")) names = argv[i + 1];
    start_mpi(&argc, &argv);
    large = calloc(1, LARGE);
    MPI_Comm own;
    MPI_Comm_dup(WORLD, &copy);
    MPI_Comm_split(WORLD, 0, -my_rank, &few);
    MPI_Comm_split(WORLD, my_rank > 0, my_rank, &own);
    MPI_Intercomm_create(own, 0, WORLD, my_rank > 0 ? 0 : 1, 9, &across);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (!is_wanted(names, modes[i].name)) continue;
        MPI_Barrier(WORLD);
        modes[i].run();
        if (my_rank == 0) printf("%s: %d\n", modes[i].name, first), fflush(stdout);
    }
    MPI_Comm_free(&own);
    MPI_Comm_free(&across);
    MPI_Comm_free(&few);
    MPI_Comm_free(&copy);
    free(large);
    MPI_Finalize();
    return 0;
}
