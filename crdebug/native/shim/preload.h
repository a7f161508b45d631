/* What a program loads before all others (LD_PRELOAD, ld.so(8)), when its runtime has to be first. */
#ifndef CRDEBUG_PRELOAD_H
#define CRDEBUG_PRELOAD_H

#include <stddef.h>

#define CRDEBUG_LONGEST_RUNTIME 128

/* Is this library, by its name or path of `length` bytes, a sanitizer's runtime? */
int is_runtime(const char *library, size_t length);

/* The name of the sanitizer's runtime that a program is linked with dynamically, in `name`; 0 if
 * there is none, or the file cannot be read as a program. Async-signal-safe. */
int runtime_of(const char *program, char name[CRDEBUG_LONGEST_RUNTIME]);

/* How much of a list of libraries, from its beginning, are sanitizers' runtimes. */
size_t runtimes_first(const char *list);

#endif
