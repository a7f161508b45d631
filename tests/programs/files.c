// MPI ranks that write to files in every way that a restart has to undo, and read them back at the
// end: a step that a file tells twice, or not at all, or too early, shows.
//
//   append.RANK   opened with O_APPEND, one line a step
//   table.RANK    one line a step, each written at its place, and at the start a count of lines
//                 that is overwritten each step
//   latest.RANK   made anew by fopen "w" each step
//   unlinked      without a name since its creation, one line a step
//   mapped.RANK   mapped shared, and closed: a count of steps
//   stdout        one line a step and rank
//
// --steps N       steps
// --delay-us N    pause after each step
// --dir PATH      where the files are; the working directory by default
// --quiet N       1: no lines on stdout but the last ones

#include "common.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

static long steps = 50, delay_us = 1000, quiet;
static const char *directory = ".";

enum { LINE = 12 };  // characters in a line, its newline among them

static int append_fd, table_fd, unlinked_fd;
static char latest_path[512];
static volatile long *mapped;

static int open_file(const char *name, int flags, char *path, size_t size) {
    snprintf(path, size, "%s/%s.%d", directory, name, my_rank);
    int fd = open(path, flags | O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0, "%s: %s", path, strerror(errno));
    return fd;
}

static void write_line(int fd, long number) {
    char line[LINE + 1];
    snprintf(line, sizeof line, "%*ld\n", LINE - 1, number);
    CHECK(write(fd, line, LINE) == LINE, "write: %s", strerror(errno));
}

// Checks that a file holds the lines first..last and nothing else, from an offset on.
static void check_lines(const char *name, int fd, off_t offset, long first, long last) {
    struct stat stat;
    CHECK(fstat(fd, &stat) == 0, "%s: %s", name, strerror(errno));
    CHECK(stat.st_size == offset + (last - first + 1) * LINE,
          "%s has %lld bytes for %ld lines", name, (long long)stat.st_size, last - first + 1);
    for (long number = first; number <= last; number++, offset += LINE) {
        char line[LINE + 1] = "";
        CHECK(pread(fd, line, LINE, offset) == LINE, "%s: %s", name, strerror(errno));
        CHECK(atol(line) == number, "%s: line %ld reads '%s'", name, number, line);
    }
}

static volatile long *map_file(int fd) {
    CHECK(ftruncate(fd, sizeof *mapped) == 0, "ftruncate: %s", strerror(errno));
    void *memory = mmap(NULL, sizeof *mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED, "mmap: %s", strerror(errno));
    close(fd);
    return memory;
}

// Every rank passes here once in each step.
__attribute__((noinline)) static void work_step(void) {
    exchange(0);
    CHECK(*mapped == step - 1, "the mapped file counts %ld", *mapped);
    *mapped = step;
    write_line(append_fd, step);
    CHECK(lseek(table_fd, 0, SEEK_SET) == 0, "lseek: %s", strerror(errno));
    write_line(table_fd, step);
    CHECK(lseek(table_fd, step * LINE, SEEK_SET) == step * LINE, "lseek: %s", strerror(errno));
    write_line(table_fd, step);
    write_line(unlinked_fd, step);
    FILE *latest = fopen(latest_path, "w");
    CHECK(latest, "%s: %s", latest_path, strerror(errno));
    fprintf(latest, "%*ld\n", LINE - 1, step);
    fclose(latest);
    if (!quiet) {
        printf("rank %d step %ld\n", my_rank, step);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    parse_options(argc, argv,
                  (struct option_spec[]){{"--steps", &steps, NULL},
                                         {"--delay-us", &delay_us, NULL},
                                         {"--dir", NULL, &directory},
                                         {"--quiet", &quiet, NULL},
                                         {NULL, NULL, NULL}});
    start_mpi(&argc, &argv);
    char path[512];
    append_fd = open_file("append", O_APPEND, path, sizeof path);
    table_fd = open_file("table", 0, path, sizeof path);
    unlinked_fd = open_file("unlinked", 0, path, sizeof path);
    CHECK(unlink(path) == 0, "%s: %s", path, strerror(errno));
    mapped = map_file(open_file("mapped", 0, path, sizeof path));
    close(open_file("latest", 0, latest_path, sizeof latest_path));

    for (step = 1; step <= steps; step++) {
        work_step();
        pause_us(delay_us);
    }
    long done = step - 1;
    check_lines("append", append_fd, 0, 1, done);
    check_lines("table", table_fd, LINE, 1, done);
    char count[LINE + 1] = "";
    CHECK(pread(table_fd, count, LINE, 0) == LINE && atol(count) == done, "table counts '%s'",
          count);
    check_lines("unlinked", unlinked_fd, 0, 1, done);
    int latest_fd = open(latest_path, O_RDONLY | O_CLOEXEC);
    CHECK(latest_fd >= 0, "%s: %s", latest_path, strerror(errno));
    check_lines("latest", latest_fd, 0, done, done);

    char line[96];
    snprintf(line, sizeof line, "files ok, %ld lines", done);
    report(line);
    MPI_Finalize();
    return 0;
}
