/* The starter's list of the job's ranks: they make themselves known, each before its main. */
#define _GNU_SOURCE 1
#include "crdebug.h"
#include "places.h"
#include "starter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_RANKS 65536

struct rank {
    int pid; /* in this namespace; 0: not registered */
    uint32_t mpi;
};

/* The ranks with the PIDs of this namespace. MPIR_proctable starts with the same ones; crdebug puts
 * the PIDs outside there, where debuggers are (crdebug/acquire/mpir.py). */
struct rank *crdebug_ranks;
static int ranks_size, ranks_registered;

int listen_for_ranks(void) {
    struct sockaddr_un address = {0};
    int through = crdebug_address(&address);
    unlink(address.sun_path);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0) return -1;
    mode_t before = umask(0177); /* our user's, from the beginning */
    int bound = bind(listener, (const struct sockaddr *)&address, sizeof address);
    umask(before);
    if (bound != 0 || listen(listener, 4096) != 0) return -1;
    if (through >= 0) close(through);
    /* Descriptors 0 to 2 are the job's; keep ours out of the way of a launcher that counts up. */
    return listener;
}

static int reserve_ranks(int size) {
    if (size > MAX_RANKS) return -1;
    struct rank *more = realloc(crdebug_ranks, (size_t)size * sizeof *crdebug_ranks);
    if (more == NULL) return -1;
    memset(more + ranks_size, 0, (size_t)(size - ranks_size) * sizeof *more);
    crdebug_ranks = more;
    MPIR_PROCDESC *table = realloc(MPIR_proctable, (size_t)size * sizeof *table);
    if (table == NULL) return -1;
    memset(table + ranks_size, 0, (size_t)(size - ranks_size) * sizeof *table);
    MPIR_proctable = table;
    ranks_size = size;
    return 0;
}

static void publish_if_complete(void) {
    if (MPIR_proctable_size != 0 || ranks_registered < ranks_size) return;
    MPIR_proctable_size = ranks_size;
    MPIR_debug_state = MPIR_DEBUG_SPAWNED;
    tell("ranks %d", ranks_size);
    MPIR_Breakpoint();
}

/* The launcher itself has started it, and all ranks have been there: by MPI_Comm_spawn. Its number is one
 * in another MPI_COMM_WORLD. Told of the first. */
static int is_spawned(const struct crdebug_register *request, int pid) {
    static int told;
    int known = request->rank < MPIR_proctable_size ? crdebug_ranks[request->rank].pid : 0;
    if (MPIR_proctable_size == 0 || !request->launched || known == pid) return 0;
    if (!told++) tell("spawned %s", request->executable);
    return 1;
}

/* Several processes may say that they are one rank: what the rank runs need not be the MPI program
 * itself (the shim leaves out what cannot be it). The first to come is the rank; one that has MPI
 * takes over from one without, and a process that became another program is still the rank. Once
 * the table is published under a debugger, that one is attached: another process is too late. */
static int accept_rank(const struct crdebug_register *request, int pid, int hold) {
    if (request->abi != CRDEBUG_ABI || request->rank < 0 || request->rank >= MAX_RANKS) return 0;
    if (is_spawned(request, pid)) return 0;
    int size = request->size > request->rank ? request->size : request->rank + 1;
    if (size > ranks_size && reserve_ranks(size) != 0) return 0;
    struct rank *known = &crdebug_ranks[request->rank];
    if (known->pid != 0 && known->pid != pid) {
        if (!request->mpi || known->mpi) return 0;
        if (hold && MPIR_proctable_size != 0) {
            tell("late %d %s", request->rank, request->executable);
            return 0;
        }
    }
    MPIR_PROCDESC *entry = &MPIR_proctable[request->rank];
    char *host = strdup(MPIR_controller_hostname), *executable = strdup(request->executable);
    if (host == NULL || executable == NULL) {
        free(host);
        free(executable);
        return 0;
    }
    if (known->pid == 0) ranks_registered++;
    free(entry->host_name);
    free(entry->executable_name);
    *entry = (MPIR_PROCDESC){host, executable, pid};
    *known = (struct rank){pid, request->mpi};
    return 1;
}

void serve_rank(int listener, int hold) {
    struct crdebug_register request;
    struct ucred peer;
    socklen_t length = sizeof peer;
    int channel = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (channel < 0) return;
    struct timeval patience = {.tv_sec = 5}; /* a rank that dies while it registers blocks nobody */
    setsockopt(channel, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (recv(channel, &request, sizeof request, 0) == (ssize_t)sizeof request &&
        getsockopt(channel, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0) {
        request.executable[sizeof request.executable - 1] = 0;
        /* A rank that became another program after all were there has nobody who opens its gate. */
        int waits = hold && MPIR_proctable_size == 0;
        int accepted = accept_rank(&request, peer.pid, hold);
        struct crdebug_reply reply = {CRDEBUG_ABI, (uint32_t)accepted,
                                      (uint32_t)(accepted && waits)};
        send(channel, &reply, sizeof reply, MSG_NOSIGNAL);
        if (accepted) publish_if_complete();
    }
    close(channel);
}
