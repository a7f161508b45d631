/* libcrdebug_app.a: finds in the process what crdebug has put there, or says that it is not here. */
#define _GNU_SOURCE 1
#include "crdebug_app.h"

#include <dlfcn.h>
#include <stddef.h>

static void *find(const char *name) { return dlsym(RTLD_DEFAULT, name); }

int crdebug_checkpoint(const char *note, int *number) {
    int (*function)(const char *, int *);
    *(void **)&function = find("crdebug_app_checkpoint");
    return function == NULL ? CRDEBUG_NOT_HERE : function(note, number);
}

int crdebug_restart(int number) {
    int (*function)(int);
    *(void **)&function = find("crdebug_app_restart");
    return function == NULL ? CRDEBUG_NOT_HERE : function(number);
}

/* These may be called often, so that the look is kept. Threads that look at once see the same. */
static int call(const char *name, int (**function)(void), int *looked) {
    if (!__atomic_load_n(looked, __ATOMIC_ACQUIRE)) {
        *(void **)function = find(name);
        __atomic_store_n(looked, 1, __ATOMIC_RELEASE);
    }
    return *function == NULL ? CRDEBUG_NOT_HERE : (*function)();
}

int crdebug_quiet_start(void) {
    static int (*function)(void);
    static int looked;
    return call("crdebug_app_quiet_start", &function, &looked);
}

int crdebug_quiet_end(void) {
    static int (*function)(void);
    static int looked;
    return call("crdebug_app_quiet_end", &function, &looked);
}

int crdebug_register(crdebug_callback *callback, void *data) {
    int (*function)(crdebug_callback *, void *);
    *(void **)&function = find("crdebug_app_register");
    return function == NULL ? CRDEBUG_NOT_HERE : function(callback, data);
}

int crdebug_refuse(const char *reason) {
    int (*function)(const char *);
    *(void **)&function = find("crdebug_app_refuse");
    return function == NULL ? 1 : function(reason);
}

const char *crdebug_reason(void) {
    const char *(*function)(void);
    *(void **)&function = find("crdebug_app_reason");
    return function == NULL ? "" : function();
}
