/* Where the job's directory is for its processes: in a container always at CRDEBUG_DIR; without one,
 * where the variable of that name says. */
#ifndef CRDEBUG_PLACES_H
#define CRDEBUG_PLACES_H

#include <limits.h>
#include <sys/un.h>

#define CRDEBUG_DIR_VARIABLE "CRDEBUG_DIR"
#define CRDEBUG_TRACER_VARIABLE "CRDEBUG_TRACER"
/* Set in a job over several hosts: the path of a file. There is no starter on most of them. Ranks that
 * begin while the file is there wait before their main, for the debuggers that look for them. */
#define CRDEBUG_OVER_HOSTS_VARIABLE "CRDEBUG_OVER_HOSTS"

/* The path of something in that directory, in `place`; as it was when this process started, whatever
 * the program makes of its environment. */
const char *crdebug_place(char place[PATH_MAX], const char *name);

/* The address of the starter's socket. Close what is returned once it has been used, unless it is
 * negative: a path that is too long for an address leads through that descriptor. */
int crdebug_address(struct sockaddr_un *address);

#endif
