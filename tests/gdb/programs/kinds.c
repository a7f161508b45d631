// A process in which each step changes one thing that only the kernel has, or memory of a kind of
// its own. Arguments as those of moves.c, of which only the first counts: the number of the thing.

#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define must(condition) ((condition) ? (void)0 : _exit(3))

enum { CHILD, HEAP, UMASK, TIMER, HUGE };
enum { PAGE = 4096, HUGE_SIZE = 2 << 20 };

volatile long step;
static int there[2], back[2], timer;
static unsigned char *page, *huge;

__attribute__((noinline)) static void tick(void) { __asm__ volatile("" ::: "memory"); }

static void begin(int kind) {
    char byte;
    if (kind == CHILD) {
        must(pipe(there) == 0 && pipe(back) == 0);
        if (fork() == 0) {
            close(there[1]);
            while (read(there[0], &byte, 1) == 1) must(write(back[1], &byte, 1) == 1);
            _exit(0);
        }
    } else if (kind == HEAP) {
        unsigned char *start = sbrk(3 * PAGE);
        page = start + PAGE - (unsigned long)start % PAGE;
    } else if (kind == TIMER) {
        struct itimerspec later = {.it_value = {.tv_sec = 3600}};
        timer = timerfd_create(CLOCK_MONOTONIC, 0);
        must(timer >= 0 && timerfd_settime(timer, 0, &later, NULL) == 0);
    } else if (kind == HUGE) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
        huge = mmap(NULL, HUGE_SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
        must(huge != MAP_FAILED);
    }
}

static void change(int kind) {
    char byte = 1;
    if (kind == CHILD) {
        must(write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1);
    } else if (kind == HEAP) {
        must(mprotect(page, PAGE, step == 3 ? PROT_READ : PROT_READ | PROT_WRITE) == 0);
    } else if (kind == UMASK) {
        umask(step & 077);
    } else if (kind == TIMER) {
        struct itimerspec off = {.it_value = {.tv_nsec = 0}};
        must(step != 3 || timerfd_settime(timer, 0, &off, NULL) == 0);
    } else if (kind == HUGE) {
        for (long at = 0; at < HUGE_SIZE; at += PAGE) must(huge[at] == (unsigned char)(step - 1));
        for (long at = 0; at < HUGE_SIZE; at += PAGE) huge[at] = (unsigned char)step;
    }
}

int main(int count, char **words) {
    int kind = count > 1 ? atoi(words[1]) : 0, got;
    begin(kind);
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    must(sigprocmask(SIG_BLOCK, &wanted, NULL) == 0);
    must(write(STDOUT_FILENO, "!", 1) == 1);
    must(sigwait(&wanted, &got) == 0);
    for (step = 1; step <= 9; step++) {
        change(kind);
        tick();
    }
    if (kind == CHILD) {
        close(there[1]);
        wait(NULL);
    }
    return 0;
}
