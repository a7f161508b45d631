// Lets a GDB write registers that it does not know all of. Preloaded into GDBs.
//
// Linux takes a thread's extended registers (NT_X86_XSTATE) only as a whole: if the area is shorter
// than the kernel's own, it answers EFAULT (arch/x86/kernel/fpu/regset.c, xstateregs_set). GDBs
// before 14 have an area that ends with PKRU (gdbsupport/x86-xstate.h: 2696 bytes), and on a
// processor with AMX the kernel's is longer, because the tiles come last. There such a GDB calls no
// function and sets no vector register: "Couldn't write extended state status: Bad address".
//
// So where the kernel refuses an area for this reason, we read the whole one, put GDB's at its
// front, and write that. GDB's has the header with the parts in use, as GDB got it from the kernel,
// so what comes behind stays as it is.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

#define MOST (1 << 16) // bytes; with AMX it is 11008

typedef long ptrace_function(enum __ptrace_request, ...);
static ptrace_function *real_ptrace;

__attribute__((constructor(101))) static void find_real(void) {
    int saved_errno = errno;
    *(void **)&real_ptrace = dlsym(RTLD_NEXT, "ptrace");
    errno = saved_errno;
}

// -1: it is not too short, or the kernel refuses it all the same.
static long write_whole(pid_t tid, void *kind, const struct iovec *front) {
    char area[MOST];
    struct iovec whole = {area, sizeof area};
    if (real_ptrace(PTRACE_GETREGSET, tid, kind, &whole) != 0 || whole.iov_len <= front->iov_len) {
        return -1;
    }
    memcpy(area, front->iov_base, front->iov_len);
    return real_ptrace(PTRACE_SETREGSET, tid, kind, &whole);
}

// ptrace(2), with its errno too: a word that PTRACE_PEEKDATA reads may be -1. Like the C library's,
// it takes three arguments behind the request, however many there are.
__attribute__((visibility("default"))) long ptrace(enum __ptrace_request request, ...) {
    va_list arguments;
    va_start(arguments, request);
    pid_t tid = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *);
    void *data = va_arg(arguments, void *);
    va_end(arguments);
    int saved_errno = errno;
    long answer = real_ptrace(request, tid, address, data);
    if (request != PTRACE_SETREGSET || (uintptr_t)address != NT_X86_XSTATE || answer == 0 ||
        errno != EFAULT) {
        return answer;
    }
    answer = write_whole(tid, address, data);
    errno = answer == 0 ? saved_errno : EFAULT;
    return answer;
}
