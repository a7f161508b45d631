/* The job's standard input.
 *
 * The job's directory has a file of it, CRDEBUG_INPUT, to which crdebug appends: blocks of bytes,
 * each behind its length (a uint32_t, little endian); length 0 is the end. the starter passes them on into
 * the launcher's standard input, as fast as that takes them. What was passed on, what lies in the
 * pipe and how far the file was read is all part of the image, so a restarted job reads on where it
 * was. Nothing here blocks. */
#define _GNU_SOURCE 1
#include "crdebug.h"
#include "places.h"
#include "starter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

static int file = -1, channel = -1; /* the pipe's end to write to; -1 once nothing more can come */
static off_t at;
static uint32_t left; /* of the block that is being read */
static char buffer[65536];
static size_t filled, passed;

int open_input(void) {
    char place[PATH_MAX];
    int ends[2];
    file = open(crdebug_place(place, CRDEBUG_INPUT), O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || pipe2(ends, O_CLOEXEC) != 0) return -1;
    channel = ends[1];
    return fcntl(channel, F_SETFL, O_NONBLOCK) == 0 ? ends[0] : -1;
}

static void end_input(void) {
    close(channel);
    channel = -1;
}

/* What comes next in the file, if it is there yet: a block is appended, then a signal sent. */
static void read_on(void) {
    filled = passed = 0;
    if (left == 0) {
        uint32_t length;
        if (pread(file, &length, sizeof length, at) != (ssize_t)sizeof length) return;
        at += sizeof length;
        if (length == 0) {
            end_input();
            return;
        }
        left = length;
    }
    ssize_t got = pread(file, buffer, left < sizeof buffer ? left : sizeof buffer, at);
    if (got <= 0) return;
    at += got;
    left -= (uint32_t)got;
    filled = (size_t)got;
}

void pass_input_on(void) {
    while (channel >= 0) {
        if (passed == filled) read_on();
        if (passed == filled) return;
        ssize_t written = write(channel, buffer + passed, filled - passed);
        if (written >= 0) passed += (size_t)written;
        else if (errno == EAGAIN || errno == EINTR) return;
        else end_input(); /* the launcher has closed it: it wants no more */
    }
}

int input_waits(void) { return passed < filled ? channel : -1; }
