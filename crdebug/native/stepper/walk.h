// What walk.c and gdbscripts/stepper/engine.py share. x86-64 Linux.

#ifndef CRDEBUG_WALK_H
#define CRDEBUG_WALK_H

#include <stdint.h>
#include <sys/user.h>

#define WALK_EXPORT __attribute__((visibility("default")))
#define WALK_PROBE 4096

// How a walk ended.
enum {
    WALK_POINT = 1, // at a point that says stop: `point`
    WALK_ABANDONED, // `tick` said so, and the thread stands anywhere
    WALK_GONE,      // the thread has ended
    WALK_ERROR,     // a request failed: `error`
    WALK_EVENT,     // the process made a thread or a process, or became another program
    WALK_TRAP,      // a trap of the program's own
    WALK_STEPS,     // as many steps as were asked for
    WALK_OUT,       // the function has returned
    WALK_FATAL,     // before a signal, `error`, that would end the process, or is a limit
};

// What a point does when the thread comes to it.
enum {
    WALK_COUNT,   // be counted
    WALK_STOP,    // stop at hit number `limit`
    WALK_RETIRE,  // be counted, and after `limit` hits be no more
    WALK_COMPARE, // stop if the registers are `wanted`, and the memory is that of the probes
    WALK_RESUME,  // end what ran as one, of a walk by instructions
};

struct walk_point {
    uint64_t address;
    // The level: register number `base` (DWARF's numbers) plus offset, or what is in memory there,
    // must be `value`. base < 0: any level will do.
    uint64_t value;
    int64_t offset;
    int32_t base;
    int32_t indirect;
    int32_t action;
    int32_t retired;
    uint64_t limit;
    uint64_t hits;
    uint64_t last; // the walk's stamp at the last hit
    uint8_t original;
};

struct walk_probe {
    uint64_t address;
    uint64_t size; // at most WALK_PROBE
    const void *data;
};

enum { WALK_CALL = 1, WALK_SIGNAL = 2 };

// An instruction that was about to be done.
struct walk_entry {
    uint64_t pc, sp;
    uint64_t flags; // WALK_CALL: it called a function; WALK_SIGNAL: a signal was served before it
};

struct walk {
    int32_t pid, tid;
    int32_t memory; // descriptor of /proc/PID/mem
    int32_t stepping;
    int32_t inserted;
    int32_t pending; // a signal to be delivered first
    int32_t error;
    // Called now and then while the thread runs; asleep: how many times in a row it has been found
    // asleep in a system call. Returns whether to give up.
    int (*tick)(int asleep);
    uint64_t passed; // bit N - 1: signal N is given to the program
    uint64_t limits; // bit N - 1: the walk ends before signal N, of `passed`, also if it is caught
    struct walk_point *points;
    int64_t count;
    const struct user_regs_struct *wanted;
    struct walk_probe *probes;
    int64_t probe_count;
    struct walk_entry *trace; // a ring
    uint64_t capacity;
    uint64_t steps;
    uint64_t stamp; // hits so far, of all points
    uint64_t most; // so many hits of all points are enough; 0: no matter
    int64_t point;
    struct user_regs_struct registers;
};

// From point to point. Where the thread stands does not count.
WALK_EXPORT int walk_run(struct walk *w);
// `count` instructions; a signal that is served counts as one more.
WALK_EXPORT int walk_step(struct walk *w, uint64_t count);
// Instructions of one stack level, until `steps` are done in all; the level ends where the stack
// pointer becomes `level`. A called function and a signal's handler are one step.
WALK_EXPORT int walk_flat(struct walk *w, uint64_t level, uint64_t steps);

#endif
