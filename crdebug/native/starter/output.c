/* What the job writes to its standard output and error.
 *
 * The launcher gets pipes, and the starter appends what comes out of them to the files `stdout` and
 * `stderr` of the job's directory. Were the files themselves the launcher's, Open MPI's mpirun would
 * throw away what a full disk has no space for, and end with 0. So it is the starter that keeps what cannot
 * be written, says so, and tries again; meanwhile the pipe fills, and who writes more into it waits.
 * What is in the pipe or kept here is part of the image, as the files' sizes are. Reading does not
 * block. */
#define _GNU_SOURCE 1
#include "crdebug.h"
#include "starter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { STREAMS = 2, AT_ONCE = 16 /* buffers, before the ranks and signals have their turn */ };

static struct stream {
    const char *name;
    int file, source; /* the pipe's end to read from; -1 once nobody has the other one */
    int waits;        /* the file takes no more just now; that has been told */
    uint64_t come; /* bytes read so far, and how many there will be once the launcher has ended */
    uint64_t last;
    size_t filled, passed;
    char buffer[65536];
} streams[STREAMS] = {{.name = "output", .file = 1, .source = -1},
                      {.name = "error", .file = 2, .source = -1}};

int open_output(int ends[2]) {
    for (int i = 0; i < STREAMS; i++) {
        int both[2];
        if (pipe2(both, O_CLOEXEC) != 0 || fcntl(both[0], F_SETFL, O_NONBLOCK) != 0) return -1;
        streams[i].source = both[0];
        ends[i] = both[1];
    }
    return 0;
}

/* Whether all that was read is in the file. */
static int put_down(struct stream *stream) {
    while (stream->passed < stream->filled) {
        ssize_t written =
            write(stream->file, stream->buffer + stream->passed, stream->filled - stream->passed);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            if (!stream->waits) tell("waits %s %s", stream->name, strerror(errno));
            stream->waits = 1;
            return 0;
        }
        stream->passed += (size_t)written;
    }
    return 1;
}

/* Whether something came. */
static int take_up(struct stream *stream) {
    if (stream->source < 0) return 0;
    ssize_t got = read(stream->source, stream->buffer, sizeof stream->buffer);
    if (got == 0) {
        close(stream->source);
        stream->source = -1;
    }
    if (got <= 0) return 0;
    stream->passed = 0;
    stream->filled = (size_t)got;
    stream->come += (uint64_t)got;
    return 1;
}

void pass_output_on(void) {
    for (int i = 0; i < STREAMS; i++) {
        for (int turn = 0;; turn++) {
            if (!put_down(&streams[i])) break;
            if (streams[i].waits) tell("flows %s", streams[i].name);
            streams[i].waits = 0;
            if (turn == AT_ONCE || !take_up(&streams[i])) break;
        }
    }
}

int output_comes(int sources[2]) {
    int waits = 0;
    for (int i = 0; i < STREAMS; i++) {
        int kept = streams[i].passed < streams[i].filled;
        sources[i] = kept ? -1 : streams[i].source;
        waits |= kept;
    }
    return waits;
}

void end_output(void) {
    for (int i = 0; i < STREAMS; i++) {
        int there = 0;
        if (streams[i].source >= 0) ioctl(streams[i].source, FIONREAD, &there);
        streams[i].last = streams[i].come + (uint64_t)there;
    }
}

int output_is_out(void) {
    for (int i = 0; i < STREAMS; i++) {
        int open = streams[i].source >= 0;
        if (streams[i].passed < streams[i].filled) return 0;
        if (open && streams[i].come < streams[i].last) return 0;
    }
    return 1;
}
