// Messages that go wrong, each mode after an error that collections of wrong MPI programs have; and
// the same without the error.
//
// --mode NAME     see `modes`; it takes 3 ranks
// --right 1       the right one of the two
//
// `// !` marks the calls that do not fit: the lines that crdebug is to name.

#include "common.h"

enum { LARGE = 1 << 22 };
#define WORLD MPI_COMM_WORLD
#define NO_STATUS MPI_STATUS_IGNORE
#define WRONG_ELSE(wrong, fine) (right ? (fine) : (wrong))

static const char *mode = "";
static long right;
static int value, other, values[4];
static char *large, *large2;

// ---- who waits for whom -------------------------------------------------------------------------

static void receive_first(void) {
    if (my_rank > 1) return;
    int peer = 1 - my_rank;
    if (right && my_rank == 0) MPI_Send(&value, 1, MPI_INT, peer, 7, WORLD);
    MPI_Recv(&other, 1, MPI_INT, peer, 7, WORLD, NO_STATUS);  // !
    if (!right || my_rank == 1) MPI_Send(&value, 1, MPI_INT, peer, 7, WORLD);
}

static void send_first_large(void) {
    if (my_rank > 1) return;
    int peer = 1 - my_rank;
    MPI_Request request = MPI_REQUEST_NULL;
    if (right) MPI_Irecv(large2, LARGE, MPI_CHAR, peer, 7, WORLD, &request);
    MPI_Send(large, LARGE, MPI_CHAR, peer, 7, WORLD);  // !
    if (right) MPI_Wait(&request, NO_STATUS);
    else MPI_Recv(large2, LARGE, MPI_CHAR, peer, 7, WORLD, NO_STATUS);
}

static void send_first_small(void) {
    if (my_rank > 1) return;
    int peer = 1 - my_rank;
    if (right && my_rank == 0) MPI_Recv(&other, 1, MPI_INT, peer, 7, WORLD, NO_STATUS);
    MPI_Send(&value, 1, MPI_INT, peer, 7, WORLD);  // !
    if (!right || my_rank == 1) MPI_Recv(&other, 1, MPI_INT, peer, 7, WORLD, NO_STATUS);
}

static void synchronous_first(void) {
    if (my_rank > 1) return;
    int peer = 1 - my_rank;
    if (right && my_rank == 0) MPI_Recv(&other, 1, MPI_INT, peer, 7, WORLD, NO_STATUS);
    MPI_Ssend(&value, 1, MPI_INT, peer, 7, WORLD);  // !
    if (!right || my_rank == 1) MPI_Recv(&other, 1, MPI_INT, peer, 7, WORLD, NO_STATUS);
}

static void ring_of_receives(void) {
    int next = (my_rank + 1) % rank_count, before = (my_rank + rank_count - 1) % rank_count;
    if (right && my_rank == 0) MPI_Send(&value, 1, MPI_INT, next, 7, WORLD);
    MPI_Recv(&other, 1, MPI_INT, before, 7, WORLD, NO_STATUS);  // !
    if (!right || my_rank > 0) MPI_Send(&value, 1, MPI_INT, next, 7, WORLD);
}

static void to_itself(void) {
    if (my_rank != 0) return;
    MPI_Request request = MPI_REQUEST_NULL;
    if (right) MPI_Irecv(&other, 1, MPI_INT, 0, 7, WORLD, &request);
    MPI_Ssend(&value, 1, MPI_INT, 0, 7, WORLD);  // !
    MPI_Wait(&request, NO_STATUS);
}

static void from_itself(void) {
    if (my_rank != 0) return;
    MPI_Request request = MPI_REQUEST_NULL;
    if (right) MPI_Isend(&value, 1, MPI_INT, 0, 7, WORLD, &request);
    MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);  // !
    MPI_Wait(&request, NO_STATUS);
}

static void wrong_tag(void) {
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, WRONG_ELSE(8, 7), WORLD);   // !
    if (my_rank == 1) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);       // !
}

static void wrong_communicator(void) {
    MPI_Comm twin;
    MPI_Comm_dup(WORLD, &twin);
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, right ? WORLD : twin);  // !
    if (my_rank == 1) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);      // !
    MPI_Comm_free(&twin);
}

static void wrong_source(void) {
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);                             // !
    if (my_rank == 1) MPI_Recv(&other, 1, MPI_INT, WRONG_ELSE(2, 0), 7, WORLD, NO_STATUS);   // !
}

static void no_send(void) {
    if (my_rank == 0 && right) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank == 1) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);  // !
}

static void no_receive(void) {
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);  // !
    if (my_rank == 1 && right) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);
}

static void no_receive_large(void) {
    if (my_rank == 0) MPI_Send(large, LARGE, MPI_CHAR, 1, 7, WORLD);  // !
    if (my_rank == 1 && right) MPI_Recv(large, LARGE, MPI_CHAR, 0, 7, WORLD, NO_STATUS);
}

static void one_too_few(void) {
    for (int i = 0; my_rank == 0 && i < WRONG_ELSE(2, 3); i++)
        MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    for (int i = 0; my_rank == 1 && i < 3; i++)
        MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);  // !
}

static void wrong_neighbour(void) {
    int next = (my_rank + 1) % rank_count, before = (my_rank + rank_count - 1) % rank_count;
    MPI_Sendrecv(&value, 1, MPI_INT, next, 7, &other, 1, MPI_INT,  // !
                 WRONG_ELSE(next, before), 7, WORLD, NO_STATUS);
}

// ---- wildcards ----------------------------------------------------------------------------------

// The open receive takes the message that the second one is for.
static void wildcard_takes_it(void) {
    if (my_rank == 0) {
        MPI_Recv(&other, 1, MPI_INT, WRONG_ELSE(MPI_ANY_SOURCE, 1), 7, WORLD, NO_STATUS);
        MPI_Send(&value, 1, MPI_INT, 2, 9, WORLD);
        MPI_Recv(&other, 1, MPI_INT, WRONG_ELSE(1, 2), 7, WORLD, NO_STATUS);  // !
    }
    if (my_rank == 1) MPI_Send(&value, 1, MPI_INT, 0, 7, WORLD);
    if (my_rank == 2) {
        MPI_Recv(&other, 1, MPI_INT, 0, 9, WORLD, NO_STATUS);
        MPI_Send(&value, 1, MPI_INT, 0, 7, WORLD);  // !
    }
}

static void any_tag_takes_it(void) {
    if (my_rank == 0) {
        MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
        MPI_Send(&value, 1, MPI_INT, 1, 8, WORLD);  // !
    }
    if (my_rank == 1) {
        MPI_Recv(&other, 1, MPI_INT, 0, WRONG_ELSE(MPI_ANY_TAG, 7), WORLD, NO_STATUS);
        MPI_Recv(&other, 1, MPI_INT, 0, WRONG_ELSE(7, 8), WORLD, NO_STATUS);  // !
    }
}

static void nobody_sends_to_any(void) {
    if (my_rank == 0) MPI_Recv(&other, 1, MPI_INT, MPI_ANY_SOURCE, 7, WORLD, NO_STATUS);  // !
    if (my_rank == 1 && right) MPI_Send(&value, 1, MPI_INT, 0, 7, WORLD);
}

// ---- probes -------------------------------------------------------------------------------------

static void probe_of_nothing(void) {
    if (my_rank == 0 && right) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank == 1) {
        MPI_Probe(0, 7, WORLD, NO_STATUS);  // !
        MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);
    }
}

static void probed_and_left(void) {
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);  // !
    if (my_rank == 1) {
        MPI_Probe(0, 7, WORLD, NO_STATUS);
        if (right) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);
    }
}

static void taken_and_left(void) {
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank == 1) {
        MPI_Message message;
        MPI_Mprobe(0, 7, WORLD, &message, NO_STATUS);  // !
        if (right) MPI_Mrecv(&other, 1, MPI_INT, &message, NO_STATUS);
    }
}

static void both_probe(void) {
    if (my_rank > 1) return;
    int peer = 1 - my_rank;
    MPI_Request request = MPI_REQUEST_NULL;
    if (right) MPI_Isend(&value, 1, MPI_INT, peer, 7, WORLD, &request);
    MPI_Probe(peer, 7, WORLD, NO_STATUS);  // !
    if (!right) MPI_Send(&value, 1, MPI_INT, peer, 7, WORLD);
    MPI_Recv(&other, 1, MPI_INT, peer, 7, WORLD, NO_STATUS);
    MPI_Wait(&request, NO_STATUS);
}

// ---- what the MPI refuses -----------------------------------------------------------------------

static void no_such_rank(void) {
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, WRONG_ELSE(rank_count, 1), 7, WORLD);  // !
    if (my_rank == 1) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);
}

static void negative_rank(void) {
    if (my_rank == 0) MPI_Recv(&other, 1, MPI_INT, WRONG_ELSE(-77, 1), 7, WORLD, NO_STATUS);  // !
    if (my_rank == 1) MPI_Send(&value, 1, MPI_INT, 0, 7, WORLD);
}

static void negative_tag(void) {
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, WRONG_ELSE(-77, 7), WORLD);  // !
    if (my_rank == 1) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);
}

static void negative_count(void) {
    if (my_rank == 0) MPI_Send(&value, WRONG_ELSE(-1, 1), MPI_INT, 1, 7, WORLD);  // !
    if (my_rank == 1) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);
}

static void null_communicator(void) {
    MPI_Comm comm = right ? WORLD : MPI_COMM_NULL;
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, comm);  // !
    if (my_rank == 1) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);
}

static void null_type(void) {
    MPI_Datatype type = right ? MPI_INT : MPI_DATATYPE_NULL;
    if (my_rank == 0) MPI_Send(&value, 1, type, 1, 7, WORLD);  // !
    if (my_rank == 1) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);
}

static void type_not_committed(void) {
    MPI_Datatype pair;
    MPI_Type_contiguous(2, MPI_INT, &pair);
    if (right) MPI_Type_commit(&pair);
    if (my_rank == 0) MPI_Send(values, 1, pair, 1, 7, WORLD);  // !
    if (my_rank == 1) MPI_Recv(values, 2, MPI_INT, 0, 7, WORLD, NO_STATUS);
    MPI_Type_free(&pair);
}

static void type_of_nothing(void) {
    MPI_Datatype type;
    MPI_Type_contiguous(WRONG_ELSE(-1, 2), MPI_INT, &type);  // !
    MPI_Type_free(&type);
}

static void posted_to_nobody(void) {
    MPI_Request request;
    if (my_rank == 0) {
        MPI_Isend(&value, 1, MPI_INT, WRONG_ELSE(rank_count, 1), 7, WORLD, &request);  // !
        MPI_Wait(&request, NO_STATUS);
    }
    if (my_rank == 1) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);
}

static void freed_communicator(void) {
    MPI_Comm twin;
    MPI_Comm_dup(WORLD, &twin);
    if (!right) MPI_Comm_free(&twin);
    MPI_Barrier(twin);  // !
    if (right) MPI_Comm_free(&twin);
}

static void too_long(void) {
    if (my_rank == 0) MPI_Send(values, WRONG_ELSE(4, 2), MPI_INT, 1, 7, WORLD);
    if (my_rank == 1) MPI_Recv(values, 2, MPI_INT, 0, 7, WORLD, NO_STATUS);  // !
}

static void too_long_posted(void) {
    MPI_Request request;
    if (my_rank == 0) MPI_Send(values, WRONG_ELSE(4, 2), MPI_INT, 1, 7, WORLD);
    if (my_rank == 1) {
        MPI_Irecv(values, 2, MPI_INT, 0, 7, WORLD, &request);
        MPI_Wait(&request, NO_STATUS);  // !
    }
}

static void no_buffer_for_bsend(void) {
    static char room[1024 + MPI_BSEND_OVERHEAD];
    char *end;
    int size;
    if (my_rank == 0 && right) MPI_Buffer_attach(room, sizeof room);
    if (my_rank == 0) MPI_Bsend(values, 4, MPI_INT, 1, 7, WORLD);  // !
    if (my_rank == 0 && right) MPI_Buffer_detach(&end, &size);
    if (my_rank == 1) MPI_Recv(values, 4, MPI_INT, 0, 7, WORLD, NO_STATUS);
}

// ---- requests -----------------------------------------------------------------------------------

static void receive_not_completed(void) {
    MPI_Request request;
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank == 1) {
        MPI_Irecv(&other, 1, MPI_INT, 0, 7, WORLD, &request);  // !
        if (right) MPI_Wait(&request, NO_STATUS);
    }
}

static void send_not_completed(void) {
    MPI_Request request;
    if (my_rank == 0) {
        MPI_Isend(&value, 1, MPI_INT, 1, 7, WORLD, &request);  // !
        if (right) MPI_Wait(&request, NO_STATUS);
    }
    if (my_rank == 1) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);
}

static void request_overwritten(void) {
    MPI_Request requests[2];
    for (int i = 0; my_rank == 0 && i < 2; i++) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank != 1) return;
    for (int i = 0; i < 2; i++)
        MPI_Irecv(&values[i], 1, MPI_INT, 0, 7, WORLD, &requests[right ? i : 0]);  // !
    MPI_Waitall(WRONG_ELSE(1, 2), requests, MPI_STATUSES_IGNORE);
}

static void wait_for_nothing(void) {
    MPI_Request request;
    if (my_rank == 0 && right) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank == 1) {
        MPI_Irecv(&other, 1, MPI_INT, 0, 7, WORLD, &request);  // !
        MPI_Wait(&request, NO_STATUS);                         // !
    }
}

static void one_of_all_never_comes(void) {
    MPI_Request requests[2];
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank == 0 && right) MPI_Send(&value, 1, MPI_INT, 1, 8, WORLD);
    if (my_rank == 1) {
        for (int i = 0; i < 2; i++)
            MPI_Irecv(&values[i], 1, MPI_INT, 0, 7 + i, WORLD, &requests[i]);  // !
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);                         // !
    }
}

static void none_of_any_comes(void) {
    MPI_Request requests[2];
    int index;
    if (my_rank != 1 && right) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank == 1) {
        for (int i = 0; i < 2; i++)
            MPI_Irecv(&values[i], 1, MPI_INT, 2 * i, 7, WORLD, &requests[i]);  // !
        for (int i = 0; i < 2; i++) MPI_Waitany(2, requests, &index, NO_STATUS);  // !
    }
}

static void waits_cross(void) {
    if (my_rank > 1) return;
    int peer = 1 - my_rank;
    MPI_Request request;
    MPI_Irecv(&other, 1, MPI_INT, peer, 7, WORLD, &request);  // !
    if (right) MPI_Send(&value, 1, MPI_INT, peer, 7, WORLD);
    MPI_Wait(&request, NO_STATUS);  // !
    if (!right) MPI_Send(&value, 1, MPI_INT, peer, 7, WORLD);
}

static void tests_for_ever(void) {
    MPI_Request request;
    int flag = 0;
    if (my_rank == 0 && right) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank == 1) {
        MPI_Irecv(&other, 1, MPI_INT, 0, 7, WORLD, &request);  // !
        while (!flag) MPI_Test(&request, &flag, NO_STATUS);    // !
    }
}

static void started_never(void) {
    MPI_Request request;
    if (my_rank == 0) {
        MPI_Send_init(&value, 1, MPI_INT, 1, 7, WORLD, &request);
        if (right) MPI_Start(&request);
        MPI_Wait(&request, NO_STATUS);
        MPI_Request_free(&request);
    }
    if (my_rank == 1) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);  // !
}

static void started_not_completed(void) {
    MPI_Request request;
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank == 1) {
        MPI_Recv_init(&other, 1, MPI_INT, 0, 7, WORLD, &request);
        MPI_Start(&request);  // !
        if (right) MPI_Wait(&request, NO_STATUS);
        if (right) MPI_Request_free(&request);
    }
}

static void persistent_not_freed(void) {
    MPI_Request request;
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank == 1) {
        MPI_Recv_init(&other, 1, MPI_INT, 0, 7, WORLD, &request);  // !
        MPI_Start(&request);
        MPI_Wait(&request, NO_STATUS);
        if (right) MPI_Request_free(&request);
    }
}

static void freed_while_active(void) {
    MPI_Request request;
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank == 1) {
        MPI_Recv_init(&other, 1, MPI_INT, 0, 7, WORLD, &request);
        MPI_Start(&request);  // !
        if (right) MPI_Wait(&request, NO_STATUS);
        MPI_Request_free(&request);  // !
    }
}

static void all_started_one_missing(void) {
    MPI_Request requests[2];
    if (my_rank == 0)
        for (int i = 0; i < WRONG_ELSE(1, 2); i++) MPI_Send(&value, 1, MPI_INT, 1, 7 + i, WORLD);
    if (my_rank == 1) {
        for (int i = 0; i < 2; i++)
            MPI_Recv_init(&values[i], 1, MPI_INT, 0, 7 + i, WORLD, &requests[i]);
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);  // !
        for (int i = 0; i < 2; i++) MPI_Request_free(&requests[i]);
    }
}

// ---- messages in a race -------------------------------------------------------------------------

// In the right one rank 2 sends when it has been told that the first message is there.
static void two_senders(void) {
    if (my_rank == 0) {
        MPI_Recv(&other, 1, MPI_INT, MPI_ANY_SOURCE, 7, WORLD, NO_STATUS);  // !
        if (right) MPI_Send(&value, 1, MPI_INT, 2, 8, WORLD);
        MPI_Recv(&other, 1, MPI_INT, MPI_ANY_SOURCE, 7, WORLD, NO_STATUS);
    } else {
        if (right && my_rank == 2) MPI_Recv(&other, 1, MPI_INT, 0, 8, WORLD, NO_STATUS);
        MPI_Send(&value, 1, MPI_INT, 0, 7, WORLD);  // !
    }
}

static void probe_of_two_senders(void) {
    MPI_Status status;
    if (my_rank == 0)
        for (int i = 0; i < 2; i++) {
            MPI_Probe(WRONG_ELSE(MPI_ANY_SOURCE, 2 - i), 7, WORLD, &status);  // !
            MPI_Recv(&other, 1, MPI_INT, status.MPI_SOURCE, 7, WORLD, NO_STATUS);
        }
    else MPI_Send(&value, 1, MPI_INT, 0, 7, WORLD);  // !
}

static void posted_to_two_senders(void) {
    MPI_Request requests[2];
    if (my_rank == 0) {
        for (int i = 0; i < 2; i++)
            MPI_Irecv(&values[i], 1, MPI_INT, MPI_ANY_SOURCE, WRONG_ELSE(7, 8 - i), WORLD,  // !
                      &requests[i]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    } else {
        MPI_Send(&value, 1, MPI_INT, 0, WRONG_ELSE(7, 6 + my_rank), WORLD);  // !
    }
}

// ---- what no record shows -----------------------------------------------------------------------

static void written_while_sent(void) {
    MPI_Request request;
    if (my_rank == 0) {
        MPI_Isend(&value, 1, MPI_INT, 1, 7, WORLD, &request);
        if (!right) value++;
        MPI_Wait(&request, NO_STATUS);
    }
    if (my_rank == 1) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);
}

static void read_too_soon(void) {
    MPI_Request request;
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank == 1) {
        MPI_Irecv(&other, 1, MPI_INT, 0, 7, WORLD, &request);
        if (!right) values[0] = other;
        MPI_Wait(&request, NO_STATUS);
    }
}

static void no_finalize(void) {
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank == 1) MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);  // !
    if (my_rank == 1 && !right) exit(0);
}

// Nobody sends: to wait for a message first would be to wait for ever.
static void negative_count_from_anyone(void) {
    if (my_rank == 0 && right) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    int count = WRONG_ELSE(-1, 1);
    if (my_rank == 1) MPI_Recv(&other, count, MPI_INT, MPI_ANY_SOURCE, 7, WORLD, NO_STATUS);  // !
}

static void negative_tag_from_anyone(void) {
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    int tag = WRONG_ELSE(-7, 7);
    if (my_rank == 1) MPI_Recv(&other, 1, MPI_INT, MPI_ANY_SOURCE, tag, WORLD, NO_STATUS);  // !
}

static void negative_tag_of_probe(void) {
    MPI_Status status;
    if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 7, WORLD);
    if (my_rank != 1) return;
    MPI_Probe(MPI_ANY_SOURCE, WRONG_ELSE(-7, 7), WORLD, &status);  // !
    MPI_Recv(&other, 1, MPI_INT, 0, 7, WORLD, NO_STATUS);
}

#define MODE(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {
    MODE(receive_first),     MODE(send_first_large),      MODE(synchronous_first),
    MODE(send_first_small),  MODE(freed_while_active),
    MODE(ring_of_receives),  MODE(to_itself),             MODE(from_itself),
    MODE(wrong_tag),         MODE(wrong_communicator),    MODE(wrong_source),
    MODE(no_send),           MODE(no_receive),            MODE(no_receive_large),
    MODE(one_too_few),       MODE(wrong_neighbour),       MODE(wildcard_takes_it),
    MODE(any_tag_takes_it),  MODE(nobody_sends_to_any),   MODE(probe_of_nothing),
    MODE(probed_and_left),   MODE(taken_and_left),        MODE(both_probe),
    MODE(no_such_rank),      MODE(negative_rank),         MODE(negative_tag),
    MODE(negative_count),    MODE(null_communicator),     MODE(null_type),
    MODE(type_not_committed), MODE(type_of_nothing), MODE(posted_to_nobody),     MODE(freed_communicator),
    MODE(too_long),          MODE(too_long_posted),       MODE(no_buffer_for_bsend),
    MODE(receive_not_completed), MODE(send_not_completed), MODE(request_overwritten),
    MODE(wait_for_nothing),  MODE(one_of_all_never_comes), MODE(none_of_any_comes),
    MODE(waits_cross),       MODE(tests_for_ever),        MODE(started_never),
    MODE(started_not_completed), MODE(persistent_not_freed), MODE(all_started_one_missing),
    MODE(two_senders), MODE(probe_of_two_senders), MODE(posted_to_two_senders),
    MODE(written_while_sent),    MODE(read_too_soon),
    MODE(no_finalize),
    MODE(negative_count_from_anyone), MODE(negative_tag_from_anyone), MODE(negative_tag_of_probe),
};

int main(int argc, char **argv) {
    parse_options(
        argc, argv,
        (struct option_spec[]){
            {"--mode", NULL, &mode}, {"--right", &right, NULL}, {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    large = calloc(1, LARGE), large2 = calloc(1, LARGE);
    CHECK(large != NULL && large2 != NULL && rank_count == 3, "it takes 3 ranks");
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(modes[i].name, mode) == 0) modes[i].run();
    MPI_Finalize();
    return 0;
}
