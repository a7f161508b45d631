"""Driving native/walk.c: the same structures as in walk.h, and how a walk ends.

Sourced after ptrace_x86.py and kept_memory.py, into the same namespace.
"""

import ctypes
import os
import re
import signal
import time

import gdb
from __main__ import FUTEX, REGISTERS, UserRegisters, fields_of, libc, ptrace, registers_of

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
SP = 7  # DWARF's number of the stack pointer
PROBE = 4096
PATIENCE = 50  # looks at a sleeping thread, 20 ms each (native/walk_wait.c)
TRACE = 1 << 16  # instructions that are remembered at most, of one level
QUIET_SIGNALS = ("SIGTRAP", "SIGSTOP", "SIGINT")


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


class Probe(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("data", ctypes.c_char_p),
    )


class Entry(ctypes.Structure):
    _fields_ = (("pc", ctypes.c_uint64), ("sp", ctypes.c_uint64), ("flags", ctypes.c_uint64))


Tick = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)


class WalkState(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ["pid", "tid", "memory", "stepping", "inserted"]),
        ("pending", ctypes.c_int32),
        ("error", ctypes.c_int32),
        ("tick", Tick),
        ("passed", ctypes.c_uint64),
        ("fatal", ctypes.c_uint64),
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


class WalkFailed(gdb.GdbError):
    """The walk cannot be done; the text says why."""


class OutOfTime(WalkFailed):
    """The seconds that a search may take are over, or the user has had enough."""


libraries = {}


def load_walk(path):
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


def passed_signals():
    """The signals that GDB gives to the program, as a mask."""
    mask = 0
    for name, passed in SIGNAL_LINE.findall(gdb.execute("info signals", to_string=True)):
        number = getattr(signal, name, None)
        if passed == "Yes" and number is not None and name not in QUIET_SIGNALS:
            mask |= 1 << (number - 1)
    return mask


def harmless_signals(pid):
    """Those that do not end the process, nor stop it: caught, ignored, or nothing by themselves."""
    fields = fields_of(f"/proc/{pid}/status")
    mask = int(fields["SigCgt"], 16) | int(fields["SigIgn"], 16)
    for each in (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH):
        mask |= 1 << (each - 1)
    return mask


def swap_watching(tid, value):
    """Set which of the processor's watchpoints are on, those of GDB's; returns what was."""
    before = libc.ptrace(PTRACE_PEEKUSER, tid, DEBUG_CONTROL, None)
    if before != value:
        ptrace(PTRACE_POKEUSER, tid, value, DEBUG_CONTROL)
    return before


def end_of_program():
    """Where a process goes that ends itself: it could not be taken back from there."""
    try:
        return int(gdb.parse_and_eval("(long)&_exit"))
    except gdb.error:
        return None


class Engine:
    """Walks one thread. memory: of the process. seconds: what all of its walks may take."""

    def __init__(self, library, memory, tid, seconds):
        self.library = library
        self.tid = tid
        self.deadline = time.monotonic() + seconds
        given = passed_signals()
        self.passed = given & harmless_signals(memory.pid)
        self.fatal = given & ~self.passed
        self.end = end_of_program()
        self.memory = memory
        self.trace = (Entry * TRACE)()
        self.problem = None
        self.hits = 0  # of all points in all walks, for messages
        self.tick = Tick(self.on_tick)
        self.wanted = UserRegisters()
        self.probes = []

    def on_tick(self, asleep):
        try:
            gdb.execute("", to_string=True)  # raises what the user's interrupt is
        except KeyboardInterrupt:
            self.problem = OutOfTime("interrupted")
            return 1
        if time.monotonic() > self.deadline:
            self.problem = OutOfTime(f"not found in time, after {self.hits} passages")
            return 1
        if asleep >= PATIENCE and self.waits_for_thread():
            self.problem = WalkFailed(
                "it waits there for another thread of its rank (OpenMP, say), and all but the "
                "selected one stand while a rank is taken back within an MPI tick; 'goto' goes to "
                "whole ticks"
            )
            return 1
        return 0

    def waits_for_thread(self):
        """Is the thread in futex(2), with which threads wait for each other?"""
        with open(f"/proc/{self.memory.pid}/task/{self.tid}/syscall") as file:
            return file.read().split()[0] == str(FUTEX)

    @property
    def registers(self):
        return registers_of(self.tid)

    def _state(self, points, most):
        points = sorted(points, key=lambda point: point.address)
        array = (Point * max(len(points), 1))(*points)
        probes = (Probe * max(len(self.probes), 1))(*self.probes)
        state = WalkState(
            pid=self.memory.pid,
            tid=self.tid,
            memory=self.memory.file,
            tick=self.tick,
            passed=self.passed,
            fatal=self.fatal,
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

    def _call(self, points, function, *arguments, most=0):
        """Returns how it ended, at which of the points, and the state."""
        if time.monotonic() > self.deadline:
            raise OutOfTime(f"not found in time, after {self.hits} passages")
        guard = None
        if self.end is not None:
            guard = point_at(self.end, STOP, 1)
            points = [*points, guard]
        state, points, array = self._state(points, most)
        event = function(ctypes.byref(state), *arguments)
        for point, told in zip(points, array):  # noqa: B905 - the array has one if there is none
            point.hits, point.last, point.retired = told.hits, told.last, told.retired
        self.hits += state.stamp
        if event == POINT and points[state.point] is guard:
            raise WalkFailed("the program comes to its end on the way")
        if event in (POINT, STEPS, OUT) or (event == 0 and function is self.library.walk_step):
            return event, points[state.point] if event == POINT else None, state
        raise self._failure(event, state)

    def _failure(self, event, state):
        problem, self.problem = self.problem, None
        if event == ABANDONED:
            return problem or WalkFailed("the walk was given up")
        if event == GONE:
            return WalkFailed("the thread has ended")
        if event == EVENT:
            return WalkFailed("the process makes a thread or a process on the way")
        if event == FATAL:
            name = signal.Signals(state.error).name
            return WalkFailed(f"the thread gets {name} on the way, which would end it")
        if event == TRAP:
            return WalkFailed(f"a trap of the program's own at {state.registers.rip:#x}")
        return WalkFailed(f"walking failed: {os.strerror(state.error)}")

    def run(self, points, most=0):
        """Run to the point that says stop, or to hit number `most` of all; returns the point."""
        return self._call(points, self.library.walk_run, most=most)[1]

    def step(self, count=1):
        self._call([], self.library.walk_step, count)

    def flat(self, points, level, steps):
        """Walk by instructions of a level; returns how it ended, the point, and the entries."""
        event, point, state = self._call(points, self.library.walk_flat, level, steps)
        if state.steps > TRACE:
            raise WalkFailed(f"more than {TRACE} instructions of one function")
        entries = [(e.pc, e.sp, e.flags) for e in self.trace[: state.steps]]
        return event, point, entries


def point_at(address, action, limit=0, level=None):
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


def stack_level(sp):
    return (SP, 0, 0, sp)


assert "rip" in REGISTERS
