"""ptrace(2) requests on the threads of the rank, from inside the GDB that traces it.

GDB's main thread is the tracer, so requests that we make in that thread count as its own. x86-64
Linux.
"""

from __future__ import annotations

import ctypes
import os
import signal

import gdb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PTRACE_CONT, PTRACE_GETREGS, PTRACE_SETREGS = 7, 12, 13
PTRACE_ATTACH, PTRACE_DETACH, PTRACE_SYSCALL, PTRACE_SETOPTIONS = 16, 17, 24, 0x4200
PTRACE_GETREGSET, PTRACE_SETREGSET = 0x4204, 0x4205
PTRACE_GETSIGINFO, PTRACE_SETSIGINFO = 0x4202, 0x4203
PTRACE_GETSIGMASK, PTRACE_SETSIGMASK = 0x420A, 0x420B  # since Linux 3.11
NT_X86_XSTATE = 0x202
# GDB's options for a process to which it attaches (gdb/nat/linux-ptrace.c): TRACESYSGOOD,
# TRACEFORK, TRACEVFORK, TRACECLONE, TRACEEXEC, TRACEVFORKDONE.
OPTIONS = 0x01 | 0x02 | 0x04 | 0x08 | 0x10 | 0x20
TRACE_EXIT, EVENT_EXIT = 0x40, 6  # of ptrace(2), which GDB does not use
WALL = 0x40000000
SIGSTOP = int(signal.SIGSTOP)
SYSCALL_STOP = int(signal.SIGTRAP) | 0x80
TGKILL = 234
SIGINFO_SIZE = 128  # sizeof(siginfo_t), <asm-generic/siginfo.h>
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
    rip: int
    rsp: int
    rax: int
    orig_rax: int
    eflags: int
    rdi: int
    rsi: int
    rdx: int
    r10: int
    r8: int
    r9: int


def ptrace(request: int, tid: int, data: object = None, address: int | None = None) -> None:
    if libc.ptrace(request, tid, address, data) == -1:  # some requests return a size
        error = ctypes.get_errno()
        if error == 3:  # ESRCH
            raise Gone
        raise gdb.GdbError(f"thread {tid}: ptrace: {os.strerror(error)}")


def registers_of(tid: int) -> UserRegisters:
    found = UserRegisters()
    ptrace(PTRACE_GETREGS, tid, ctypes.byref(found))
    return found


def set_registers(tid: int, registers: UserRegisters) -> None:
    ptrace(PTRACE_SETREGS, tid, ctypes.byref(registers))


def stop_info(tid: int) -> bytes:
    """The siginfo_t of the signal at which the thread has stopped; none for a job control stop."""
    room = ctypes.create_string_buffer(SIGINFO_SIZE)
    try:
        ptrace(PTRACE_GETSIGINFO, tid, ctypes.byref(room))
    except gdb.GdbError:
        return bytes(SIGINFO_SIZE)
    return room.raw


def set_stop_info(tid: int, info: bytes) -> None:
    ptrace(PTRACE_SETSIGINFO, tid, ctypes.create_string_buffer(info, len(info)))


def signal_number(info: bytes) -> int:
    return int.from_bytes(info[:4], "little")


class Buffer(ctypes.Structure):
    """struct iovec of <sys/uio.h>."""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))
    size: int


def raw_xstate(tid: int) -> bytes:
    """A thread's x87, vector and further registers as XSAVE lays them out."""
    room = ctypes.create_string_buffer(1 << 16)
    told = Buffer(ctypes.addressof(room), len(room))
    ptrace(PTRACE_GETREGSET, tid, ctypes.byref(told), NT_X86_XSTATE)
    return room.raw[: told.size]


def set_raw_xstate(tid: int, data: bytes) -> None:
    room = ctypes.create_string_buffer(data, len(data))
    told = Buffer(ctypes.addressof(room), len(data))
    ptrace(PTRACE_SETREGSET, tid, ctypes.byref(told), NT_X86_XSTATE)


def extended_state(tid: int) -> bytes:
    """`raw_xstate`, for comparisons.

    Without the eight bytes that say which parts are in use: an unused part equals one that holds
    only its initial values.
    """
    state = raw_xstate(tid)
    return state[:512] + bytes(8) + state[520:]


def signal_mask(tid: int) -> int:
    """The signals that a thread blocks, without those that a call like ppoll(2) blocks
    meanwhile."""
    mask = ctypes.c_uint64()
    ptrace(PTRACE_GETSIGMASK, tid, ctypes.byref(mask), ctypes.sizeof(mask))
    return mask.value


def set_signal_mask(tid: int, value: int) -> None:
    mask = ctypes.c_uint64(value)
    ptrace(PTRACE_SETSIGMASK, tid, ctypes.byref(mask), ctypes.sizeof(mask))


# TID -> a stop that waitpid(2) returned while we waited for another thread's.
early: dict[int, int] = {}
# What else has to be done first; what it answers is the command's answer.
before_lending: list[Callable[[], dict[str, object]]] = []
# Processes and threads that this GDB holds too and that are none of the rank's: its frozen copies.
# Thread -> its process.
apart: dict[int, int] = {}


def wait(tid: int) -> int:
    """Wait for the thread's next stop; returns the signal number with the event above it.

    Raises Gone when any thread has ended: the kernel reports the death of a process's first thread
    only after the ends of all others (ptrace(2), "Death under ptrace"), so a wait for just that one
    would never end.
    """
    while tid not in early:
        try:
            other, status = os.waitpid(-1, WALL)
        except ChildProcessError:
            other, status = tid, 0
        if other in apart and other != tid:
            continue
        if not os.WIFSTOPPED(status):
            early.clear()
            raise Gone
        early[other] = status >> 8
    return early.pop(tid)


def signal_set(tid: int, name: str) -> int:
    """A signal set of /proc/PID/status, bit n - 1 for signal n."""
    with open(f"/proc/{tid}/status") as file:
        (found,) = (int(line.split()[1], 16) for line in file if line.startswith(f"{name}:"))
    return found


def comes_next(tid: int) -> int:
    """The signals in a thread's own queue that it gets when it goes on, except SIGSTOP."""
    queued = signal_set(tid, "SigPnd") & ~(1 << (SIGSTOP - 1))
    return queued and queued & ~signal_set(tid, "SigBlk")


def ends_call(tid: int) -> int:
    """Those of `comes_next` with a handler, which ends the thread's system call."""
    coming = comes_next(tid)
    return coming and coming & signal_set(tid, "SigCgt")


def run_into(tid: int, number: int, give: int) -> None:
    """Make a stopped thread stop at a signal that it is about to get, before any other.

    give: a signal to pass first; if the thread blocks it, it is queued. The thread executes no
    instruction.
    """
    mask = signal_mask(tid)
    set_signal_mask(tid, WORD & ~(1 << (number - 1)))
    ptrace(PTRACE_SYSCALL, tid, give)
    while wait(tid) != number:
        ptrace(PTRACE_SYSCALL, tid)  # a SIGSTOP, which cannot be blocked, and which we do not need
    set_signal_mask(tid, mask)


def stop_at_signal(tid: int, info: bytes) -> None:
    """Make a stopped thread, which is in no system call, stop at a signal with this siginfo_t.

    If the signal is in the thread's queue, it is that one.
    """
    number = signal_number(info)
    queued = signal_set(tid, "SigPnd") >> (number - 1) & 1
    run_into(tid, number, 0 if queued else number)
    set_stop_info(tid, info)


def take_stop(tid: int) -> bool:
    """Remove a SIGSTOP from a stopped thread's own queue; was there one?"""
    if not signal_set(tid, "SigPnd") >> (SIGSTOP - 1) & 1:
        return False
    run_into(tid, SIGSTOP, 0)
    return True


def send_stop(tid: int) -> None:
    libc.syscall(TGKILL, gdb.selected_inferior().pid, tid, SIGSTOP)


def threads() -> list[gdb.InferiorThread]:
    return sorted(gdb.selected_inferior().threads(), key=lambda thread: thread.num)


def is_core() -> bool:
    """Does GDB look at a core file? Its threads' numbers may be those of others by now."""
    connection = gdb.selected_inferior().connection
    return connection is not None and connection.type == "core"


def tids() -> list[int]:
    return [] if is_core() else [thread.ptid[1] for thread in threads()]
