/* The part of the shim that lets shared memory keep a name.
 *
 * A CRIU without privileges opens what a process has mapped by its name: /proc/PID/map_files takes
 * CAP_CHECKPOINT_RESTORE in the first user namespace (fs/proc/base.c, proc_map_files_get_link). MPI
 * libraries map a file of /dev/shm and remove it at once. So a file that is removed there moves aside
 * if somebody uses it: its mappings and descriptors have a name again, and its own name is free. An
 * anonymous shared mapping is made one of such a file from the beginning.
 *
 * CRDEBUG_ASIDE=1 in the environment switches it on. Whatever cannot be done here is left to the real
 * call, and so are its errors. All but the constructor may run in a signal handler or after vfork(2):
 * it allocates nothing, takes no lock, and leaves errno alone unless it fails. */
#define _GNU_SOURCE 1
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h> /* renameat2 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define SHARED_MEMORY "/dev/shm"
#define ASIDE SHARED_MEMORY "/.crdebug"

enum { LONGEST_NAME = sizeof ASIDE + 32, TRIES = 4096, OFTEN = 64 };
static const uint64_t MUCH = 64 << 20;

typedef void *mmap_function(void *, size_t, int, int, int, off_t);
static int (*real_unlink)(const char *), (*real_remove)(const char *);
static int (*real_unlinkat)(int, const char *, int);
static int (*real_shm_unlink)(const char *), (*real_sem_unlink)(const char *);
typedef sem_t *sem_open_function(const char *, int, ...);
static mmap_function *real_mmap;
static sem_open_function *real_sem_open;
static int on;

static uint32_t names; /* that this process has given to files aside */
static uint32_t since, limit = OFTEN; /* files put aside since the last sweep, and its time */
static uint64_t bytes; /* of those */

__attribute__((constructor(101))) static void find_real(void) {
    int saved_errno = errno;
    const char *asked = getenv("CRDEBUG_ASIDE");
    *(void **)&real_unlink = dlsym(RTLD_NEXT, "unlink");
    *(void **)&real_unlinkat = dlsym(RTLD_NEXT, "unlinkat");
    *(void **)&real_remove = dlsym(RTLD_NEXT, "remove");
    *(void **)&real_shm_unlink = dlsym(RTLD_NEXT, "shm_unlink");
    *(void **)&real_sem_unlink = dlsym(RTLD_NEXT, "sem_unlink");
    *(void **)&real_sem_open = dlsym(RTLD_NEXT, "sem_open");
    *(void **)&real_mmap = dlsym(RTLD_NEXT, "mmap");
    on = asked != NULL && strcmp(asked, "1") == 0 && real_unlink != NULL && real_unlinkat != NULL &&
         real_remove != NULL && real_shm_unlink != NULL && real_mmap != NULL;
    errno = saved_errno;
}

/* ---- names ------------------------------------------------------------------------------------- */

static char *put_number(char *end, uint32_t number) {
    char digits[10];
    int count = 0;
    do digits[count++] = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    while (count > 0) *end++ = digits[--count];
    *end = 0;
    return end;
}

/* A name that this process has not given yet; another program under its PID may have. */
static void next_name(char name[LONGEST_NAME]) {
    char *end = put_number(stpcpy(name, ASIDE "/"), (uint32_t)getpid());
    *end++ = '.';
    put_number(end, __atomic_fetch_add(&names, 1, __ATOMIC_RELAXED));
}

/* Call `try` with new names until one is free; 0 or more if it did its work. */
static long with_name(char name[LONGEST_NAME], long (*try)(const char *, void *), void *what) {
    int made = 0;
    for (int tries = 0; tries < TRIES; tries++) {
        next_name(name);
        long result = try(name, what);
        if (result >= 0) return result;
        if (errno == EEXIST) continue;
        /* The directory is made on demand, whatever the umask; somebody else may make it, too. */
        if (errno != ENOENT || made++) break;
        if (mkdir(ASIDE, 0700) == 0 ? chmod(ASIDE, 0700) != 0 : errno != EEXIST) break;
    }
    return -1;
}

/* ---- files that nobody uses -------------------------------------------------------------------- */

/* Remove a file aside, unless a process has it open or mapped: then the kernel grants no lease for
 * writing (fcntl(2)). Nobody opens it by its name but another sweep; the signal for that goes to PID
 * 1, which does not notice it. */
static int remove_unused(int directory, const char *name) {
    int file = openat(directory, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0) return errno == ENOENT;
    int unused = fcntl(file, F_SETSIG, SIGURG) == 0 && fcntl(file, F_SETOWN, 1) == 0 &&
                 fcntl(file, F_SETLEASE, F_WRLCK) == 0;
    if (unused) {
        fcntl(file, F_SETLEASE, F_UNLCK);
        unused = real_unlinkat(directory, name, 0) == 0;
    }
    close(file);
    return unused;
}

struct entry { /* getdents64(2) */
    uint64_t inode, next;
    uint16_t length;
    uint8_t kind;
    char name[];
};

static void sweep(void) {
    uint32_t left = 0;
    char room[1024] __attribute__((aligned(8)));
    int directory = open(ASIDE, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory < 0) return;
    for (long got; (got = syscall(SYS_getdents64, directory, room, sizeof room)) > 0;)
        for (long at = 0; at < got;) {
            const struct entry *entry = (const struct entry *)(room + at);
            if (entry->kind == DT_REG) left += !remove_unused(directory, entry->name);
            at += entry->length;
        }
    close(directory);
    /* A job that uses many of them does not look at each of them too often. */
    __atomic_store_n(&limit, left > OFTEN ? left : OFTEN, __ATOMIC_RELAXED);
}

static void count(uint64_t size) {
    uint32_t files = __atomic_add_fetch(&since, 1, __ATOMIC_RELAXED);
    uint64_t all = __atomic_add_fetch(&bytes, size, __ATOMIC_RELAXED);
    if (files < __atomic_load_n(&limit, __ATOMIC_RELAXED) && all < MUCH) return;
    __atomic_store_n(&since, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&bytes, 0, __ATOMIC_RELAXED);
    sweep();
}

/* ---- removing ---------------------------------------------------------------------------------- */

struct place {
    int directory;
    const char *path;
};

static long move(const char *name, void *what) {
    const struct place *from = what;
    return renameat2(from->directory, from->path, AT_FDCWD, name, RENAME_NOREPLACE);
}

/* Does it lie on the file system that is mounted at /dev/shm? */
static int is_in_memory(const struct stat *file) {
    struct stat memory, above;
    return stat(SHARED_MEMORY, &memory) == 0 && file->st_dev == memory.st_dev &&
           stat(SHARED_MEMORY "/..", &above) == 0 && above.st_dev != memory.st_dev;
}

/* Is the file out of the way? Else the real call is to be made. */
static int moved(int directory, const char *path) {
    int saved_errno = errno, done = 0;
    struct stat file;
    struct place from = {directory, path};
    char name[LONGEST_NAME];
    if (on && path != NULL && fstatat(directory, path, &file, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(file.st_mode) && is_in_memory(&file) && with_name(name, move, &from) == 0) {
        done = 1;
        if (!remove_unused(AT_FDCWD, name)) count(512 * (uint64_t)file.st_blocks);
    }
    errno = saved_errno;
    return done;
}

/* The path of what shm_open(3), or with the prefix sem_open(3), has made; NULL if it makes none. */
static const char *path_of(const char *name, const char *prefix, char path[PATH_MAX]) {
    if (name == NULL) return NULL;
    name += strspn(name, "/");
    if (*name == 0 || strlen(name) > NAME_MAX || strchr(name, '/') != NULL) return NULL;
    stpcpy(stpcpy(stpcpy(path, SHARED_MEMORY "/"), prefix), name);
    return path;
}

EXPORT int unlink(const char *path) {
    if (moved(AT_FDCWD, path)) return 0;
    return real_unlink != NULL ? real_unlink(path) : (int)syscall(SYS_unlink, path);
}

EXPORT int unlinkat(int directory, const char *path, int flags) {
    if (flags == 0 && moved(directory, path)) return 0;
    if (real_unlinkat != NULL) return real_unlinkat(directory, path, flags);
    return (int)syscall(SYS_unlinkat, directory, path, flags);
}

EXPORT int remove(const char *path) {
    if (moved(AT_FDCWD, path)) return 0;
    if (real_remove != NULL) return real_remove(path);
    if (syscall(SYS_unlink, path) == 0) return 0;
    return errno == EISDIR ? (int)syscall(SYS_rmdir, path) : -1;
}

EXPORT int shm_unlink(const char *name) {
    char path[PATH_MAX];
    if (on && moved(AT_FDCWD, path_of(name, "", path))) return 0;
    if (real_shm_unlink != NULL) return real_shm_unlink(name);
    errno = ENOSYS; /* before our constructor, and without its library */
    return -1;
}

EXPORT int sem_unlink(const char *name) {
    char path[PATH_MAX];
    if (on && moved(AT_FDCWD, path_of(name, "sem.", path))) return 0;
    if (real_sem_unlink != NULL) return real_sem_unlink(name);
    errno = ENOSYS;
    return -1;
}

/* ---- making ------------------------------------------------------------------------------------ */

static long make(const char *name, void *what) {
    const mode_t *mode = what;
    return open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, *mode);
}

/* The C library makes a semaphore under a name of its own, maps it, links the name that was asked for
 * and removes its own one: the mapping has no name then. So it finds the semaphore made. */
static int made_semaphore(const char *path, mode_t mode, unsigned value) {
    char name[LONGEST_NAME];
    sem_t content;
    memset(&content, 0, sizeof content);
    if (sem_init(&content, 1, value) != 0) return 0;
    int file = (int)with_name(name, make, &mode);
    if (file < 0) return 0;
    int done = write(file, &content, sizeof content) == sizeof content;
    close(file);
    done = done && renameat2(AT_FDCWD, name, AT_FDCWD, path, RENAME_NOREPLACE) == 0;
    if (!done) real_unlink(name);
    return done;
}

EXPORT sem_t *sem_open(const char *name, int flags, ...) {
    char path[PATH_MAX];
    mode_t mode = 0;
    unsigned value = 0;
    if (flags & O_CREAT) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        value = va_arg(more, unsigned);
        va_end(more);
    }
    if (real_sem_open == NULL) {
        errno = ENOSYS;
        return SEM_FAILED;
    }
    if (on && flags & O_CREAT && path_of(name, "sem.", path) != NULL) {
        int saved_errno = errno;
        sem_t *found = SEM_FAILED;
        if (made_semaphore(path, mode, value)) {
            found = real_sem_open(name, flags & ~(O_CREAT | O_EXCL));
            if (found == SEM_FAILED) real_unlink(path);
        }
        errno = saved_errno;
        if (found != SEM_FAILED) return found;
    }
    return real_sem_open(name, flags, mode, value);
}

static int wants_file(size_t length, int flags, off_t offset) {
    int kind = flags & MAP_TYPE;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (kind == MAP_SHARED || kind == MAP_SHARED_VALIDATE) && flags & MAP_ANONYMOUS &&
           !(flags & MAP_HUGETLB) && length > 0 && length <= INT64_MAX - page &&
           (uint64_t)offset % page == 0;
}

/* Is there room for it, if all of it is written? A file that is too large is a signal
 * (setrlimit(2)), and so is a page for which there is no room (mmap(2)). */
static int has_room(uint64_t size, int flags) {
    struct rlimit most;
    struct statvfs memory;
    if (getrlimit(RLIMIT_FSIZE, &most) != 0 || size > most.rlim_cur) return 0;
    if (flags & MAP_NORESERVE) return 1;
    return statvfs(SHARED_MEMORY, &memory) == 0 &&
           (memory.f_blocks == 0 || size / memory.f_frsize < memory.f_bavail);
}

static void *mapped_aside(void *address, size_t length, int protection, int flags) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), size = (length + page - 1) / page * page;
    char name[LONGEST_NAME];
    mode_t mode = 0600;
    void *result = MAP_FAILED;
    if (!has_room(size, flags)) return result;
    int file = (int)with_name(name, make, &mode);
    if (file < 0) return result;
    if (ftruncate(file, (off_t)size) == 0)
        result = real_mmap(address, length, protection, flags & ~MAP_ANONYMOUS, file, 0);
    close(file);
    if (result == MAP_FAILED) real_unlink(name);
    else count(size);
    return result;
}

EXPORT void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset) {
    if (on && wants_file(length, flags, offset)) {
        int saved_errno = errno;
        void *result = mapped_aside(address, length, protection, flags);
        errno = saved_errno;
        if (result != MAP_FAILED) return result;
    }
    if (real_mmap != NULL) return real_mmap(address, length, protection, flags, file, offset);
    return (void *)syscall(SYS_mmap, address, length, protection, flags, file, offset);
}

EXPORT void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));
