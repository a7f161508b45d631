/* starter --crs-action SOCKET: CRIU's action script (criu(8), --action-script).
 *
 * At setup-namespaces it brings `lo` up in the new network namespace, which CRIU restores empty. At
 * post-setup-namespaces, while the mounts are there and no file is open yet; at post-dump, while all
 * processes of the job are frozen; and at post-restore, while all are whole and none has run yet, it
 * tells SOCKET "ACTION PID\n" and waits for "go\n", or for "carry out PLAN\n" (see commit.c), which
 * it answers with "done\n" or with why not. Any other end of the conversation (crdebug has died,
 * say) fails the action: CRIU lets the job go then, that it was dumping, and ends the one that it was
 * restoring. Once a plan was begun crdebug is not needed any more. */
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

static int answer(int channel, const char *pid) {
    static const char carry[] = "carry out ";
    char line[4200], *end = NULL;
    size_t filled = 0;
    while (end == NULL && filled < sizeof line) {
        ssize_t got = recv(channel, line + filled, sizeof line - filled, 0);
        if (got <= 0) return 1;
        filled += (size_t)got;
        end = memchr(line, '\n', filled);
    }
    if (end == NULL) return 1;
    *end = 0;
    if (strcmp(line, "go") == 0) return 0;
    if (strncmp(line, carry, sizeof carry - 1) != 0) return 1;
    int result = carry_out(line + sizeof carry - 1, pid);
    const char *told = result == 0 ? "done" : why_not_carried_out();
    send(channel, told, strlen(told), MSG_NOSIGNAL);
    send(channel, "\n", 1, MSG_NOSIGNAL);
    return result == 0 ? 0 : 1;
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
    return answer(channel, pid);
}

int crs_action(const char *path) {
    const char *action = getenv("CRTOOLS_SCRIPT_ACTION"), *pid = getenv("CRTOOLS_INIT_PID");
    if (action == NULL || pid == NULL) return 0;
    if (strcmp(action, "setup-namespaces") == 0) return enter_and_raise_loopback(pid);
    if (strcmp(action, "post-setup-namespaces") == 0 || strcmp(action, "post-dump") == 0 ||
        strcmp(action, "post-restore") == 0)
        return ask_crdebug(path, action, pid);
    return 0;
}
