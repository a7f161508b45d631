// A program that asks of crdebug all that it can (crdebug_app.h), and says what it was answered.
// asking.F90 and asks.py are the same in their languages.
//
// --hold 1   in the end rank 1 is in a quiet region until `steps` is 1, and all run until it is 2

#include "common.h"

#include <crdebug_app.h>

volatile long steps;
static volatile int inside, busy;
static volatile int answers[4], answered; // each: 100 times the status, and the checkpoint's number
static char trace[64];
static pthread_mutex_t while_taken = PTHREAD_MUTEX_INITIALIZER;

static void note(char what) {
    size_t length = strlen(trace);
    if (length + 1 < sizeof trace) trace[length] = what;
}

// Registered last, so that it is called first before, and last after: it holds the lock for all.
static int outer(int moment, void *data) {
    note(((const char *)data)[moment]);
    if (moment == CRDEBUG_BEFORE_CHECKPOINT) {
        CHECK(!inside, "a checkpoint in a quiet region");
        pthread_mutex_lock(&while_taken);
    } else {
        pthread_mutex_unlock(&while_taken);
    }
    return 0;
}

static int inner(int moment, void *data) {
    note(((const char *)data)[moment]);
    if (moment == CRDEBUG_BEFORE_CHECKPOINT && busy) return crdebug_refuse("the device is busy");
    return 0;
}

static void say(const char *what, int status, int number) {
    pthread_mutex_lock(&while_taken); // until the callbacks have come to an end
    if (my_rank == 0)
        printf("%s: %d %d [%s] %s\n", what, status, number, trace,
               status < CRDEBUG_NOT_HERE ? crdebug_reason() : "");
    fflush(stdout);
    memset(trace, 0, sizeof trace);
    pthread_mutex_unlock(&while_taken);
}

static int ask(const char *what) {
    int number = 0, status = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (my_rank == 0) status = crdebug_checkpoint(what, &number);
    answers[answered++] = 100 * status + number;
    MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
    say(what, status, number);
    return status;
}

static void hold(void) {
    if (my_rank == 1) crdebug_quiet_start();
    step = 1;
    while (steps < 1) pause_us(1000);
    if (my_rank == 1) crdebug_quiet_end();
    step = 2;
    while (steps < 2) pause_us(1000);
}

int main(int argc, char **argv) {
    long holds = 0;
    const struct option_spec options[] = {{"--hold", &holds, NULL}, {NULL, NULL, NULL}};
    parse_options(argc, argv, options);
    start_mpi(&argc, &argv);
    crdebug_register(inner, "bcr");
    crdebug_register(outer, "BCR");

    int restarts = ask("first");

    crdebug_quiet_start();
    crdebug_quiet_start();
    crdebug_quiet_end();
    ask("in a region");
    crdebug_quiet_end();

    if (my_rank == 1) {
        inside = 1;
        crdebug_quiet_start();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (my_rank == 1) {
        pause_us(50000);
        inside = 0;
        crdebug_quiet_end();
    }
    ask("after a region");

    busy = my_rank == 1;
    ask("busy");
    busy = 0;

    int back = 0;
    if (my_rank == 0) back = crdebug_restart(restarts == CRDEBUG_DONE ? 1 : 99);
    say("back", back, 0);
    say("end of no region", crdebug_quiet_end(), 0);
    if (holds) hold();
    MPI_Finalize();
    return 0;
}
