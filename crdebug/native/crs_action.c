/* starter --crs-action SOCKET: CRIU's action script (criu(8), --action-script).
 *
 * At setup-namespaces it brings `lo` up in the new network namespace, which CRIU restores empty; at
 * post-dump, post-restore and pre-resume, while all processes of the job are frozen, it tells SOCKET
 * "ACTION PID\n" and waits for "go\n". Any other end of the conversation (crdebug has died, say)
 * fails the action. CRIU lets the job go then, that it was dumping; and ends the one that it was
 * restoring, but only at post-restore: at pre-resume nothing can stop it any more. */
#define _GNU_SOURCE 1
#include "starter.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int raise_loopback(void) {
    struct ifreq request = {.ifr_flags = IFF_UP | IFF_RUNNING};
    memcpy(request.ifr_name, "lo", 3);
    int channel = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (channel < 0) return -1;
    int result = ioctl(channel, SIOCSIFFLAGS, &request);
    close(channel);
    return result;
}

static int enter_and_raise_loopback(const char *pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/ns/net", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || setns(file, CLONE_NEWNET) != 0 || raise_loopback() != 0) {
        perror("starter: bring up the loopback interface");
        return 1;
    }
    return 0;
}

static int ask_crdebug(const char *path, const char *action, const char *pid) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char text[64];
    if (strlen(path) >= sizeof address.sun_path) return 1;
    strcpy(address.sun_path, path);
    int channel = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int length = snprintf(text, sizeof text, "%s %s\n", action, pid);
    if (channel < 0 || connect(channel, (const struct sockaddr *)&address, sizeof address) != 0 ||
        send(channel, text, (size_t)length, MSG_NOSIGNAL) != length) {
        perror("starter: crdebug is not there");
        return 1;
    }
    return recv(channel, text, 3, MSG_WAITALL) == 3 && memcmp(text, "go\n", 3) == 0 ? 0 : 1;
}

int crs_action(const char *path) {
    const char *action = getenv("CRTOOLS_SCRIPT_ACTION"), *pid = getenv("CRTOOLS_INIT_PID");
    if (action == NULL || pid == NULL) return 0;
    if (strcmp(action, "setup-namespaces") == 0) return enter_and_raise_loopback(pid);
    if (strcmp(action, "post-dump") == 0 || strcmp(action, "post-restore") == 0 ||
        strcmp(action, "pre-resume") == 0)
        return ask_crdebug(path, action, pid);
    return 0;
}
