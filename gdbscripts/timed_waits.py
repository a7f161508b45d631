"""Find threads that were stopped while they waited in a system call for a limited time.

-crdebug-waits
    {waits=[{tid, place, ms, kept, leader}]}: threads in a call that may begin anew when they go on,
    with its whole time limit of `ms` milliseconds. place: the call as the program made it, equal
    for the same call.  kept: 1 if the call goes on with the remaining time after a plain stop (the
    kernel does that by restart_syscall(2)), and begins anew only after a checkpoint.  leader: 1 for
    the main thread.

The list leaves out calls that wait until a point in time, and those whose time limit the kernel
itself shortens when they are interrupted (select(2), ppoll(2)). It also leaves out threads that MPI
has started for itself: Open MPI's and PMIx's always wait for minutes or hours, for events, and wake
up in between for nothing (PMIx, pmix_progress_threads.c).
"""

from __future__ import annotations

import ctypes
import os
import re
import struct

import gdb

from .ptrace import WORD, Gone, libc, registers_of, threads
from .rank_state import Selection
from .snapshot.memory import Memory
from .system_calls import (
    CLOCK_NANOSLEEP,
    FUTEX,
    NANOSLEEP,
    POLL,
    RESTART_SYSCALL,
    original_call,
)
from .wire import EINTR, ERESTART_RESTARTBLOCK, Command, is_inside_call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .ptrace import UserRegisters
    from .wire import Answer

IN_MS = {POLL: "rdx", 232: "r10", 281: "r10"}  # epoll_wait, epoll_pwait
# rt_sigtimedwait, semtimedop, epoll_pwait2, io_getevents, io_pgetevents
IN_TIMESPEC = {NANOSLEEP: "rdi", FUTEX: "r10", CLOCK_NANOSLEEP: "rdx"}
IN_TIMESPEC |= {128: "rdx", 220: "r10", 441: "r10", 208: "r8", 333: "r8"}
FUTEX_WAIT, FUTEX_COMMAND = 0, 127
TIMER_ABSTIME = 1
PIDFD_GETFD = 438
SOL_SOCKET, SO_RCVTIMEO, SO_SNDTIMEO = 1, 20, 21
# MPI libraries, and the libraries that start threads for them.
OF_MPI = re.compile(r"lib(mpi|mpich|open-pal|open-rte|pmix|prrte|ucs|uct|ucp|fabric|psm2?)\b|mca_")

# By TID, whether MPI has started the thread, once we have checked.
of_mpi: dict[int, bool] = {}


def socket_limit(pid: int, descriptor: int) -> int:
    """The longer of a socket's two time limits in ms; 0 for other files, and without a limit."""
    found, process, own = 0, os.pidfd_open(pid), -1
    try:
        own = libc.syscall(PIDFD_GETFD, process, descriptor, 0)
        for option in (SO_RCVTIMEO, SO_SNDTIMEO) if own >= 0 else ():
            room, size = (ctypes.c_long * 2)(), ctypes.c_uint(16)
            if libc.getsockopt(own, SOL_SOCKET, option, room, ctypes.byref(size)) == 0:
                found = max(found, room[0] * 1000 + room[1] // 1000)
    finally:
        os.close(process)
        if own >= 0:
            os.close(own)
    return found


def time_limit(pid: int, number: int, registers: UserRegisters, memory: Memory) -> int:
    """The time limit, in ms, of a call that begins anew with it; 0 for other calls."""
    if number in IN_MS:
        milliseconds = ctypes.c_int(getattr(registers, IN_MS[number]) & 0xFFFFFFFF).value
        return max(0, milliseconds)
    if number not in IN_TIMESPEC:
        return socket_limit(pid, registers.rdi & 0xFFFFFFFF)
    until = (number == CLOCK_NANOSLEEP and registers.rsi & TIMER_ABSTIME) or (
        number == FUTEX and registers.rsi & FUTEX_COMMAND != FUTEX_WAIT
    )
    address = getattr(registers, IN_TIMESPEC[number])
    if until or address == 0:
        return 0
    seconds: int
    nanoseconds: int
    seconds, nanoseconds = struct.unpack("<qq", memory.read(address, 16))
    return seconds * 1000 + nanoseconds // 1000000


def is_of_mpi(thread: gdb.InferiorThread) -> bool:
    """Does a thread's outermost function, except the C library's, belong to MPI?"""
    thread.switch()
    frame: gdb.Frame | None = gdb.newest_frame()
    libraries = []
    try:
        while frame is not None:
            libraries.append(os.path.basename(gdb.solib_name(frame.pc()) or ""))
            frame = frame.older()
    except gdb.error:
        pass  # the stack is unreadable further out: use the frames so far
    own = [name for name in libraries if not name.startswith(("libc.", "libc-", "libpthread"))]
    return bool(own and OF_MPI.match(own[-1]))


def wait_of(pid: int, thread: gdb.InferiorThread) -> dict[str, str] | None:
    """A thread's row of -crdebug-waits, or None."""
    tid = thread.ptid[1]
    now = registers_of(tid)
    kept = now.rax == -ERESTART_RESTARTBLOCK & WORD
    if not is_inside_call(now.orig_rax) or not (kept or now.rax == -EINTR & WORD):
        return None
    with Memory(tid) as memory:  # the process's memory; its main thread may have ended
        number = now.orig_rax
        if number == RESTART_SYSCALL:
            number = original_call(memory, now)
        limit = time_limit(pid, number, now, memory)
    if limit <= 0:
        return None
    if tid not in of_mpi:
        of_mpi[tid] = tid != pid and is_of_mpi(thread)
    if of_mpi[tid]:
        return None
    arguments = (now.rdi, now.rsi, now.rdx, now.r10, now.r8, now.r9)
    place = "-".join(f"{each:x}" for each in (number, now.rip, now.rsp, *arguments))
    row = {"tid": str(tid), "place": place, "ms": str(limit), "kept": str(int(kept))}
    return row | {"leader": str(int(tid == pid))}


class Waits(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        found, pid = [], gdb.selected_inferior().pid
        present = threads()
        for tid in of_mpi.keys() - {thread.ptid[1] for thread in present}:
            del of_mpi[tid]
        with Selection():
            for thread in present:
                try:
                    row = wait_of(pid, thread)
                except (Gone, OSError, struct.error):
                    continue  # killed while it was stopped, or an address that makes the call fail
                if row is not None:
                    found.append(row)
        return {"waits": found}


Waits(Command.WAITS)
