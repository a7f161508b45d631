"""A process's state in the kernel, as far as the kernel shows it; and system calls made in the
process.

All threads of the process must be stopped by GDB.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re

import gdb

from ..ptrace import (
    PTRACE_GETSIGINFO,
    PTRACE_SYSCALL,
    SIGSTOP,
    SYSCALL_STOP,
    WORD,
    UserRegisters,
    libc,
    ptrace,
    registers_of,
    set_registers,
    wait,
)
from ..wire import NamedTuple
from .files import moved, regular, shared_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from .files import Descriptor, Descriptors
    from .memory import Area, Memory

PTRACE_SINGLESTEP, PTRACE_GET_RSEQ_CONFIGURATION = 9, 0x420F
PTRACE_GET_SYSCALL_INFO = 0x420E  # since Linux 5.3
GET_ROBUST_LIST = 274
SYSCALL_INSTRUCTION = b"\x0f\x05"
STOP_BIT = 1 << (SIGSTOP - 1)
# A timer's remaining time changes even while nothing happens; it is zero once the timer is off.
MOVING = re.compile(r"^(it_value: (?!\(0, 0\))|ticks:).*\n?", re.M)
RIGHTS = "Umask", "Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp"


def read_text(path: str) -> str:
    with open(path, errors="surrogateescape") as file:
        return file.read()


def fields_of(path: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in read_text(path).splitlines())
    return {name: value.strip() for name, _, value in pairs}


def inner_number(tid: int) -> str:
    """A thread's number in its PID namespace, which a restart does not change."""
    return fields_of(f"/proc/{tid}/status")["NSpid"].split()[-1]


def descriptors(pid: int) -> Descriptors:
    """By number: the target of a file descriptor, its fdinfo, and the state of a regular file."""
    found = {}
    for number in map(int, os.listdir(f"/proc/{pid}/fd")):
        link = f"/proc/{pid}/fd/{number}"
        info = MOVING.sub("", read_text(f"/proc/{pid}/fdinfo/{number}"))
        state, info = regular(link, info)
        found[number] = (os.readlink(link), info, state)
    return found


def timers(pid: int) -> str:
    with contextlib.suppress(FileNotFoundError):  # a kernel without CONFIG_CHECKPOINT_RESTORE
        return read_text(f"/proc/{pid}/timers")
    return ""


def children(pid: int, tids: Iterable[int]) -> dict[str, int]:
    """Child processes, and how often the threads of each have stopped running until now."""
    found = []
    for tid in tids:
        with contextlib.suppress(FileNotFoundError):
            found += read_text(f"/proc/{pid}/task/{tid}/children").split()
    return {child: switches(child) for child in found}


def switches(pid: str) -> int:
    total = 0
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ends
        for tid in os.listdir(f"/proc/{pid}/task"):
            fields = fields_of(f"/proc/{pid}/task/{tid}/status")
            total += int(fields["voluntary_ctxt_switches"])
            total += int(fields["nonvoluntary_ctxt_switches"])
    return total


class SignalSets(NamedTuple):
    """Sets of signals, a bit for each, as in /proc/PID/status."""

    queued: int
    ignored: int
    caught: int


class KernelView(NamedTuple):
    """All that must be as it was for a snapshot to be put back; see `difference`.

    signals: by thread.
    queue: the signals queued for the whole process.
    set_up: what each new thread registers with the kernel, once: glibc ends the process if a thread
    does so again.
    places: its working directory, root and program.
    """

    tids: list[int]
    signals: dict[int, SignalSets]
    queue: int
    set_up: dict[int, tuple[tuple[int, int] | None, int | None]]
    files: Descriptors
    timers: str
    children: dict[str, int]
    places: list[str]
    limits: str
    rights: list[str]


def kernel_view(pid: int, tids: Collection[int]) -> KernelView:
    signals = {}
    for tid in tids:
        fields = fields_of(f"/proc/{pid}/task/{tid}/status")
        queued, ignored, caught = (int(fields[name], 16) for name in ("SigPnd", "SigIgn", "SigCgt"))
        signals[tid] = SignalSets(queued & ~STOP_BIT, ignored, caught)
    whole = fields_of(f"/proc/{pid}/status")
    shared = int(whole["ShdPnd"], 16) & ~STOP_BIT
    return KernelView(
        tids=sorted(tids),
        signals=signals,
        queue=shared,
        set_up={tid: (rseq_area(tid), robust_list(tid)) for tid in tids},
        files=descriptors(pid),
        timers=timers(pid),
        children=children(pid, tids),
        places=[os.readlink(f"/proc/{pid}/{name}") for name in ("cwd", "root", "exe")],
        limits=read_text(f"/proc/{pid}/limits"),
        rights=[whole.get(name, "") for name in RIGHTS],
    )


def difference(pid: int, then: KernelView, now: KernelView, actions: bool) -> Iterator[str]:
    """The differences between two views that cannot be put back, as text for people. actions: can
    what the process does at signals be put back?"""
    for tid in sorted(set(then.tids) ^ set(now.tids)):
        yield f"thread {tid} {'has ended' if tid in then.tids else 'is new'}"
    for tid, sets in then.signals.items():
        other = now.signals.get(tid, sets)
        if other.queued != sets.queued:
            yield f"thread {tid} has other signals pending"
        if (other.ignored, other.caught) != (sets.ignored, sets.caught) and not actions:
            yield "it catches or ignores other signals"
            break
    for tid, known in then.set_up.items():
        if now.set_up.get(tid, known) != known:
            yield f"thread {tid} has set itself up since (rseq, robust locks)"
    if then.queue != now.queue:
        yield "other signals are pending"
    old, new = then.files, now.files
    for number in sorted(old.keys() | new.keys()):
        if number not in new:
            yield f"file descriptor {number} ({old[number][0]}) was closed"
        elif number not in old:
            yield f"file descriptor {number} ({new[number][0]}) is new"
        else:
            yield from file_difference(number, old[number], new[number])
    yield from shared_files(pid, old, new)
    if then.children.keys() != now.children.keys():
        yield "its child processes have changed"
    elif then.children != now.children:
        yield "its child processes have run since"
    for name, what in (
        ("timers", "its timers have changed"),
        ("rights", "its user, groups, umask or system call filter have changed"),
        ("places", "its working directory, root or program has changed"),
        ("limits", "its resource limits have changed"),
    ):
        if getattr(then, name) != getattr(now, name):
            yield what


def file_difference(number: int, old: Descriptor, new: Descriptor) -> Iterator[str]:
    name = f"file descriptor {number} ({old[0]})"
    if old[0] != new[0]:
        yield f"{name} is now {new[0]}"
        return
    before, after = (
        dict(re.findall(r"^(\w[\w-]*):\s*(.*)$", each[1], re.M)) for each in (old, new)
    )
    for what, text in before.items():
        if after.get(what) != text:
            yield f"{name}: {what} was {text} and is now {after.get(what)}"
            return
    problem = moved(old[2], new[2])
    if problem is not None or old[1] != new[1]:
        yield f"{name} {problem or 'has other settings'}"


# ---- of threads -----------------------------------------------------------------------------


class SignalInfo(ctypes.Structure):
    """The beginning of siginfo_t."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("number", "error", "code", "unused")),
        ("sender", ctypes.c_int32),
        ("rest", ctypes.c_char * 108),
    )
    number: int
    code: int
    sender: int


def stop_signal(tid: int) -> SignalInfo:
    """The signal at which a thread stopped; number 0 if it stopped for something else."""
    found = SignalInfo()
    try:
        ptrace(PTRACE_GETSIGINFO, tid, ctypes.byref(found))
    except gdb.GdbError:
        return SignalInfo()
    return found


def enters_call(tid: int) -> bool:
    """Is it stopped at the entry of a system call, before making it?"""
    told = ctypes.create_string_buffer(128)
    size = libc.ptrace(PTRACE_GET_SYSCALL_INFO, tid, len(told), ctypes.addressof(told))
    return size > 0 and told.raw[0] == 1  # PTRACE_SYSCALL_INFO_ENTRY


def leave_call(tid: int, make: bool = False) -> None:
    """Take a thread out of a system call that it has entered. make: let it make the call first."""
    if not enters_call(tid):
        return
    if not make:
        now = registers_of(tid)
        now.orig_rax = WORD
        set_registers(tid, now)
    ptrace(PTRACE_SINGLESTEP, tid)
    if wait(tid) == SIGSTOP:
        hold_again()


def step(tid: int) -> None:
    """Make a thread execute one instruction."""
    ptrace(PTRACE_SINGLESTEP, tid)
    if wait(tid) == SIGSTOP:  # it comes before the instruction
        ptrace(PTRACE_SINGLESTEP, tid)
        wait(tid)
        hold_again()


def hold_again() -> None:
    """Send the SIGSTOP again that holds the process if its debuggers die: it was taken."""
    os.kill(gdb.selected_inferior().pid, SIGSTOP)


class RseqConfiguration(ctypes.Structure):
    """struct ptrace_rseq_configuration of <linux/ptrace.h>."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint32),
        ("signature", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
    )
    address: int
    size: int


def rseq_area(tid: int) -> tuple[int, int] | None:
    """The address and size of a thread's registered rseq area, or None."""
    told = RseqConfiguration()
    try:
        ptrace(PTRACE_GET_RSEQ_CONFIGURATION, tid, ctypes.byref(told), ctypes.sizeof(told))
    except gdb.GdbError:
        return None  # before Linux 5.13: the area then counts as the program's own memory
    return (told.address, told.size) if told.address else None


def rseq_ranges(tids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The memory that the kernel writes on its own: in each thread's rseq area the processor's
    number and the like, but not the program's rseq_cs and flags in the middle (<linux/rseq.h>).

    The kernel remembers what it has written, so nobody else may write there.
    """
    for tid in tids:
        area = rseq_area(tid)
        if area is not None:
            address, size = area
            yield address, address + 8
            yield address + 20, address + max(size, 32)


def robust_list(tid: int) -> int | None:
    """The address of a thread's list of robust locks."""
    head, size = ctypes.c_void_p(), ctypes.c_size_t()
    libc.syscall(GET_ROBUST_LIST, tid, ctypes.byref(head), ctypes.byref(size))
    return head.value


# ---- system calls in the process ------------------------------------------------------------


def syscall_instruction(memory: Memory, found: Iterable[Area]) -> int:
    """The address of a syscall instruction in the process's code."""
    for area in found:
        if area.name == "[vdso]" or ("x" in area.access and re.search(r"/ld[-.]", area.name)):
            at = memory.read(area.start, area.end - area.start).find(SYSCALL_INSTRUCTION)
            if at >= 0:
                return area.start + at
    raise OSError(38, "there is no syscall instruction in the process's code")


class Injector:
    """Makes one stopped thread make system calls, then gives it its registers back."""

    def __init__(self, tid: int, instruction: int) -> None:
        self.tid = tid
        self.instruction = instruction

    def __enter__(self) -> Injector:
        self.before = registers_of(self.tid)
        return self

    def __exit__(self, *problem: object) -> None:
        set_registers(self.tid, self.before)

    def call(self, number: int, *arguments: int) -> int:
        """Returns the call's result; raises OSError."""
        wanted = UserRegisters.from_buffer_copy(self.before)
        names = ("rdi", "rsi", "rdx", "r10", "r8", "r9")
        for name, value in zip(names, arguments):  # noqa: B905 - as many as there are
            setattr(wanted, name, value & WORD)
        wanted.rip, wanted.rax, wanted.orig_rax = self.instruction, number, WORD
        set_registers(self.tid, wanted)
        self.execute()
        now = registers_of(self.tid)
        if now.rip != self.instruction + 2:
            raise OSError(4, "a system call in the process was not made")
        if now.rax > WORD - 4096:
            error = (-now.rax) & WORD
            raise OSError(error, os.strerror(error))
        return now.rax

    def execute(self) -> None:
        step(self.tid)


class SteplessInjector(Injector):
    """Leaves the thread at the end of a system call, and never sets the trap flag: that would end
    the thread if this GDB were killed."""

    stopped = False  # a SIGSTOP was taken

    def execute(self) -> None:
        for _ in ("at its beginning", "at its end"):
            self.stopped |= next_call(self.tid)


def next_call(tid: int) -> bool:
    """Let a thread run until a call begins or ends; returns whether it took a SIGSTOP."""
    stopped = False
    while True:
        ptrace(PTRACE_SYSCALL, tid)
        told = wait(tid)
        if told == SYSCALL_STOP:
            return stopped
        if told != SIGSTOP:
            raise OSError(4, f"the process stopped with {told:#x} on the way")
        stopped = True
