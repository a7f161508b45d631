/* What the starter's parts have of each other. */
#ifndef CRDEBUG_STARTER_H
#define CRDEBUG_STARTER_H

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

/* Makes a container, as far as can be told without a job, and ends it. Returns 0; or 1, after the
 * error's number and the step, as in "1 make namespaces", on the standard output. */
int try_container(void);

/* Kills all descendants of this process, which is a child subreaper; returns once there are none. */
void end_descendants(void);

/* Be what a tool starts, see front.c. Returns an exit status. */
int front(int count, char **arguments);

/* What makes a restart final, see commit.c: 0, or -1 and why. pid: of the new job's first process. */
int carry_out(const char *plan, const char *pid);
const char *why_not_carried_out(void);

/* The CRS's action script: `path` is crdebug's socket. Returns an exit status. */
int crs_action(const char *path);

#endif
