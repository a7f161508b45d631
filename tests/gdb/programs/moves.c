/*
 * Changes its memory in all ways that it can, by chance, and the chance is in its memory: from one
 * step on, all further ones are the same again. `sum` is over all of it. Steps are at `tick`.
 * Ends with status 3 if it ever has a child that it does not know.
 *
 * Arguments: seed, steps, MiB of address space to reserve besides, a file to map.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, REGIONS = 6, SIZE = 64 * PAGE, LARGE = 8 << 20, KEPT_BACK = 16 * PAGE };

static unsigned char *regions[REGIONS];
static int access_of[REGIONS];
static unsigned char *large, *file, *wiped, *absent, *reserved;
static unsigned char *block;
static size_t block_size, grown, reserved_size;
static uint64_t chance;
volatile int step;
volatile uint64_t sum;

static uint64_t draw(uint64_t below) {
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return chance % below;
}

static void must(int good) {
    if (!good)
        _exit(2);
}

static unsigned char *mapped(void *at, size_t size, int more) {
    unsigned char *found =
        mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more, -1, 0);
    must(found != MAP_FAILED);
    return found;
}

static void scribble(unsigned char *at, size_t size) {
    for (int count = (int)draw(20); count >= 0; count--)
        at[draw(size)] = (unsigned char)draw(256);
}

static void give_back(unsigned char *at, size_t size) {
    size_t first = draw(size / PAGE), count = 1 + draw(size / PAGE - first);
    must(madvise(at + first * PAGE, count * PAGE, MADV_DONTNEED) == 0);
}

static void add(const unsigned char *at, size_t size) {
    uint64_t found = sum;
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word;
        memcpy(&word, at + i, 8);
        found = (found ^ word) * 1099511628211u;
    }
    sum = found;
}

static void move(int one, int other) {
    must(munmap(regions[other], SIZE) == 0);
    must(mremap(regions[one], SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, regions[other]) !=
         MAP_FAILED);
    access_of[other] = access_of[one];
    mapped(regions[one], SIZE, MAP_FIXED);
    access_of[one] = PROT_READ | PROT_WRITE;
}

static void exchange(int one, int other) {
    unsigned char *aside = mapped(NULL, SIZE, 0);
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    must(mremap(regions[one], SIZE, SIZE, flags, aside) != MAP_FAILED);
    must(mremap(regions[other], SIZE, SIZE, flags, regions[one]) != MAP_FAILED);
    must(mremap(aside, SIZE, SIZE, flags, regions[other]) != MAP_FAILED);
    int access = access_of[one];
    access_of[one] = access_of[other];
    access_of[other] = access;
}

static void have_child(void) {
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        scribble(large, LARGE);
        _exit(0);
    }
    must(waitpid(child, NULL, 0) == child);
}

static void change(void) {
    int one = (int)draw(REGIONS), other = (one + 1 + (int)draw(REGIONS - 1)) % REGIONS;
    switch (draw(14)) {
    case 0:
        move(one, other);
        break;
    case 1:
        exchange(one, other);
        break;
    case 2:
        give_back(regions[one], SIZE);
        break;
    case 3:
        access_of[one] = (int)draw(4) & PROT_READ;
        if (draw(2))
            access_of[one] = PROT_READ | PROT_WRITE;
        must(mprotect(regions[one], SIZE, access_of[one]) == 0);
        break;
    case 4:
        must(munmap(regions[one], SIZE) == 0);
        mapped(regions[one], SIZE, MAP_FIXED);
        access_of[one] = PROT_READ | PROT_WRITE;
        break;
    case 5:
        if (grown && draw(2)) {
            must(sbrk(-(intptr_t)grown) != (void *)-1);
            grown = 0;
        } else {
            size_t more = (1 + draw(30)) * PAGE;
            unsigned char *end = sbrk((intptr_t)more);
            must(end != (void *)-1);
            grown += more;
            scribble(end, more);
        }
        break;
    case 6:
        give_back(large, LARGE);
        break;
    case 7:
        memset(large + draw(2) * (LARGE / 2), (int)draw(256), LARGE / 2);
        break;
    case 8:
        scribble(file, SIZE);
        break;
    case 9:
        give_back(file, SIZE);
        break;
    case 10:
        scribble(wiped, KEPT_BACK);
        scribble(absent, KEPT_BACK);
        break;
    case 11:
        block_size = (200 + draw(300)) << 10;
        block = realloc(block, block_size);
        must(block != NULL);
        memset(block, (int)draw(256), block_size);
        break;
    case 12:
        have_child();
        break;
    default:
        if (access_of[one] & PROT_WRITE)
            memset(regions[one], (int)draw(256), SIZE);
        break;
    }
    if (access_of[other] & PROT_WRITE)
        scribble(regions[other], SIZE);
    scribble(large, LARGE);
    if (reserved)
        scribble(reserved + draw(2) * (reserved_size - SIZE), SIZE);
}

static void look(void) {
    sum = 14695981039346656037u;
    for (int i = 0; i < REGIONS; i++)
        if (access_of[i] & PROT_READ)
            add(regions[i], SIZE);
    add(large, LARGE);
    add(file, SIZE);
    add(wiped, KEPT_BACK);
    add(absent, KEPT_BACK);
    if (block)
        add(block, block_size & ~(size_t)7);
    if (reserved) {
        add(reserved, SIZE);
        add(reserved + reserved_size - SIZE, SIZE);
    }
}

__attribute__((noinline)) void tick(void) { __asm__ volatile(""); }

int main(int count, char **words) {
    must(count == 5);
    chance = strtoull(words[1], NULL, 10) * 2654435761u + 1;
    int steps = atoi(words[2]);
    reserved_size = strtoull(words[3], NULL, 10) << 20;
    if (reserved_size) {
        reserved = mapped(NULL, reserved_size, MAP_NORESERVE);
        must(madvise(reserved, reserved_size, MADV_NOHUGEPAGE) == 0);
    }
    int number = open(words[4], O_RDONLY);
    must(number >= 0);
    file = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, number, 0);
    must(file != MAP_FAILED && close(number) == 0);
    for (int i = 0; i < REGIONS; i++) {
        mapped(NULL, PAGE, 0); /* so that the kernel joins no two regions */
        regions[i] = mapped(NULL, SIZE, 0);
        access_of[i] = PROT_READ | PROT_WRITE;
    }
    must(sbrk(PAGE) != (void *)-1); /* so that there is a heap throughout */
    large = mapped(NULL, LARGE, 0);
    madvise(large, LARGE, MADV_HUGEPAGE);
    wiped = mapped(NULL, KEPT_BACK, 0);
    absent = mapped(NULL, KEPT_BACK, 0);
    must(madvise(wiped, KEPT_BACK, MADV_WIPEONFORK) == 0);
    must(madvise(absent, KEPT_BACK, MADV_DONTFORK) == 0);
    sigset_t begin;
    sigemptyset(&begin);
    sigaddset(&begin, SIGUSR1);
    must(sigprocmask(SIG_BLOCK, &begin, NULL) == 0);
    must(write(STDOUT_FILENO, "!", 1) == 1);
    int got;
    sigwait(&begin, &got);
    for (step = 1; step <= steps; step++) {
        change();
        look();
        if (waitpid(-1, NULL, __WALL | WNOHANG) != -1 || errno != ECHILD)
            _exit(3);
        tick();
    }
    return 0;
}
