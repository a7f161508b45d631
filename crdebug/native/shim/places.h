/* Where the job's directory is for its processes: in a container always at CRDEBUG_DIR; without one,
 * where the variable of that name says. */
#ifndef CRDEBUG_PLACES_H
#define CRDEBUG_PLACES_H

#include <limits.h>
#include <sys/un.h>

#define CRDEBUG_DIR_VARIABLE "CRDEBUG_DIR"
#define CRDEBUG_TRACER_VARIABLE "CRDEBUG_TRACER"

/* The path of something in that directory, in `place`; as it was when this process started, whatever
 * the program makes of its environment. */
const char *crdebug_place(char place[PATH_MAX], const char *name);

/* The address of the starter's socket. Close what is returned once it has been used, unless it is
 * negative: a path that is too long for an address leads through that descriptor. */
int crdebug_address(struct sockaddr_un *address);

#endif
