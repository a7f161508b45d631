/* The part of the shim that sees to what the next program preloads: whatever starts a program that is
 * linked with a sanitizer's runtime, that runtime comes before us (see preload.c). What that program
 * starts itself does not have it.
 *
 * All but the constructor may run between vfork(2) and execve(2): it allocates nothing and takes no
 * lock. */
#define _GNU_SOURCE 1
#include "preload.h"

#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static const char PRELOAD[] = "LD_PRELOAD=";
/* Behind a runtime that we have put there is an empty name, which ld.so passes over. */
static const char OURS[] = "::";

typedef int execve_function(const char *, char *const *, char *const *);
typedef int spawn_function(pid_t *, const char *, const posix_spawn_file_actions_t *,
                           const posix_spawnattr_t *, char *const *, char *const *);
static execve_function *real_execve, *real_execvpe;
static spawn_function *real_spawn, *real_spawnp;
static const char *own;

/* The variable that preloads us; -1 if the program has taken it away. */
static long preload_in(char *const envp[]) {
    for (size_t i = 0; envp != NULL && own != NULL && envp[i] != NULL; i++)
        if (strncmp(envp[i], PRELOAD, sizeof PRELOAD - 1) == 0)
            return strstr(envp[i], own) != NULL ? (long)i : -1;
    return -1;
}

/* It was for this program only. */
static void drop_runtime(void) {
    long at = preload_in(environ);
    char *list = at < 0 ? NULL : environ[at] + sizeof PRELOAD - 1;
    size_t first = at < 0 ? 0 : strcspn(list, ": ");
    if (first == 0 || !is_runtime(list, first) || strncmp(list + first, OURS, sizeof OURS - 1) != 0)
        return;
    const char *rest = list + first + sizeof OURS - 1;
    memmove(list, rest, strlen(rest) + 1);
}

__attribute__((constructor(101))) static void find_real(void) {
    Dl_info info;
    int saved_errno = errno;
    *(void **)&real_execve = dlsym(RTLD_NEXT, "execve");
    *(void **)&real_execvpe = dlsym(RTLD_NEXT, "execvpe");
    *(void **)&real_spawn = dlsym(RTLD_NEXT, "posix_spawn");
    *(void **)&real_spawnp = dlsym(RTLD_NEXT, "posix_spawnp");
    if (dladdr((void *)find_real, &info) != 0) own = info.dli_fname;
    drop_runtime();
    errno = saved_errno;
}

/* The file that execvp(3) would start, in `path`. */
static const char *searched(const char *file, char path[PATH_MAX]) {
    if (strchr(file, '/') != NULL) return file;
    const char *list = getenv("PATH");
    size_t length = strlen(file);
    for (; list != NULL && *list != 0; list += *list == ':') {
        size_t part = strcspn(list, ":");
        if (part + length + 2 <= PATH_MAX) {
            memcpy(path, list, part);
            if (part > 0) path[part++] = '/';
            memcpy(path + part, file, length + 1);
            if (access(path, X_OK) == 0) return path;
            part -= part > 0;
        }
        list += part;
    }
    return file;
}

static size_t size_of(char *const envp[]) {
    size_t count = 0;
    while (envp != NULL && envp[count] != NULL) count++;
    return count;
}

/* Write into `text` what the program is to preload; has that to be changed? */
static int changed(const char *program, const char *list, char *text) {
    char runtime[CRDEBUG_LONGEST_RUNTIME];
    if (!runtime_of(program, runtime) || runtimes_first(list) > 0) return 0;
    stpcpy(stpcpy(stpcpy(stpcpy(text, PRELOAD), runtime), OURS), list);
    return 1;
}

/* The environment for a program, on the caller's stack. */
#define FOR(program, envp) \
    ({ \
        char *const *told = (envp); \
        long at = preload_in(told); \
        if (at >= 0) { \
            const char *list = told[at] + sizeof PRELOAD - 1; \
            char *text = \
                alloca(sizeof PRELOAD + sizeof OURS + CRDEBUG_LONGEST_RUNTIME + strlen(list)); \
            if (changed((program), list, text)) { \
                size_t size = (size_of(told) + 1) * sizeof *told; \
                char **other = alloca(size); \
                memcpy(other, told, size); \
                other[at] = text; \
                told = other; \
            } \
        } \
        told; \
    })

static int call_execve(const char *path, char *const argv[], char *const envp[]) {
    if (real_execve != NULL) return real_execve(path, argv, envp);
    return (int)syscall(SYS_execve, path, argv, envp); /* before our constructor */
}

EXPORT int execve(const char *path, char *const argv[], char *const envp[]) {
    return call_execve(path, argv, FOR(path, envp));
}

EXPORT int execv(const char *path, char *const argv[]) {
    return call_execve(path, argv, FOR(path, environ));
}

EXPORT int execvpe(const char *file, char *const argv[], char *const envp[]) {
    char path[PATH_MAX];
    if (real_execvpe == NULL) return call_execve(searched(file, path), argv, envp);
    return real_execvpe(file, argv, FOR(searched(file, path), envp));
}

EXPORT int execvp(const char *file, char *const argv[]) { return execvpe(file, argv, environ); }

EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const argv[],
                       char *const envp[]) {
    if (real_spawn == NULL) return ENOSYS;
    return real_spawn(pid, path, actions, attributes, argv, FOR(path, envp));
}

EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attributes, char *const argv[],
                        char *const envp[]) {
    char path[PATH_MAX];
    if (real_spawnp == NULL) return ENOSYS;
    return real_spawnp(pid, file, actions, attributes, argv, FOR(searched(file, path), envp));
}
