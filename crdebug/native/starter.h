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

/* Be what a tool starts, see front.c. Returns an exit status. */
int front(int count, char **arguments);

/* The CRS's action script: `path` is crdebug's socket. Returns an exit status. */
int crs_action(const char *path);

#endif
