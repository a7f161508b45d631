/*
 * One thread that is in blocking calls nearly all the time, none of which may come back early or
 * with an error. Ends with 0 when `rounds` is at the argument's number, else with the number of the
 * line.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition) ((condition) ? (void)0 : _exit(__LINE__))

volatile int rounds;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

int main(int count, char **words) {
    CHECK(count == 2);
    sigset_t begin;
    sigemptyset(&begin);
    sigaddset(&begin, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &begin, NULL) == 0);
    CHECK(write(STDOUT_FILENO, "!", 1) == 1);
    int got, ends[2];
    sigwait(&begin, &got);
    CHECK(pipe(ends) == 0);
    struct timespec pause = {0, 40000000};
    for (; rounds < atoi(words[1]); rounds++) {
        double begun = now();
        CHECK(nanosleep(&pause, NULL) == 0 && now() - begun >= 0.04);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 40000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        CHECK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL) == 0);
        struct pollfd one = {ends[0], POLLIN, 0};
        begun = now();
        CHECK(poll(&one, 1, 40) == 0 && now() - begun >= 0.039);
        fd_set set;
        FD_ZERO(&set);
        FD_SET(ends[0], &set);
        struct timeval limit = {0, 40000};
        CHECK(select(ends[0] + 1, &set, NULL, NULL, &limit) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            nanosleep(&pause, NULL);
            _exit(write(ends[1], "x", 1) != 1);
        }
        char byte;
        CHECK(read(ends[0], &byte, 1) == 1);
        int status;
        CHECK(waitpid(child, &status, __WALL) == child && status == 0);
    }
    return 0;
}
