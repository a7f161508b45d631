/* Where the job's directory is, and who may trace this process: both as the environment says.
 *
 * Yama's ptrace_scope 1 lets a process be traced by its ancestors only, and by the descendants of one
 * process that it names itself (Linux: admin-guide/LSM/Yama.rst). The job's processes are no
 * descendants of crdebug's, so each of them names the crdebug that started the job, and no other:
 * PR_SET_PTRACER_ANY would open them to everything that this user runs. */
#define _GNU_SOURCE 1
#include "places.h"
#include "crdebug.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static char home[PATH_MAX] = CRDEBUG_DIR;

__attribute__((constructor(101))) static void read_environment(void) {
    int saved_errno = errno;
    const char *named = getenv(CRDEBUG_DIR_VARIABLE), *tracer = getenv(CRDEBUG_TRACER_VARIABLE);
    if (named != NULL && *named == '/' && strlen(named) < sizeof home) strcpy(home, named);
    if (tracer != NULL) prctl(PR_SET_PTRACER, strtoul(tracer, NULL, 10), 0, 0, 0);
    errno = saved_errno; /* EINVAL without Yama */
}

const char *crdebug_place(char place[PATH_MAX], const char *name) {
    snprintf(place, PATH_MAX, "%.4000s/%.64s", home, name);
    return place;
}

int crdebug_address(struct sockaddr_un *address) {
    const size_t room = sizeof address->sun_path;
    char place[PATH_MAX];
    int through = -1;
    address->sun_family = AF_UNIX;
    crdebug_place(place, CRDEBUG_SOCKET);
    if (strlen(place) < room) {
        memcpy(address->sun_path, place, strlen(place) + 1);
        return through;
    }
    through = open(home, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(address->sun_path, room, "/proc/self/fd/%d/" CRDEBUG_SOCKET, through);
    return through;
}
