// Each rank writes a line in two pieces, with time between them; a long one; bytes that are no text; a
// line that looks like a label; one on standard error; and an end without a newline.
//
// --megabytes N   (0)  and before, so many of short lines

#include "common.h"

static void write_all(int to, const char *text, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t wrote = write(to, text + done, size - done);
        CHECK(wrote > 0, "write: %s", strerror(errno));
        done += (size_t)wrote;
    }
}

static void say(int to, const char *text) { write_all(to, text, strlen(text)); }

int main(int argc, char **argv) {
    long megabytes = 0;
    char text[5000];
    parse_options(argc, argv,
                  (struct option_spec[]){{"--megabytes", &megabytes, NULL}, {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    for (long block = 0; block < megabytes * 250; block++) {
        for (int at = 0; at < 4000; at += 80) {
            memset(text + at, 'y', 79);
            text[at + 79] = '\n';
        }
        write_all(1, text, 4000);
    }
    snprintf(text, sizeof text, "rank %d begins", my_rank);
    say(1, text);
    MPI_Barrier(MPI_COMM_WORLD);
    usleep(20000);
    say(1, " and goes on\n");
    memset(text, 'x', 4500);
    memcpy(text + 4500, "\xc3\xa9\n", 4);
    say(1, text);
    write_all(1, "\xff\0bin\n\n", 7);
    say(1, "[7] is mine\n");
    say(2, "an error\n");
    say(1, "the end");
    MPI_Finalize();
    return 0;
}
