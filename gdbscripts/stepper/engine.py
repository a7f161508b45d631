"""Drive native/stepper/walk.c: the structures of walk.h, and the ends of a walk."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import time

import gdb

from ..ptrace import UserRegisters, libc, ptrace, registers_of
from ..rank_state import is_caught, symbol_address
from ..system_calls import FUTEX
from ..wire import ErrorKind, error_text, gdb_signal_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..snapshot.memory import Memory
    from ..wire import StackLevel

    Walking = Callable[..., int]
    Stepped = tuple[int, int, int]  # address, stack pointer, flags

(
    POINT,
    ABANDONED,
    GONE,
    ERROR,
    EVENT,
    TRAP,
    STEPS,
    OUT,
    FATAL,
) = range(1, 10)
COUNT, STOP, RETIRE, COMPARE, RESUME = range(5)
CALLED, SIGNALLED = 1, 2
PTRACE_PEEKUSER, PTRACE_POKEUSER = 3, 6
DEBUG_CONTROL = 848 + 7 * 8  # DR7 in struct user of <sys/user.h>
RSI, RDI, SP = 4, 5, 7  # DWARF's numbers of registers
PROBE = 4096
WORKS = 0.02  # of the time: who works less only looks whether what it waits for is there
PATIENCE = 50  # looks at a sleeping thread, 20 ms each (native/stepper/walk_wait.c)
TRACE = 1 << 16  # instructions of one level to remember at most
LONGEST_ENDING = 32  # instructions of `_exit`, in any libc
CRASHES = sum(
    1 << (number - 1)
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
)
QUIET_SIGNALS = ("SIGTRAP", "SIGSTOP", "SIGINT")
CRDEBUG = os.getppid()


class Point(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("base", ctypes.c_int32),
        ("indirect", ctypes.c_int32),
        ("action", ctypes.c_int32),
        ("retired", ctypes.c_int32),
        ("limit", ctypes.c_uint64),
        ("hits", ctypes.c_uint64),
        ("last", ctypes.c_uint64),
        ("original", ctypes.c_uint8),
    )
    address: int
    value: int
    offset: int
    base: int
    indirect: int
    retired: int
    hits: int
    last: int


class Probe(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("data", ctypes.c_char_p),
    )


class Entry(ctypes.Structure):
    _fields_ = (("pc", ctypes.c_uint64), ("sp", ctypes.c_uint64), ("flags", ctypes.c_uint64))
    pc: int
    sp: int
    flags: int


Tick = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)


class WalkState(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ["pid", "tid", "memory", "stepping", "inserted"]),
        ("pending", ctypes.c_int32),
        ("error", ctypes.c_int32),
        ("tick", Tick),
        ("passed", ctypes.c_uint64),
        ("limits", ctypes.c_uint64),
        ("points", ctypes.POINTER(Point)),
        ("count", ctypes.c_int64),
        ("wanted", ctypes.POINTER(UserRegisters)),
        ("probes", ctypes.POINTER(Probe)),
        ("probe_count", ctypes.c_int64),
        ("trace", ctypes.POINTER(Entry)),
        ("capacity", ctypes.c_uint64),
        ("steps", ctypes.c_uint64),
        ("stamp", ctypes.c_uint64),
        ("most", ctypes.c_uint64),
        ("point", ctypes.c_int64),
        ("registers", UserRegisters),
    )
    error: int
    steps: int
    stamp: int
    point: int
    registers: UserRegisters


class WalkFailed(gdb.GdbError):
    """The walk is impossible; the text says why."""


class AtOrigin(WalkFailed):
    """The thread is at the origin."""

    def __init__(self) -> None:
        super().__init__(error_text(ErrorKind.AT_ORIGIN, "this is where the snapshot was made"))


class OutOfTime(WalkFailed):
    """The thread no longer works, or the user has interrupted."""


class EndAhead(WalkFailed):
    """The process ends here."""

    def __init__(self) -> None:
        super().__init__("the program ends on the way")


class HasEnded(WalkFailed):
    """The process has ended."""

    def __init__(self) -> None:
        super().__init__("the thread has ended")


class SignalAhead(WalkFailed):
    """The thread is about to get a signal that would end the process, or that limits the walk."""

    def __init__(self, number: int) -> None:
        self.number = number
        name = signal.Signals(number).name
        super().__init__(f"the thread gets {name} on the way, which would end it")


libraries: dict[str, ctypes.CDLL] = {}


def load_walk(path: str) -> ctypes.CDLL:
    library = libraries.get(path)
    if library is None:
        library = libraries[path] = ctypes.CDLL(path)
        library.walk_run.argtypes = (ctypes.POINTER(WalkState),)
        library.walk_step.argtypes = (ctypes.POINTER(WalkState), ctypes.c_uint64)
        library.walk_flat.argtypes = (
            ctypes.POINTER(WalkState),
            ctypes.c_uint64,
            ctypes.c_uint64,
        )
    return library


SIGNAL_LINE = re.compile(r"^(SIG\w+)\s+\S+\s+\S+\s+(Yes|No)", re.M)


def passed_signals() -> int:
    """The signals that GDB passes to the program, as a mask."""
    mask = 0
    for name, passed in SIGNAL_LINE.findall(gdb.execute("info signals", to_string=True)):
        number = gdb_signal_number(name)
        if passed == "Yes" and number is not None and name not in QUIET_SIGNALS:
            mask |= 1 << (number - 1)
    return mask


def swap_watching(tid: int, value: int) -> int:
    """Enable some of the processor's watchpoints (GDB's); returns which were enabled."""
    before: int = libc.ptrace(PTRACE_PEEKUSER, tid, DEBUG_CONTROL, None)
    if before != value:
        ptrace(PTRACE_POKEUSER, tid, value, DEBUG_CONTROL)
    return before


def ends_of_program() -> list[Point]:
    """Points where a process ends itself, or kills another: there is no way back from there."""
    kill = int(signal.SIGKILL)
    found = []
    with contextlib.suppress(gdb.error):
        # Not at its beginning: a thread may already be inside, at GDB's own breakpoint there.
        found += [point_at(each, STOP, 1) for each in system_calls_of("_exit")]
    for name, register in (("kill", RSI), ("raise", RDI)):
        with contextlib.suppress(gdb.error):
            found.append(point_at(symbol_address(name), STOP, 1, (register, 0, 0, kill)))
    return found


# Of glibc; fork(3) calls _Fork, and system(3) and popen(3) call posix_spawn. Its own clone3 has no
# name that is exported.
CREATORS = "pthread_create", "clone", "_Fork", "vfork", "posix_spawn", "posix_spawnp"


def creators() -> list[Point]:
    """Points before a process makes a thread or a process. Once it has, it cannot be taken back:
    GDB does not know the new one, which the kernel has stopped."""
    found = []
    for name in CREATORS:
        with contextlib.suppress(gdb.error):
            # All of that name: there is an older version of posix_spawn, for older programs.
            found += [point_at(each.pc, STOP, 1) for each in gdb.decode_line(name)[1] or ()]
    return found


def system_calls_of(name: str) -> list[int]:
    """The addresses of a function's own system calls; its own address if it makes none."""
    begin = symbol_address(name)
    architecture = gdb.selected_inferior().architecture()
    code = architecture.disassemble(begin, count=LONGEST_ENDING)
    calls = [each["addr"] for each in code if each["asm"].startswith("syscall")]
    holder = symbol_at(begin)
    return [each for each in calls if symbol_at(each) == holder] or [begin]


def symbol_at(address: int) -> str:
    return gdb.execute(f"info symbol {address}", to_string=True).split(maxsplit=1)[0]


CREATES = "the process creates a thread or a process on the way"


class Engine:
    """Walks one thread. memory: the process's. seconds: how long it may sleep; while it works, if
    only now and then, only the user's interrupt limits it."""

    def __init__(self, library: ctypes.CDLL, memory: Memory, tid: int, seconds: float) -> None:
        self.library = library
        self.pid, self.tid = memory.pid, tid
        self.seconds = seconds
        self.begin()
        self.passed = passed_signals()
        self.limits = 0  # signals before which walks end even if the program catches them
        self.dead_end = False  # whether every crash is final
        self.pending = 0  # the signal that the thread gets first on the next walk
        self.ends = ends_of_program()
        self.creators = creators()
        self.memory = memory
        self.trace = (Entry * TRACE)()
        self.problem: WalkFailed | None = None
        self.hits = 0  # of all points in all walks, for messages
        self.tick = Tick(self.on_tick)
        self.wanted = UserRegisters()
        self.probes: list[Probe] = []

    def begin(self) -> None:
        """Begin a period, at whose end the thread must have worked now and then."""
        self.deadline = time.monotonic() + self.seconds
        self.looks = self.asleep = 0
        self.worked = self.work()

    def work(self) -> float:
        """Seconds that the thread has had of a processor; 0 where the kernel does not tell."""
        try:
            with open(f"/proc/{self.pid}/task/{self.tid}/schedstat") as file:
                return int(file.read().split()[0]) / 1e9
        except (OSError, ValueError, IndexError):
            return 0.0

    def on_tick(self, asleep: int) -> int:
        if os.getppid() != CRDEBUG:  # GDB sees the end of its input only after this command
            self.problem = OutOfTime("crdebug has ended")
            return 1
        try:
            gdb.execute("", to_string=True)  # raises KeyboardInterrupt if the user has interrupted
        except KeyboardInterrupt:
            self.problem = OutOfTime("interrupted")
            return 1
        self.looks, self.asleep = self.looks + 1, self.asleep + (asleep > 0)
        if time.monotonic() > self.deadline:
            works = self.work() - self.worked > WORKS * self.seconds
            if 2 * self.asleep > self.looks and not works:
                self.problem = OutOfTime(
                    f"not found, after {self.hits} passages: it sleeps on the way, in system call "
                    f"{self.system_call()}, for something that does not happen while a rank goes "
                    "back within an MPI tick; 'goto tick N' goes to whole ticks"
                )
                return 1
            self.begin()
        if asleep >= PATIENCE and self.waits_for_thread():
            self.problem = WalkFailed(
                "it waits there for another thread of its rank (OpenMP, say), but only the "
                "selected one runs while a rank goes back within an MPI tick; 'goto' goes to whole "
                "ticks"
            )
            return 1
        return 0

    def waits_for_thread(self) -> bool:
        """Is the thread in futex(2), with which threads wait for each other?"""
        return self.system_call() == str(FUTEX)

    def system_call(self) -> str:
        """The number of the one that the thread is in; "running" or -1 if it is in none."""
        with open(f"/proc/{self.memory.pid}/task/{self.tid}/syscall") as file:
            return file.read().split()[0]

    def give(self, number: int) -> bool:
        """Make the thread take its pending signal on its next walk. Returns False if it would not
        survive it: it does not catch the signal."""
        if (self.dead_end and CRASHES >> (number - 1) & 1) or not is_caught(self.tid, number):
            return False
        self.pending = number
        return True

    @property
    def registers(self) -> UserRegisters:
        return registers_of(self.tid)

    def _state(
        self, points: list[Point], most: int
    ) -> tuple[WalkState, list[Point], ctypes.Array[Point]]:
        points = sorted(points, key=lambda point: point.address)
        array = (Point * max(len(points), 1))(*points)
        probes = (Probe * max(len(self.probes), 1))(*self.probes)
        state = WalkState(
            pid=self.memory.pid,
            tid=self.tid,
            memory=self.memory.file,
            tick=self.tick,
            passed=self.passed,
            limits=self.limits | (CRASHES if self.dead_end else 0),
            pending=self.pending,
            points=array,
            count=len(points),
            wanted=ctypes.pointer(self.wanted),
            probes=probes,
            probe_count=len(self.probes),
            trace=self.trace,
            capacity=TRACE,
            most=most,
        )
        return state, points, array

    def _call(
        self, points: list[Point], function: Walking, *arguments: int, most: int = 0
    ) -> tuple[int, Point | None, WalkState]:
        """Returns the event, the point where it ended, and the state."""
        if time.monotonic() > self.deadline:
            self.begin()  # each call has made progress
        for limit in (*self.ends, *self.creators):
            limit.hits = 0
        points = [*points, *self.ends, *self.creators]
        state, points, array = self._state(points, most)
        self.pending = 0
        event = function(ctypes.byref(state), *arguments)
        for point, told in zip(points, array):  # noqa: B905 - the array has one if there is none
            point.hits, point.last, point.retired = told.hits, told.last, told.retired
        self.hits += state.stamp
        if event == POINT and any(points[state.point] is end for end in self.ends):
            raise EndAhead
        if event == POINT and any(points[state.point] is creator for creator in self.creators):
            raise WalkFailed(CREATES)
        if event in (POINT, STEPS, OUT) or (event == 0 and function is self.library.walk_step):
            return event, points[state.point] if event == POINT else None, state
        raise self._failure(event, state)

    def _failure(self, event: int, state: WalkState) -> WalkFailed:
        problem, self.problem = self.problem, None
        if event == ABANDONED:
            return problem or WalkFailed("the walk was given up")
        if event == GONE:
            return HasEnded()
        if event == EVENT:
            return WalkFailed(CREATES)
        if event == FATAL:
            return SignalAhead(state.error)
        if event == TRAP:
            return WalkFailed(f"a trap of the program's own at {state.registers.rip:#x}")
        return WalkFailed(f"walking failed: {os.strerror(state.error)}")

    def run(self, points: list[Point], most: int = 0) -> Point | None:
        """Run to a point with STOP, or to hit number `most` of all points; returns the point."""
        return self._call(points, self.library.walk_run, most=most)[1]

    def step(self, count: int = 1) -> None:
        self._call([], self.library.walk_step, count)

    def flat(
        self, points: list[Point], level: int, steps: int
    ) -> tuple[int, Point | None, list[Stepped]]:
        """Walk by instructions of a level; returns the event, the point, and the entries."""
        event, point, state = self._call(points, self.library.walk_flat, level, steps)
        if state.steps > TRACE:
            raise WalkFailed(f"more than {TRACE} instructions of one function")
        entries = [(e.pc, e.sp, e.flags) for e in self.trace[: state.steps]]
        return event, point, entries


def point_at(address: int, action: int, limit: int = 0, level: StackLevel | None = None) -> Point:
    """level: (base, offset, indirect, value); None for any."""
    base, offset, indirect, value = level or (-1, 0, 0, 0)
    return Point(
        address=address,
        value=value,
        offset=offset,
        base=base,
        indirect=indirect,
        action=action,
        limit=limit,
    )


def stack_level(sp: int) -> StackLevel:
    return (SP, 0, 0, sp)
