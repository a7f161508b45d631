/* The namespaces of a job.
 *
 * An ordinary user has a user namespace, which gives the right to make the others. It maps the user
 * and the group to themselves (user_namespaces(7)): programs see whom they always see, and the
 * supplementary groups, which have no number in there, stay in force. */
#define _GNU_SOURCE 1
#include "crdebug.h"
#include "starter.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static int write_to(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t length = (ssize_t)strlen(text), written = write(file, text, (size_t)length);
    close(file);
    return written == length ? 0 : -1;
}

static int map_to_itself(unsigned user, unsigned group) {
    char users[64], groups[64];
    snprintf(users, sizeof users, "%u %u 1\n", user, user);
    snprintf(groups, sizeof groups, "%u %u 1\n", group, group);
    if (write_to("/proc/self/uid_map", users) != 0) return -1;
    if (write_to("/proc/self/setgroups", "deny") != 0)
        return -1; /* else no map of groups may be written */
    return write_to("/proc/self/gid_map", groups);
}

int make_namespaces(void) {
    unsigned user = geteuid(), group = getegid();
    int others = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    if (unshare(user != 0 ? others | CLONE_NEWUSER : others) != 0) return -1;
    return user != 0 ? map_to_itself(user, group) : 0;
}

const char *build_container(const char *directory) {
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return errno == EINVAL
                   ? "the root directory is not a mount point, as in a chroot: from outside, "
                     "'mount --bind DIR DIR' before 'chroot DIR'"
                   : "make the mounts private";
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
        return "mount /proc";
    /* MPI keeps its shared memory here. A tmpfs of the job's own is saved with a checkpoint, so a restart
     * takes it back too; on the host's it would keep what the job wrote after the checkpoint. */
    if (mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0)
        return "mount /dev/shm";
    if (mkdir(CRDEBUG_DIR, 0700) != 0) return "mkdir " CRDEBUG_DIR;
    if (mount(directory, CRDEBUG_DIR, NULL, MS_BIND, NULL) != 0) return "mount " CRDEBUG_DIR;
    /* Launchers give ranks a pseudo-terminal; of its own, so that incarnations can live side by side. */
    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
              "newinstance,ptmxmode=0666,mode=0620") != 0 ||
        mount("/dev/pts/ptmx", "/dev/ptmx", NULL, MS_BIND, NULL) != 0)
        return "mount /dev/pts";
    return raise_loopback() == 0 ? NULL : "bring up the loopback interface";
}
