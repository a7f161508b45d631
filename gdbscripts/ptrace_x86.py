"""ptrace(2) requests on the threads of the rank, from inside the GDB that traces it.

Sourced first, into the namespace of all of crdebug's scripts. GDB is the tracer, so requests made
in its own (main) thread are its own; x86-64 Linux.
"""

import ctypes
import os
import signal

import gdb

PTRACE_GETREGS, PTRACE_SETREGS = 12, 13
PTRACE_ATTACH, PTRACE_DETACH, PTRACE_SYSCALL, PTRACE_SETOPTIONS = 16, 17, 24, 0x4200
PTRACE_GETREGSET = 0x4204
PTRACE_GETSIGMASK, PTRACE_SETSIGMASK = 0x420A, 0x420B  # since Linux 3.11
NT_X86_XSTATE = 0x202
# What GDB sets on a process that it attached to (gdb/nat/linux-ptrace.c): TRACESYSGOOD, TRACEFORK,
# TRACEVFORK, TRACECLONE, TRACEEXEC, TRACEVFORKDONE.
OPTIONS = 0x01 | 0x02 | 0x04 | 0x08 | 0x10 | 0x20
WALL = 0x40000000
SIGSTOP = int(signal.SIGSTOP)
SYSCALL_STOP = int(signal.SIGTRAP) | 0x80
WORD = (1 << 64) - 1

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
libc.ptrace.restype = ctypes.c_long


class Gone(Exception):
    """The thread has ended."""


REGISTERS = """r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs
    eflags rsp ss fs_base gs_base ds es fs gs"""


class UserRegisters(ctypes.Structure):
    """struct user_regs_struct of <sys/user.h>."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in REGISTERS.split())


def ptrace(request, tid, data=None, address=None):
    if libc.ptrace(request, tid, address, data) != 0:
        error = ctypes.get_errno()
        if error == 3:  # ESRCH
            raise Gone
        raise gdb.GdbError(f"thread {tid}: ptrace: {os.strerror(error)}")


def registers_of(tid):
    found = UserRegisters()
    ptrace(PTRACE_GETREGS, tid, ctypes.byref(found))
    return found


def set_registers(tid, registers):
    ptrace(PTRACE_SETREGS, tid, ctypes.byref(registers))


class Buffer(ctypes.Structure):
    """struct iovec of <sys/uio.h>."""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def extended_state(tid):
    """A thread's x87, vector and further registers as XSAVE lays them out.

    Eight bytes of it are taken out, those that say which parts were in use: a part that is not
    and one that holds nothing but what it starts with are the same.
    """
    room = ctypes.create_string_buffer(1 << 16)
    told = Buffer(ctypes.addressof(room), len(room))
    ptrace(PTRACE_GETREGSET, tid, ctypes.byref(told), NT_X86_XSTATE)
    return room.raw[:512] + bytes(8) + room.raw[520 : told.size]


def wait(tid):
    """Wait for the thread's next stop; returns the signal number with the event above it."""
    while True:
        try:
            _, status = os.waitpid(tid, WALL)
        except ChildProcessError:
            raise Gone from None
        if not os.WIFSTOPPED(status):
            raise Gone
        return status >> 8


def threads():
    return sorted(gdb.selected_inferior().threads(), key=lambda thread: thread.num)


def tids():
    return [thread.ptid[1] for thread in threads()]
