"""A copy of the stopped process that never runs. Both share each page of memory until one of them
changes it.

The process makes the copy itself, by clone(2); clone.S explains why only its debugger and the job's
first process notice. This GDB holds the copy in a ptrace stop, and the kernel ends it with the GDB.
When memory is short, the kernel ends copies first. `make` raises OSError if no copy can be made.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import struct
import time

from ..ptrace import (
    OPTIONS,
    SIGINFO_SIZE,
    SIGSTOP,
    WALL,
    WORD,
    Gone,
    apart,
    libc,
    ptrace,
    registers_of,
    run_into,
    send_stop,
    set_registers,
    set_signal_mask,
    set_stop_info,
    signal_mask,
    stop_info,
)
from ..wire import FROZEN
from . import machine_code as code
from .kernel import SteplessInjector, fields_of, hold_again, next_call, syscall_instruction
from .memory import PAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..ptrace import UserRegisters
    from .memory import Area, Memory

PTRACE_CONT, PTRACE_GETEVENTMSG, PTRACE_SEIZE, PTRACE_INTERRUPT = 7, 0x4201, 0x4206, 0x4207
TRACE_CLONE, EXIT_KILL = 0x08, 0x100000
CLONE_EVENT = int(signal.SIGTRAP) | 3 << 8
MMAP, MUNMAP, CLOSE = 9, 11, 3
PRIVATE_ANONYMOUS, READ_WRITE_EXECUTE = 0x22, 0x7
ALL_BUT_TRAP = WORD & ~(1 << (signal.SIGTRAP - 1))  # blocked, a step's trap would change its action
OVERFLOW = 1 << 11  # in the flags
PATIENCE = 5.0  # seconds for a new process to appear


living: dict[int, int] = {}  # copies that have not been ended: process -> thread


class Frozen:
    """A copy, and its memory.

    leader: its process.
    tid: its only remaining thread.
    """

    def __init__(self, leader: int, tid: int) -> None:
        self.leader = leader
        self.tid = tid
        living[leader] = tid

    def is_there(self) -> bool:
        """False if the copy has been ended."""
        return is_held(self.tid)

    def held_bytes(self) -> int:
        """The memory that it has, shared or not."""
        found = fields_of(f"/proc/{self.tid}/status")
        return sum(int(found[name].split()[0]) for name in ("RssAnon", "VmSwap")) << 10

    def table_bytes(self) -> int:
        """The size of its page tables, which it takes from the beginning."""
        return int(fields_of(f"/proc/{self.tid}/status")["VmPTE"].split()[0]) << 10

    def end(self) -> None:
        self.tid = 0
        end(self.leader)

    def __del__(self) -> None:
        if self.tid:
            self.end()


def is_held(tid: int) -> bool:
    try:
        registers_of(tid)
    except Gone:
        return False
    return True


def end(leader: int) -> None:
    """End a copy, if it is still ours: another process may have its number."""
    if is_held(living.pop(leader, 0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(leader, signal.SIGKILL)
    bury()


def end_all() -> None:
    """End all copies, also those that nobody refers to any more; returns when they are gone."""
    for leader in list(living):
        end(leader)
    for each in first_threads():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(each, WALL)
    apart.clear()


def first_threads() -> list[int]:
    """The threads of all copies, a process's first thread after its others: the kernel reports the
    end of a process only after those of its threads."""
    return sorted(apart, key=lambda tid: tid == apart[tid])


def bury() -> None:
    """Reap copies that have ended, if GDB has not been told."""
    for each in first_threads():
        try:
            if os.waitpid(each, WALL | os.WNOHANG)[0] == 0:
                continue
        except ChildProcessError:
            pass
        del apart[each]


def make(memory: Memory, tid: int, settled: UserRegisters, found: list[Area]) -> Frozen:
    """Make a stopped thread clone its process. This changes nothing in the process. settled: the
    registers with which the thread would go on from here."""
    if fields_of(f"/proc/{tid}/status").get("Seccomp", "0") != "0":
        raise OSError(errno.EPERM, "the program restricts its system calls (seccomp)")
    bury()
    info, mask, instruction = stop_info(tid), signal_mask(tid), syscall_instruction(memory, found)
    injector = SteplessInjector(tid, instruction)
    set_signal_mask(tid, ALL_BUT_TRAP)
    try:
        with injector:
            page = injector.call(
                MMAP, 0, PAGE, READ_WRITE_EXECUTE, PRIVATE_ANONYMOUS, (1 << 64) - 1, 0
            )
            try:
                write_code(memory, page, settled, mask)
                stopped, frozen = cloned(memory, tid, page, injector.before)
                injector.stopped |= stopped
            finally:
                injector.call(MUNMAP, page, PAGE)
    finally:
        # Stop it at a signal, as at any stop: only from there does the kernel continue an
        # interrupted system call.
        send_stop(tid)
        run_into(tid, SIGSTOP, 0)
        set_signal_mask(tid, mask)
        if injector.stopped:
            hold_again()
        if info != bytes(SIGINFO_SIZE):
            set_stop_info(tid, info)
    return frozen


def cloned(memory: Memory, tid: int, page: int, before: UserRegisters) -> tuple[bool, Frozen]:
    """Run the code; returns whether the thread took a SIGSTOP, and the copy."""
    wanted = type(before).from_buffer_copy(before)
    wanted.rip, wanted.rax, wanted.orig_rax = page + code.START, 0, WORD
    set_registers(tid, wanted)
    stopped = run_to_close(tid)
    try:
        result, number = struct.unpack("qi", memory.read(page + code.RESULT, 12))
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        if number < 0:
            raise OSError(errno.ENOSYS, "the kernel is older than Linux 5.2")
        pid = int(fields_of(f"/proc/{memory.pid}/fdinfo/{number}")["Pid"])
        frozen = led(pid, page)
    finally:
        stopped |= next_call(tid)  # out of the call
    return stopped, frozen


def write_code(memory: Memory, page: int, settled: UserRegisters, mask: int) -> None:
    """Write the code, and the registers with which the thread goes on if its debugger dies."""
    memory.write(page, code.CODE)
    flags = settled.eflags
    memory.write(page + code.RESULT, struct.pack("<qqqQ", 0, -1, 0, mask))
    memory.write(page + code.FLAGS, bytes([bool(flags & OVERFLOW), flags & 0xFF]))
    names = code.SAVED_REGISTERS
    memory.write(page + code.SAVED, struct.pack("<9Q", *(getattr(settled, each) for each in names)))
    memory.write(page + code.PATIENCE, struct.pack("<QQ", code.SECONDS, 0))
    memory.write(page + code.NAME, FROZEN.encode() + b"\0")


def run_to_close(tid: int) -> bool:
    """Run until the thread is about to close the copy's descriptor, or has failed (raises OSError).
    Returns whether it took a SIGSTOP."""
    stopped = next_call(tid)
    entering = True
    while True:
        now = registers_of(tid)
        if entering and now.orig_rax == CLOSE:
            return stopped
        if not entering and now.orig_rax == 56 and now.rax > WORD - 4096:
            raise OSError(WORD - now.rax + 1, os.strerror(WORD - now.rax + 1))
        stopped |= next_call(tid)
        entering = not entering


def led(pid: int, page: int) -> Frozen:
    """Seize a copy that waits, and lead it to its final place."""
    seize(pid)
    apart[pid] = pid
    frozen = Frozen(pid, pid)
    try:
        ptrace(PTRACE_INTERRUPT, pid)
        awaited(pid)
        registers = registers_of(pid)
        registers.rip, registers.orig_rax = page + code.SETUP, WORD
        set_registers(pid, registers)
        ptrace(PTRACE_CONT, pid)
        told = awaited(pid)
        if told != CLONE_EVENT:
            raise OSError(errno.EINTR, f"a copy stopped with {told:#x}")
        message = ctypes.c_ulong()
        ptrace(PTRACE_GETEVENTMSG, pid, ctypes.byref(message))
        apart[message.value] = pid
        awaited(message.value)
        ptrace(PTRACE_CONT, pid)  # to its end
        frozen.tid = living[pid] = message.value
        with open(f"/proc/{frozen.tid}/mem", "rb", buffering=0) as memory:
            memory.seek(page + code.CLOSED)
            (result,) = struct.unpack("<q", memory.read(8))
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        with open(f"/proc/{frozen.tid}/oom_score_adj", "w") as file:
            file.write("1000")
    except BaseException as error:
        frozen.tid = 0
        del living[pid]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if isinstance(error, Gone):
            raise OSError(errno.ESRCH, "the copy was ended") from None
        raise
    return frozen


def seize(pid: int) -> None:
    """Under Yama this works only once the process has allowed it, so we try until then."""
    end = time.monotonic() + PATIENCE
    while libc.ptrace(PTRACE_SEIZE, pid, None, TRACE_CLONE | EXIT_KILL) == -1:
        error = ctypes.get_errno()
        if error != errno.EPERM or time.monotonic() > end:
            raise OSError(error, f"the copy cannot be held: {os.strerror(error)}")
        os.sched_yield()


def awaited(pid: int) -> int:
    """Wait for a copy's next stop. Raises Gone."""
    try:
        _, status = os.waitpid(pid, WALL)
    except ChildProcessError:
        raise Gone from None
    if not os.WIFSTOPPED(status):
        raise Gone
    return status >> 8


assert OPTIONS & 1  # PTRACE_O_TRACESYSGOOD: stops at system calls are SYSCALL_STOP
