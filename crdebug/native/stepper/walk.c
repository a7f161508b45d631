// Runs one thread of a process that GDB holds, from inside that GDB: at full speed from point to
// point, and instruction by instruction, with a called function as one. Loaded into GDB's Python,
// which could do the same requests some twenty times slower. x86-64 Linux.
//
// A point is a place in the code where the thread is to be noticed, if a stack level matches too.
// Points are in the process's memory only while one of the functions below runs.

#define _GNU_SOURCE
#include "walk.h"

#include "walk_wait.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRAP_FLAG 0x100UL
#define FLAGS_OF_DEBUGGERS (TRAP_FLAG | 0x10000UL) // and the resume flag
#define BREAKPOINT 0xcc

// ---- points -------------------------------------------------------------------------------------

static int write_byte(struct walk *w, uint64_t address, uint8_t byte) {
    return pwrite(w->memory, &byte, 1, (off_t)address) == 1 ? 0 : walk_failed(w);
}

// The first of the points at an address, -1 if there is none. They are sorted.
static int64_t find(const struct walk *w, uint64_t address) {
    int64_t low = 0, high = w->count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (w->points[middle].address < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < w->count && w->points[low].address == address ? low : -1;
}

static int wanted_at(const struct walk *w, int64_t first) {
    for (int64_t i = first; i < w->count && w->points[i].address == w->points[first].address; i++) {
        if (!w->points[i].retired) {
            return 1;
        }
    }
    return 0;
}

static int insert(struct walk *w) {
    for (int64_t i = 0; i < w->count; i++) {
        struct walk_point *point = &w->points[i];
        if (i > 0 && point[-1].address == point->address) {
            point->original = point[-1].original;
        } else if (pread(w->memory, &point->original, 1, (off_t)point->address) != 1) {
            return walk_failed(w);
        }
    }
    for (int64_t i = 0; i < w->count; i++) {
        if ((i == 0 || w->points[i - 1].address != w->points[i].address) && wanted_at(w, i)) {
            if (write_byte(w, w->points[i].address, BREAKPOINT)) {
                return WALK_ERROR;
            }
        }
    }
    w->inserted = 1;
    return 0;
}

static void remove_all(struct walk *w) {
    if (w->inserted) {
        for (int64_t i = 0; i < w->count; i++) {
            write_byte(w, w->points[i].address, w->points[i].original);
        }
        w->inserted = 0;
    }
}

// By DWARF's numbers for the registers.
static uint64_t base_value(const struct user_regs_struct *r, int number) {
    const unsigned long long values[16] = {
        r->rax, r->rdx, r->rcx, r->rbx, r->rsi, r->rdi, r->rbp, r->rsp,
        r->r8,  r->r9,  r->r10, r->r11, r->r12, r->r13, r->r14, r->r15,
    };
    return values[number & 15];
}

static int matches(struct walk *w, const struct walk_point *point) {
    if (point->base < 0) {
        return 1;
    }
    uint64_t at = base_value(&w->registers, point->base) + (uint64_t)point->offset;
    if (point->indirect) {
        uint64_t value;
        if (pread(w->memory, &value, sizeof value, (off_t)at) != sizeof value) {
            return 0;
        }
        at = value;
    }
    return at == point->value;
}

static int same_registers(const struct user_regs_struct *a, const struct user_regs_struct *b) {
    // A single-stepped system call leaves the trap flag in r11 (Intel SDM, SYSCALL).
    return a->r15 == b->r15 && a->r14 == b->r14 && a->r13 == b->r13 && a->r12 == b->r12 &&
           a->rbp == b->rbp && a->rbx == b->rbx && !((a->r11 ^ b->r11) & ~TRAP_FLAG) &&
           a->r10 == b->r10 && a->r9 == b->r9 && a->r8 == b->r8 && a->rax == b->rax &&
           a->rcx == b->rcx && a->rdx == b->rdx && a->rsi == b->rsi && a->rdi == b->rdi &&
           a->rip == b->rip && a->rsp == b->rsp &&
           !((a->eflags ^ b->eflags) & ~FLAGS_OF_DEBUGGERS) && a->fs_base == b->fs_base;
}

static int same_memory(struct walk *w) {
    for (int64_t i = 0; i < w->probe_count; i++) {
        const struct walk_probe *probe = &w->probes[i];
        char room[WALK_PROBE];
        if (pread(w->memory, room, probe->size, (off_t)probe->address) != (ssize_t)probe->size ||
            memcmp(room, probe->data, probe->size)) {
            return 0;
        }
    }
    return 1;
}

// Count what the thread has come to at `first`; returns whether to stop for it. Then it is where
// the walk ends, and for no other point something on the way.
static int count_hits(struct walk *w, int64_t first, int *resumed) {
    uint64_t address = w->points[first].address;
    int64_t end = first;
    while (end < w->count && w->points[end].address == address) {
        end++;
    }
    int64_t chosen = -1;
    for (int64_t i = first; i < end; i++) {
        struct walk_point *point = &w->points[i];
        int compares = point->action == WALK_COMPARE;
        if ((point->action != WALK_STOP && !compares) || !matches(w, point)) {
            continue;
        }
        point->hits++;
        if (compares ? same_registers(&w->registers, w->wanted) && same_memory(w)
                     : point->hits == point->limit) {
            chosen = i;
        }
    }
    if (chosen >= 0) {
        w->point = chosen;
        return 1;
    }
    for (int64_t i = first; i < end; i++) {
        struct walk_point *point = &w->points[i];
        if (point->action == WALK_STOP || point->action == WALK_COMPARE || point->retired ||
            !matches(w, point)) {
            continue;
        }
        point->hits++;
        point->last = ++w->stamp;
        if (point->action == WALK_RETIRE) {
            point->retired = point->hits == point->limit;
        } else if (point->action == WALK_RESUME) {
            *resumed = 1;
        }
        if (w->stamp == w->most) {
            w->point = i;
            return 1;
        }
    }
    return 0;
}

// ---- running ------------------------------------------------------------------------------------

// A system call saves the flags in r11, with the one that made it a single step.
static int hide_trap_flag(struct walk *w) {
    if (w->registers.rcx == w->registers.rip && w->registers.r11 & TRAP_FLAG) {
        w->registers.r11 &= ~TRAP_FLAG;
        return ptrace(PTRACE_SETREGS, w->tid, 0L, &w->registers) ? walk_failed(w) : 0;
    }
    return 0;
}

// One instruction, which may be a signal's delivery instead: *number is the signal then, and the
// thread is at its handler's beginning. If it is handled at all; else the instruction is done too.
static int step(struct walk *w, int *number) {
    int status = 0, give = w->pending, event;
    w->pending = 0;
    *number = give;
    for (;;) {
        if ((event = walk_resume(w, PTRACE_SINGLESTEP, give)) || (event = walk_await(w, &status))) {
            return event;
        }
        if (status >> 16) {
            w->error = status >> 16;
            return WALK_EVENT;
        }
        int came = walk_signal_of(status);
        if (!came) {
            event = walk_get_registers(w);
            return event ? event : hide_trap_flag(w);
        }
        if ((event = walk_fatal(w, came))) {
            return event;
        }
        give = walk_passed(w, came);
        *number = give ? give : *number;
    }
}

// One instruction from where a point may be.
static int step_off(struct walk *w, int64_t first, int *number) {
    int event;
    if (first < 0) {
        return step(w, number);
    }
    uint64_t address = w->points[first].address;
    if (write_byte(w, address, w->points[first].original)) {
        return WALK_ERROR;
    }
    event = step(w, number);
    if (wanted_at(w, first) && write_byte(w, address, BREAKPOINT)) {
        return WALK_ERROR;
    }
    return event;
}

// Run with the points inserted, until one says stop, or to `until` with that stack pointer.
static int run(struct walk *w, uint64_t until, uint64_t sp, int *came) {
    int status = 0, number = 0, event = 0, resumed = 0;
    int64_t own = until ? find(w, until) : -1;
    uint8_t original = 0;
    int temporary = until && (own < 0 || !wanted_at(w, own));
    *came = 0;
    if (temporary &&
        (pread(w->memory, &original, 1, (off_t)until) != 1 || write_byte(w, until, BREAKPOINT))) {
        return WALK_ERROR;
    }
    event = walk_resume(w, PTRACE_CONT, w->pending);
    w->pending = 0;
    while (!event && !(event = walk_await(w, &status))) {
        if (status >> 16) {
            w->error = status >> 16;
            event = WALK_EVENT;
            break;
        }
        number = walk_signal_of(status);
        if (number) {
            event = walk_fatal(w, number);
            event = event ? event : walk_resume(w, PTRACE_CONT, walk_passed(w, number));
            continue;
        }
        if ((event = walk_get_registers(w))) {
            break;
        }
        uint64_t pc = w->registers.rip - 1;
        int64_t first = find(w, pc);
        if (first < 0 && pc != until) {
            event = WALK_TRAP;
            break;
        }
        if ((event = walk_set_pc(w, pc))) {
            break;
        }
        if (first >= 0 && count_hits(w, first, &resumed)) {
            event = WALK_POINT;
            break;
        }
        if (resumed || (pc == until && w->registers.rsp == sp)) {
            *came = 1;
            break;
        }
        if (pc == until && temporary) {
            if (write_byte(w, pc, original) || (event = step(w, &number)) ||
                write_byte(w, pc, BREAKPOINT)) {
                event = event ? event : WALK_ERROR;
                break;
            }
        } else if ((event = step_off(w, first, &number))) {
            break;
        }
        event = walk_resume(w, PTRACE_CONT, 0);
    }
    if (temporary) {
        write_byte(w, until, original);
    }
    return event;
}

int walk_run(struct walk *w) {
    int number = 0, came = 0, event = walk_get_registers(w);
    walk_start_ticks();
    // Where it stands, it has come to before.
    if (!event && find(w, w->registers.rip) >= 0) {
        event = step(w, &number);
    }
    if (!event) {
        event = insert(w);
    }
    if (!event) {
        event = run(w, 0, 0, &came);
    }
    remove_all(w);
    walk_end_ticks();
    return event;
}

int walk_step(struct walk *w, uint64_t count) {
    int event = walk_get_registers(w), number = 0;
    walk_start_ticks();
    for (uint64_t i = 0; i < count && !event; i++) {
        event = step(w, &number);
    }
    walk_end_ticks();
    return event;
}

static int is_call(struct walk *w, uint64_t pc, int64_t point) {
    uint8_t code[8] = {0};
    if (pread(w->memory, code, sizeof code, (off_t)pc) < 2) {
        return 0;
    }
    if (point >= 0) {
        code[0] = w->points[point].original;
    }
    int i = 0;
    while (i < 5 && ((code[i] & 0xf0) == 0x40 || code[i] == 0x66 || code[i] == 0xf2 ||
                     code[i] == 0xf3 || code[i] == 0x3e || code[i] == 0x2e)) {
        i++;
    }
    return code[i] == 0xe8 || (code[i] == 0xff && (code[i + 1] >> 3 & 7) == 2);
}

int walk_flat(struct walk *w, uint64_t level, uint64_t steps) {
    int event = walk_get_registers(w), arrived = 1, number = 0, resumed = 0;
    walk_start_ticks();
    if (!event) {
        event = insert(w);
    }
    while (!event) {
        if (w->steps >= steps) {
            event = WALK_STEPS;
            break;
        }
        struct user_regs_struct before = w->registers;
        int64_t first = find(w, before.rip);
        if (first >= 0 && !wanted_at(w, first)) {
            first = -1;
        }
        struct walk_entry *entry = &w->trace[w->steps % w->capacity];
        *entry = (struct walk_entry){before.rip, before.rsp, 0};
        if (first >= 0 && !arrived) {
            // Only who runs into the point has come to it: a signal may be served first.
            if ((event = step(w, &number))) {
                break;
            }
            if (!number || w->registers.rip == before.rip + 1) {
                if ((event = walk_set_pc(w, before.rip))) {
                    break;
                }
                if (count_hits(w, first, &resumed)) {
                    event = WALK_POINT;
                    break;
                }
                arrived = 1;
                continue;
            }
        } else if ((event = step_off(w, first, &number))) {
            w->steps++;
            break;
        }
        arrived = 0;
        w->steps++;
        uint64_t sp = w->registers.rsp;
        if (number && (sp < before.rsp - 128 || sp > before.rsp + 8)) {
            entry->flags = WALK_SIGNAL;
            event = run(w, before.rip, before.rsp, &arrived);
        } else if (sp == before.rsp - 8 && is_call(w, before.rip, first)) {
            uint64_t back;
            entry->flags = WALK_CALL;
            if (pread(w->memory, &back, sizeof back, (off_t)sp) != sizeof back) {
                event = walk_failed(w);
                break;
            }
            event = run(w, back, before.rsp, &arrived);
        } else if (sp >= level) {
            event = WALK_OUT;
        }
    }
    remove_all(w);
    walk_end_ticks();
    return event;
}
