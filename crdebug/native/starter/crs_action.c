/* starter --crs-action SOCKET SERVER: CRIU's action script (criu(8), --action-script), which runs inside
 * the job's container.
 *
 * At post-dump, while all processes of the job are frozen, and at post-restore, while all are whole and
 * none has run yet, it tells SOCKET "ACTION PID\n" and waits for "go\n", or for "carry out PLAN\n":
 * this it passes on to SERVER, which is outside (see enter.c), and the answer to SOCKET. Any other end
 * of the conversation (crdebug has died, say) fails the action: CRIU lets the job go then, that it was
 * dumping, and ends the one that it was restoring. Once a plan was begun crdebug is not needed any
 * more. */
#define _GNU_SOURCE 1
#include "starter.h"

#include <net/if.h>
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

static int connect_to(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) return -1;
    strcpy(address.sun_path, path);
    int channel = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (channel >= 0 && connect(channel, (const struct sockaddr *)&address, sizeof address) == 0)
        return channel;
    return -1;
}

int receive_line(int channel, char *line, size_t room) {
    size_t filled = 0;
    for (char *end = NULL; end == NULL;) {
        ssize_t got = filled < room ? recv(channel, line + filled, room - filled, 0) : 0;
        if (got <= 0) return -1;
        filled += (size_t)got;
        if ((end = memchr(line, '\n', filled)) != NULL) *end = 0;
    }
    return 0;
}

void answer_line(int channel, const char *line) {
    send(channel, line, strlen(line), MSG_NOSIGNAL);
    send(channel, "\n", 1, MSG_NOSIGNAL);
}

static int have_carried_out(const char *server, const char *plan, char *said, size_t room) {
    int channel = connect_to(server);
    if (channel < 0) return -1;
    answer_line(channel, plan);
    int result = receive_line(channel, said, room);
    close(channel);
    return result;
}

static int answer(int channel, const char *server) {
    static const char carry[] = "carry out ";
    char line[4300], said[4400] = "nobody carries out the plan";
    if (receive_line(channel, line, sizeof line) != 0) return 1;
    if (strcmp(line, "go") == 0) return 0;
    if (strncmp(line, carry, sizeof carry - 1) != 0) return 1;
    int result = have_carried_out(server, line + sizeof carry - 1, said, sizeof said);
    answer_line(channel, said);
    return result == 0 && strcmp(said, "done") == 0 ? 0 : 1;
}

static int ask_crdebug(const char *path, const char *server, const char *action, const char *pid) {
    char text[64];
    snprintf(text, sizeof text, "%s %s", action, pid);
    int channel = connect_to(path);
    if (channel < 0) {
        perror("starter: crdebug is not there");
        return 1;
    }
    answer_line(channel, text);
    return answer(channel, server);
}

int crs_action(const char *path, const char *server) {
    const char *action = getenv("CRTOOLS_SCRIPT_ACTION"), *pid = getenv("CRTOOLS_INIT_PID");
    if (action == NULL || pid == NULL) return 0;
    if (strcmp(action, "post-dump") == 0 || strcmp(action, "post-restore") == 0)
        return ask_crdebug(path, server, action, pid);
    return 0;
}
