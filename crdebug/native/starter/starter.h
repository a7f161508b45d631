/* What the starter's parts have of each other. */
#ifndef CRDEBUG_STARTER_H
#define CRDEBUG_STARTER_H

#include <stddef.h>
#include <sys/types.h>

/* ---- what debuggers read: "The MPIR Process Acquisition Interface", version 1.1, section 9 ---- */

typedef struct {
    char *host_name;
    char *executable_name;
    int pid;
} MPIR_PROCDESC;

enum { MPIR_NULL = 0, MPIR_DEBUG_SPAWNED = 1, MPIR_DEBUG_ABORTING = 2 };

extern MPIR_PROCDESC *MPIR_proctable;
extern int MPIR_proctable_size;
extern volatile int MPIR_being_debugged;
extern volatile int MPIR_debug_state;
extern char MPIR_controller_hostname[256];
void MPIR_Breakpoint(void);

/* Fills the symbols that say how to take checkpoints of this job. */
void describe_job(const char *job);

/* Make the namespaces of a container, for a process that is forked after that: -1 with errno. And build the
 * container in there, with the job's directory in it: NULL, or what fails, with errno. */
int make_namespaces(void);
const char *build_container(const char *directory);

/* PID 1, see keeper.c. first: the job's first process. */
int leave_low_numbers(void);
_Noreturn void keep(pid_t first);
_Noreturn void keep_for_restore(pid_t first, int stay);

/* Run a program in a container, see enter.c. Returns an exit status. */
int enter(int count, char **arguments);

/* A line from a socket, without its end: 0, or -1. And a line for it. */
int receive_line(int channel, char *line, size_t room);
void answer_line(int channel, const char *line);

/* Brings `lo` up in this process's network namespace; -1 with errno. */
int raise_loopback(void);

/* The job's standard input, see input.c: the end of a pipe for the launcher to read from, -1 with
 * errno; passes on what has come; and the descriptor at which more waits for room, -1 if none does. */
int open_input(void);
void pass_input_on(void);
int input_waits(void);

/* The job's standard output and error, see output.c: the ends of two pipes for the launcher to write
 * to, -1 with errno; passes on what has come; the descriptors at which more comes, and whether a file
 * is to be tried again; notes that the launcher has ended; and whether what came until then is out. */
int open_output(int ends[2]);
void pass_output_on(void);
int output_comes(int sources[2]);
void end_output(void);
int output_is_out(void);

/* The ranks, see registration.c: a socket at which they make themselves known, -1 with errno; answers
 * one of them. hold: it is to wait before its main. */
int listen_for_ranks(void);
void serve_rank(int listener, int hold);

/* A line for `events`. */
void tell(const char *format, ...);

/* A job without a container, see bare.c: runs `run` in a process that ends with the job, and keeps
 * watch over it. Returns an exit status, in the process that called it. */
int keep_bare(int report, const char *scratch, void (*run)(void));

/* Nobody's signals end this process before its time, not even those of a terminal that goes away, and
 * it has no file of anybody's open. */
void stand_alone(void);

/* Removes a directory, with all that is in it, once nobody has it locked. */
void remove_all(const char *directory);

/* Leaves a process behind that removes a directory once no process on this host has this mark in its
 * environment any more, see sweep.c. Returns an exit status. */
int sweep(const char *mark, const char *directory);

/* Makes a container, as far as can be told without a job, and ends it. Returns 0; or 1, after the
 * error's number and the step, as in "1 make namespaces", on the standard output. */
int try_container(void);

/* Kills all descendants of this process, which is a child subreaper; returns once there are none. */
void end_descendants(void);

/* Be what a tool starts, see front.c. Returns an exit status. */
int front(int count, char **arguments);

/* Carry out a plan, see commit.c: 0, or -1 and why. */
int carry_out(const char *plan);
const char *why_not_carried_out(void);

/* The CRS's action script. path: crdebug's socket.  server: that of `enter`. Returns an exit status. */
int crs_action(const char *path, const char *server);

#endif
