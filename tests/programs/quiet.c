// MPI ranks that do nothing at all: every thread waits inside a system call, and none may learn that
// anybody was there. A byte for each rank, written into the fifo, lets them end.
//
// --fifo PATH     made by whoever wants them to end
// --locked RANK   it has a seccomp filter, which lets everything through

#include "common.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

static int bell, epoll;
static volatile long ready;

static void *wait_in_epoll(void *unused) {
    struct epoll_event wanted = {.events = EPOLLIN}, got;
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, bell, &wanted) == 0, "epoll_ctl");
    int count = epoll_wait(epoll, &got, 1, -1);
    CHECK(count == 1, "epoll_wait: %s", strerror(errno));
    return unused;
}

static void *wait_in_select(void *unused) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(bell, &set);
    errno = 77;
    int count = select(bell + 1, &set, NULL, NULL, NULL);
    CHECK(count == 1 && errno == 77, "select: %d, %s", count, strerror(errno));
    return unused;
}

static void lock(void) {
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {1, &allow};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "prctl: %s", strerror(errno));
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "seccomp: %s", strerror(errno));
}

int main(int argc, char **argv) {
    const char *path = "fifo";
    long locked = -1;
    const struct option_spec options[] = {
        {"--fifo", NULL, &path}, {"--locked", &locked, NULL}, {NULL, NULL, NULL}};
    parse_options(argc, argv, options);
    start_mpi(&argc, &argv);
    if (my_rank == locked) lock();
    bell = eventfd(0, 0);
    epoll = epoll_create1(0);
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, wait_in_epoll, NULL);
    pthread_create(&threads[1], NULL, wait_in_select, NULL);
    int fifo = open(path, O_RDWR);
    CHECK(fifo >= 0, "%s: %s", path, strerror(errno));
    exchange((uint64_t)my_rank);
    ready = 1;
    char byte;
    ssize_t got = read(fifo, &byte, 1);
    CHECK(got == 1, "read: %s", strerror(errno));
    eventfd_write(bell, 1);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    exchange((uint64_t)my_rank);
    report("quiet ok");
    MPI_Finalize();
    return 0;
}
