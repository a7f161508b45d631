/* What a program may expect of shared memory, checked by itself: the first argument is the name of a
 * check below. It needs an empty /dev/shm of its own, and no MPI. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASIDE "/dev/shm/.crdebug"
#define SIZE (1 << 18)

#define MUST(fact) \
    do \
        if (!(fact)) { \
            printf("line %d: %s: errno %s\n", __LINE__, #fact, strerror(errno)); \
            exit(1); \
        } \
    while (0)
#define FAILS(number, call) \
    do { \
        errno = 0; \
        MUST((call) == -1 && errno == (number)); \
    } while (0)

static int is_there(const char *path) {
    struct stat found;
    return lstat(path, &found) == 0;
}

static int made(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    MUST(file >= 0 && ftruncate(file, SIZE) == 0);
    return file;
}

static char *mapped(const char *path) {
    int file = made(path);
    char *place = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    MUST(place != MAP_FAILED && close(file) == 0);
    return place;
}

/* Files aside; -1 without a directory of them. */
static int aside(void) {
    int found = -1;
    DIR *directory = opendir(ASIDE);
    if (directory == NULL) return found;
    for (struct dirent *each; (each = readdir(directory)) != NULL;)
        found += each->d_type == DT_REG || found < 0;
    closedir(directory);
    return found;
}

static uint64_t used(void) {
    struct statvfs now;
    MUST(statvfs("/dev/shm", &now) == 0);
    return (uint64_t)(now.f_blocks - now.f_bfree) * now.f_frsize;
}

/* Has what is mapped here a name under which it can be opened (1), or not (0)? The name, in `path`. */
static int is_named(const void *place, char path[4096]) {
    char line[4200];
    FILE *maps = fopen("/proc/self/maps", "r");
    struct stat found;
    uintptr_t start;
    unsigned long inode;
    int named = -1;
    while (named < 0 && fgets(line, sizeof line, maps) != NULL) {
        *path = 0;
        MUST(sscanf(line, "%lx-%*x %*s %*x %*s %lu %4095[^\n]", &start, &inode, path) >= 2);
        if (start == (uintptr_t)place) named = stat(path, &found) == 0 && found.st_ino == inode;
    }
    fclose(maps);
    MUST(named >= 0);
    return named;
}

/* ---- the checks -------------------------------------------------------------------------------- */

static int by_unlink(const char *path) { return unlink(path); }
static int by_unlinkat(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
static int by_remove(const char *path) { return remove(path); }
static int by_name(const char *path) { return shm_unlink(strrchr(path, '/')); }
static int by_relative(const char *path) {
    MUST(chdir("/dev") == 0);
    return unlink(path + strlen("/dev/"));
}
static int by_directory(const char *path) {
    int directory = open("/dev/shm", O_PATH | O_DIRECTORY), saved_errno;
    int result = unlinkat(directory, path + strlen("/dev/shm/"), 0);
    saved_errno = errno;
    close(directory);
    errno = saved_errno;
    return result;
}

static void reuse(void) {
    int (*const ways[])(const char *) = {by_unlink, by_unlinkat,  by_remove,
                                         by_name,   by_directory, by_relative};
    const int count = sizeof ways / sizeof *ways;
    const char *path = "/dev/shm/segment";
    char name[4096], *places[sizeof ways / sizeof *ways];
    for (int i = 0; i < count; i++) {
        places[i] = mapped(path);
        places[i][0] = (char)(i + 1);
        errno = 77;
        MUST(ways[i](path) == 0 && errno == 77);
        MUST(!is_there(path));
        FAILS(ENOENT, ways[i](path));
    }
    for (int i = 0; i < count; i++) {
        MUST(places[i][0] == i + 1);
        MUST(is_named(places[i], name) && strncmp(name, ASIDE "/", sizeof ASIDE) == 0);
    }
    MUST(aside() == count);
    struct stat found;
    MUST(stat(ASIDE, &found) == 0 && (found.st_mode & 07777) == 0700);
    /* Only open, and unlinked with another name left. */
    int file = made(path);
    MUST(link(path, "/dev/shm/other") == 0 && unlink(path) == 0 && aside() == count + 1);
    MUST(fstat(file, &found) == 0 && found.st_nlink == 2);
    MUST(pwrite(file, "x", 1, 0) == 1 && is_there("/dev/shm/other"));
}

static void semaphore(void) {
    char name[4096];
    sem_t *first = sem_open("/sem", O_CREAT | O_EXCL, 0600, 3);
    MUST(first != SEM_FAILED);
    sem_t *same = sem_open("/sem", O_CREAT, 0600, 1);
    MUST(same == first && sem_close(same) == 0);
    MUST(sem_unlink("/sem") == 0 && !is_there("/dev/shm/sem.sem"));
    FAILS(ENOENT, sem_unlink("/sem"));
    int value;
    MUST(sem_getvalue(first, &value) == 0 && value == 3);
    sem_t *second = sem_open("/sem", O_CREAT | O_EXCL, 0600, 1);
    MUST(second != SEM_FAILED && second != first);
    MUST(sem_open("/sem", O_CREAT | O_EXCL, 0600, 1) == SEM_FAILED && errno == EEXIST);
    MUST(is_named((void *)first, name) && is_named((void *)second, name));
}

static void errors(void) {
    MUST(mkdir("/dev/shm/directory", 0700) == 0);
    FAILS(EISDIR, unlink("/dev/shm/directory"));
    FAILS(ENOENT, unlink("/dev/shm/nothing"));
    FAILS(ENOENT, remove("/dev/shm/nothing"));
    FAILS(ENOENT, shm_unlink("/nothing"));
    FAILS(ENOENT, unlinkat(AT_FDCWD, "/dev/shm/nothing", 0));
    FAILS(EBADF, unlinkat(-1, "nothing", 0));
    FAILS(EFAULT, unlink((const char *)1));
    /* C libraries differ here. */
    printf("%d %d ", shm_unlink("/a/b"), errno);
    printf("%d %d\n", shm_unlink("/"), errno);
    close(made("/dev/shm/file"));
    FAILS(ENOTDIR, unlink("/dev/shm/file/"));
    FAILS(ENOTDIR, unlink("/dev/shm/file/below"));
    FAILS(ENOTDIR, unlinkat(AT_FDCWD, "/dev/shm/file", AT_REMOVEDIR));
    /* A link is removed, not the file. */
    char *place = mapped("/dev/shm/target"), name[4096];
    MUST(symlink("target", "/dev/shm/link") == 0 && unlink("/dev/shm/link") == 0);
    MUST(!is_there("/dev/shm/link") && is_there("/dev/shm/target"));
    MUST(is_named(place, name) && strcmp(name, "/dev/shm/target") == 0);
    MUST(mkfifo("/dev/shm/fifo", 0600) == 0 && remove("/dev/shm/fifo") == 0);
    MUST(remove("/dev/shm/directory") == 0 && !is_there("/dev/shm/directory"));
    /* Other places are left alone. */
    char other[] = "/tmp/sharedXXXXXX";
    int file = mkstemp(other);
    struct stat found;
    MUST(file >= 0 && unlink(other) == 0 && fstat(file, &found) == 0 && found.st_nlink == 0);
    MUST(aside() <= 0);
    /* Nobody uses it, so it is gone. */
    MUST(unlink("/dev/shm/file") == 0 && !is_there("/dev/shm/file") && aside() <= 0);
}

static void forbidden(void) {
    MUST(mkdir("/dev/shm/closed", 0700) == 0);
    char *place = mapped("/dev/shm/closed/file");
    MUST(chmod("/dev/shm/closed", 0500) == 0);
    FAILS(EACCES, unlink("/dev/shm/closed/file"));
    FAILS(EACCES, remove("/dev/shm/closed/file"));
    MUST(is_there("/dev/shm/closed/file") && place[0] == 0);
}

static void anonymous(void) {
    char name[4096];
    const int both = PROT_READ | PROT_WRITE, shared = MAP_SHARED | MAP_ANONYMOUS;
    errno = 77;
    volatile int *place = mmap(NULL, 3 * SIZE + 5, both, shared, -1, 0);
    MUST((void *)place != MAP_FAILED && errno == 77 && is_named((void *)place, name));
    MUST(strncmp(name, ASIDE "/", sizeof ASIDE) == 0);
    for (int i = 0; i < 3 * SIZE / 4; i++) MUST(place[i] == 0);
    ((volatile char *)place)[3 * SIZE + 4095] = 1; /* up to the end of the page */
    pid_t child = fork();
    if (child == 0) {
        __atomic_store_n(&place[7], getpid(), __ATOMIC_RELEASE);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0 && place[7] == child);
    /* At a place, which stays protected as asked for. */
    char *fixed = mmap((char *)place + SIZE, SIZE, PROT_READ, shared | MAP_FIXED, -1, 0);
    MUST(fixed == (char *)place + SIZE && fixed[0] == 0 && is_named(fixed, name));
    FAILS(EFAULT, read(open("/proc/self/maps", O_RDONLY), fixed, 1));
    MUST(mmap(fixed, SIZE, both, shared | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED);
    MUST(errno == EEXIST && is_named(fixed, name));
    unsigned char in_core = 0;
    char *ready = mmap(NULL, 4096, both, shared | MAP_POPULATE, -1, 0);
    MUST(ready != MAP_FAILED && mincore(ready, 4096, &in_core) == 0 && in_core & 1);
    /* More than there is: only without a reservation. */
    char *vast = mmap(NULL, 1ul << 40, both, shared | MAP_NORESERVE, -1, 0);
    MUST(vast != MAP_FAILED && is_named(vast, name));
    vast[1ul << 39] = 1;
    char *large = mmap(NULL, 1 << 30, both, shared, -1, 0);
    MUST(large == MAP_FAILED || !is_named(large, name));
    /* The errors and the choice of the kernel. */
    MUST(mmap(NULL, 0, both, shared, -1, 0) == MAP_FAILED && errno == EINVAL);
    MUST(mmap(NULL, 4096, both, shared, -1, 5) == MAP_FAILED && errno == EINVAL);
    char *private = mmap(NULL, 4096, both, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(private != MAP_FAILED && !is_named(private, name));
}

static void limited(void) {
    char name[4096];
    const struct rlimit small = {SIZE, SIZE};
    MUST(setrlimit(RLIMIT_FSIZE, &small) == 0);
    void *place = mmap(NULL, 2 * SIZE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(place != MAP_FAILED && !is_named(place, name));
}

static void rounds(void) {
    uint64_t most = 0;
    for (int i = 0; i < 1000; i++) {
        char *file = mapped("/dev/shm/round"), *other = mapped("/dev/shm/unused");
        memset(file, 1, SIZE);
        memset(other, 1, SIZE);
        MUST(unlink("/dev/shm/round") == 0);
        MUST(munmap(file, SIZE) == 0 && munmap(other, SIZE) == 0);
        MUST(unlink("/dev/shm/unused") == 0);
        char *none = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        MUST(none != MAP_FAILED);
        memset(none, 1, SIZE);
        MUST(munmap(none, SIZE) == 0);
        if (used() > most) most = used();
    }
    MUST(most <= 65ul * SIZE + (64ul << 10));
    /* What is still used stays. */
    char *kept[200], name[4096];
    for (int i = 0; i < 200; i++) {
        kept[i] = mapped("/dev/shm/kept");
        kept[i][0] = (char)i;
        MUST(unlink("/dev/shm/kept") == 0);
    }
    for (int i = 0; i < 200; i++) MUST(kept[i][0] == (char)i && is_named(kept[i], name));
    MUST(aside() < 300);
}

/* Several threads and processes at once, and signal handlers that do it as well. */
static void in_handler(int number) {
    (void)number;
    unlink("/dev/shm/handled");
}

static void *work(void *argument) {
    char path[64], name[4096];
    snprintf(path, sizeof path, "/dev/shm/of.%d.%d", getpid(), (int)(intptr_t)argument);
    for (int i = 0; i < 200; i++) {
        char *place = mapped(path);
        place[0] = (char)i;
        MUST(unlink(path) == 0 && place[0] == (char)i && is_named(place, name));
        raise(SIGUSR1);
        MUST(is_named(place, name) && munmap(place, SIZE) == 0);
    }
    return NULL;
}

static void together(void) {
    pthread_t threads[3];
    signal(SIGUSR1, in_handler);
    char *handled = mapped("/dev/shm/handled"), name[4096];
    int children = 0, status;
    while (children < 2 && fork() != 0) children++;
    for (intptr_t i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    MUST(is_named(handled, name) && strncmp(name, ASIDE, sizeof ASIDE - 1) == 0);
    if (children < 2) exit(0);
    while (children-- > 0) MUST(wait(&status) > 0 && status == 0);
    MUST(aside() < 200);
}

static void vforked(void) {
    char *place = mapped("/dev/shm/segment"), name[4096];
    errno = 77;
    pid_t child = vfork();
    if (child == 0) _exit(unlink("/dev/shm/segment"));
    int status;
    MUST(errno == 77 && waitpid(child, &status, 0) == child && status == 0);
    MUST(is_named(place, name) && !is_there("/dev/shm/segment"));
}

/* Without the variable all is as ever. */
static void off(void) {
    char name[4096], *place = mapped("/dev/shm/segment");
    MUST(unlink("/dev/shm/segment") == 0 && !is_named(place, name) && aside() == -1);
    place = mmap(NULL, SIZE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(place != MAP_FAILED && !is_named(place, name));
    sem_t *semaphore = sem_open("/sem", O_CREAT, 0600, 1);
    MUST(semaphore != SEM_FAILED && sem_unlink("/sem") == 0 && !is_named(semaphore, name));
}

static const struct {
    const char *name;
    void (*run)(void);
} checks[] = {{"reuse", reuse},         {"semaphore", semaphore},
              {"errors", errors},       {"forbidden", forbidden},
              {"anonymous", anonymous}, {"limited", limited},
              {"rounds", rounds},       {"together", together},
              {"vforked", vforked},     {"off", off}};

int main(int argc, char **argv) {
    for (size_t i = 0; argc == 2 && i < sizeof checks / sizeof *checks; i++)
        if (strcmp(argv[1], checks[i].name) == 0) {
            checks[i].run();
            return 0;
        }
    return 2;
}
