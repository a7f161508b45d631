"""Call functions in the stopped rank so that only the effect of the calls remains.

GDB's own function calls are not enough: they let signal handlers run, and some versions lose
registers of AVX-512. Here one thread runs, with all signals but faults blocked, below its red zone.
Then we restore its registers (vector and floating-point ones too), its signal mask and errno, and
verify them.

-crdebug-inject DLOPEN ERRNO SIGNAL RANK PATH
    Load the library PATH and call crdebug_adopt(RANK, SIGNAL) in it. DLOPEN and ERRNO are the
    addresses of dlopen and __errno_location.
    {moved=[TID, ...]}: threads that were inside the allocator or the dynamic linker, where dlopen
    must not be called; each ran on alone until it had left. An error gives the reason for a
    failure; the rank is then as before.
-crdebug-before-calls
    Move threads that a stop has interrupted in a system call back to just before it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import time

import gdb

from .ptrace import (
    EVENT_EXIT,
    OPTIONS,
    PTRACE_CONT,
    PTRACE_SETOPTIONS,
    PTRACE_SETREGS,
    SIGSTOP,
    TGKILL,
    TRACE_EXIT,
    WALL,
    WORD,
    Gone,
    UserRegisters,
    libc,
    ptrace,
    raw_xstate,
    registers_of,
    set_raw_xstate,
    set_registers,
    set_signal_mask,
    signal_mask,
    threads,
)
from .rank_state import (
    Selection,
    awaiting,
    symbol_address,
    unsettled,
)
from .system_calls import RESTART_SYSCALL, code_before, loaded_call
from .wire import Command, was_interrupted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire import Answer

RED_ZONE = 128
SECONDS = 10.0
TRIES, MOMENT = 200, 0.002
RTLD_NOW = 2
LET_THROUGH = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP)
# A thread in one of these may hold a lock that dlopen needs, or have changed its data only halfway.
UNSAFE = re.compile(
    r"_*(libc_)?(malloc|calloc|realloc|free|memalign|aligned_alloc|posix_memalign|valloc|pvalloc)"
    r"(_consolidate|_trim)?$|_int_|sysmalloc|systrim|tcache_|arena_get|ptmalloc|_*dl|do_dl|fork"
)


class Ending(gdb.GdbError):
    """A thread has come to its end, and stands right before it."""


def is_unsafe(thread: gdb.InferiorThread) -> bool:
    """Is the allocator or the dynamic linker anywhere on the thread's stack?"""
    thread.switch()
    depth = 0
    frame: gdb.Frame | None = gdb.newest_frame()
    while frame is not None and depth < 100:
        library = os.path.basename(gdb.solib_name(frame.pc()) or "")
        if library.startswith(("ld-", "ld.so")) or UNSAFE.match(frame.name() or ""):
            return True
        try:
            frame, depth = frame.older(), depth + 1
        except gdb.error:
            return False
    return False


def run_on(tid: int) -> None:
    """Let one thread run for a moment, past breakpoints too: none is in memory now.

    Raises Ending at its end, which GDB is to see itself: if we did, nobody would ever tell GDB the
    exit status.
    """
    ptrace(PTRACE_SETOPTIONS, tid, OPTIONS | TRACE_EXIT)
    try:
        ptrace(PTRACE_CONT, tid)
        time.sleep(MOMENT)
        libc.syscall(TGKILL, gdb.selected_inferior().pid, tid, SIGSTOP)
        while (event := await_event(tid)) != SIGSTOP:
            if event >> 8 == EVENT_EXIT:
                raise Ending(f"thread {tid} has come to its end")
            ptrace(PTRACE_CONT, tid, event)
    finally:
        with contextlib.suppress(Gone):
            ptrace(PTRACE_SETOPTIONS, tid, OPTIONS)
        gdb.execute("maint flush register-cache", to_string=True)


def lead_to_safety() -> list[int]:
    """Returns the threads that had to move. Raises Ending if one comes to its end on the way."""
    moved: list[int] = []
    for _ in range(TRIES):
        unsafe = [each.ptid[1] for each in threads() if is_unsafe(each)]
        if not unsafe:
            return moved
        for tid in unsafe:
            run_on(tid)
        moved += [tid for tid in unsafe if tid not in moved]
    raise gdb.GdbError(f"thread {unsafe[0]} does not leave the allocator or the dynamic linker")


def await_stop(tid: int) -> int:
    """The signal at which the thread stops: SIGSTOP, which we send, if it takes too long."""
    return await_event(tid) & 0xFF


def await_event(tid: int) -> int:
    """The same, with ptrace's event above it."""
    limit = time.monotonic() + SECONDS
    while True:
        found, status = os.waitpid(tid, WALL | os.WNOHANG)
        if found:
            if not os.WIFSTOPPED(status):
                raise gdb.GdbError("the thread has ended")
            return status >> 8
        if time.monotonic() > limit:
            libc.syscall(TGKILL, gdb.selected_inferior().pid, tid, SIGSTOP)
            limit += SECONDS
        time.sleep(0.0005)


class Caller:
    """Calls functions in one thread; `restore` restores its state."""

    def __init__(self, tid: int) -> None:
        self.tid = tid
        self.memory = gdb.selected_inferior()
        self.registers = registers_of(tid)
        self.vectors = raw_xstate(tid)
        self.mask = signal_mask(tid)
        self.base = (self.registers.rsp - RED_ZONE - 8192) & ~63
        self.errno_at = 0
        allowed = sum(1 << (number - 1) for number in LET_THROUGH)
        set_signal_mask(tid, WORD & ~allowed)

    def call(self, function: int, *arguments: int) -> int:
        """The function's result. It returns to address 0, where nothing is mapped."""
        now = UserRegisters.from_buffer_copy(self.registers)
        now.rip, now.rsp, now.rax, now.orig_rax = function, self.base - 8, 0, WORD
        now.eflags &= ~0x400  # the direction flag is clear at a call (System V ABI, 3.2.1)
        for name, value in zip(("rdi", "rsi", "rdx"), arguments):  # noqa: B905 - as many as there are
            setattr(now, name, value)
        self.memory.write_memory(self.base - 8, bytes(8))
        ptrace(PTRACE_SETREGS, self.tid, ctypes.byref(now))
        ptrace(PTRACE_CONT, self.tid)
        stopped = await_stop(self.tid)
        while stopped == SIGSTOP and registers_of(self.tid).rip != 0:
            # The first may have been pending; the one that we send at the time limit is the second.
            ptrace(PTRACE_CONT, self.tid)
            stopped = await_stop(self.tid)
            if stopped == SIGSTOP:
                raise gdb.GdbError(f"a call in the rank has not returned in {SECONDS:g} s")
        after = registers_of(self.tid)
        if stopped != signal.SIGSEGV or after.rip != 0:
            raise gdb.GdbError(f"a call in the rank ended with signal {stopped}")
        return after.rax

    def text(self, string: str) -> int:
        """The address of a string, below all memory that a call uses."""
        data = os.fsencode(string) + b"\0"
        at = self.base + 64
        self.memory.write_memory(at, data)
        return at

    def read(self, address: int, size: int) -> bytes:
        return bytes(self.memory.read_memory(address, size))

    def restore(self) -> None:
        set_raw_xstate(self.tid, self.vectors)
        ptrace(PTRACE_SETREGS, self.tid, ctypes.byref(self.registers))
        set_signal_mask(self.tid, self.mask)
        same = (
            bytes(registers_of(self.tid)) == bytes(self.registers)
            and raw_xstate(self.tid) == self.vectors
            and signal_mask(self.tid) == self.mask
        )
        if not same:
            raise gdb.GdbError("the thread's registers cannot be put back")


def inject(tid: int, dlopen: int, errno_location: int, number: int, rank: int, path: str) -> None:
    caller = Caller(tid)
    try:
        errno_at = caller.call(errno_location)
        errno = caller.read(errno_at, 4)
        handle = caller.call(dlopen, caller.text(path), RTLD_NOW)
        adopted = 1
        if handle:
            gdb.execute("maint flush register-cache", to_string=True)
            gdb.execute(f"sharedlibrary {re.escape(path)}", to_string=True)
            adopted = caller.call(symbol_address("crdebug_adopt"), rank, number) & 0xFFFFFFFF
        caller.memory.write_memory(errno_at, errno)
        if caller.read(errno_at, 4) != errno:
            raise gdb.GdbError("errno cannot be put back")
    finally:
        caller.restore()
        gdb.execute("maint flush register-cache", to_string=True)
    if not handle:
        raise gdb.GdbError(f"dlopen cannot load {path}")
    if adopted:
        raise gdb.GdbError("the handler of the waitpoint signal cannot be installed")


class Inject(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        dlopen, errno_location, number, rank = (int(text, 0) for text in arguments[:4])
        with Selection():
            moved = lead_to_safety()
            tid = threads()[0].ptid[1]
            threads()[0].switch()
            inject(tid, dlopen, errno_location, number, rank, arguments[4])
        return {"moved": [str(tid) for tid in moved]}


Inject(Command.INJECT)


def restarted_call(rip: int) -> int | None:
    """The number of the call that ends at an address, from the code; else None."""
    address, room = code_before(rip)
    code = bytes(gdb.selected_inferior().read_memory(address, room)) if room else b""
    return loaded_call(code)


class BeforeCalls(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        for thread in threads():
            now = registers_of(thread.ptid[1])
            if was_interrupted(now.rax, now.orig_rax):
                number: int | None = now.orig_rax
                if number == RESTART_SYSCALL:
                    number = restarted_call(now.rip)
                if number is not None:
                    now.rip, now.rax, now.orig_rax = now.rip - 2, number, WORD
                    set_registers(thread.ptid[1], now)
        unsettled.clear()
        awaiting.clear()
        gdb.execute("maint flush register-cache", to_string=True)
        return {}


BeforeCalls(Command.BEFORE_CALLS)
