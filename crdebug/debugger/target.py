"""The interface of a rank under a debugger, whatever implements it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from crdebug.base.deadline import Deadline
from crdebug.base.events import Event, Location, RankStopped, StopReason
from crdebug.debugger.node import Node
from crdebug.gdbscripts.wire import Thread
from crdebug.mi.records import MiTuple, Result


class TargetState(Enum):
    """The state of a target's process; the value is the word that users read."""

    IDLE = "no process"
    STOPPED = "stopped"
    RUNNING = "running"
    EXITED = "exited"
    DEAD = "gdb died"
    CORE = "core file"


NO_PROCESS = "a core file cannot run"
# whose memory and registers can be looked at
LOOKED_AT = (TargetState.STOPPED, TargetState.CORE)


class SelectedBy(Enum):
    """How the frame was selected that questions to a stopped rank apply to."""

    NOBODY = "nobody"  # it is the innermost
    RULE = "rule"  # it is the program's; see frames.at_program
    USER = "user"  # by the user, or by a journey through history to the user's place


@dataclass(slots=True)
class Selection:
    """The selection in one rank, at its present stop."""

    by: SelectedBy = SelectedBy.NOBODY


class Verb(Enum):
    """The kinds of `Motion`; the value is the user's word for it."""

    STEP = "step"
    NEXT = "next"
    STEPI = "stepi"
    NEXTI = "nexti"
    FINISH = "finish"
    UNTIL = "until"
    ADVANCE = "advance"


@dataclass(frozen=True, slots=True)
class Motion:
    """A run of a rank that is complete at a certain stop.

    count: lines or instructions, for the first four verbs.
    location: for until, where it may be empty, and for advance.
    """

    verb: Verb
    count: int = 1
    location: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stack.

    level: 0 is the innermost.
    arguments: ``n=3, p=0x1000``.
    python: it is a Python function; Python's frames have levels of their own.
    """

    level: int
    location: Location
    arguments: str = ""
    python: bool = False


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """One thread.

    number: GDB's.
    tid: the kernel's id (LWP).
    location: its innermost frame's; None while it runs.
    state: "stopped" or "running".
    """

    number: int
    tid: int
    name: str
    location: Location | None
    state: str


class PointKind(Enum):
    """The kind of event that makes a rank stop; the value is the command for it."""

    BREAK = "break"
    WATCH = "watch"  # a value changes
    RWATCH = "rwatch"  # it is read
    AWATCH = "awatch"  # either
    CATCH = "catch"  # an event: throw, syscall, signal, fork, ...
    TRACE = "trace"  # it stops nothing: it notes values

    @property
    def word(self) -> str:
        """For people."""
        match self:
            case PointKind.BREAK:
                return "breakpoint"
            case PointKind.CATCH:
                return "catchpoint"
            case PointKind.TRACE:
                return "trace point"
            case _:
                return "watchpoint"


@dataclass(frozen=True, slots=True)
class BreakpointRequest:
    """A request to a target to insert a breakpoint.

    location: as GDB reads it ("Linespec Locations"); the expression of a watchpoint, the event of a
    catchpoint; of a trace point the location and expressions, with commas between them.
    ignore: the number of hits that do not stop.
    """

    location: str
    condition: str = ""
    temporary: bool = False
    ignore: int = 0
    enabled: bool = True
    kind: PointKind = PointKind.BREAK


@dataclass(frozen=True, slots=True)
class Inserted:
    """One GDB's breakpoint for a request.

    gdb_number: GDB's own number for it.
    locations: its places; empty while it is pending, and for kinds that have none.
    ignore: the number of further hits that do not stop.
    """

    gdb_number: int
    locations: tuple[Location, ...]
    hits: int = 0
    ignore: int = 0


@dataclass(frozen=True, slots=True)
class BreakpointChanged:
    """GDB resolved, moved or hit a breakpoint."""

    rank: int
    inserted: Inserted


@dataclass(frozen=True, slots=True)
class BreakpointGone:
    """GDB deleted a breakpoint, by itself (a temporary one) or on a typed command."""

    rank: int
    gdb_number: int


@dataclass(frozen=True, slots=True)
class DebuggerDied:
    """GDB ended by itself, or had to be killed. Its process goes on without it, perhaps with
    breakpoints in its code."""

    rank: int
    pid: int


Notice = Event | BreakpointChanged | BreakpointGone | DebuggerDied
"""What a target's subscriber gets; breakpoint numbers in it are GDB's own."""


@dataclass(frozen=True, slots=True)
class KeptInfo:
    """A snapshot.

    bytes: its size.
    changed: the part of it that it shares with no earlier snapshot.
    frozen: it is a frozen clone of the process, which takes memory only for pages that change
    later; otherwise a copy in the debugger's memory.
    """

    bytes: int
    changed: int
    frozen: bool


class Target(Protocol):
    """One rank under one debugger.

    Verbs that change the process's state (attach, detach, resume, step, next, finish, kill) raise
    `Refused`, with rank and state, in any but the right state. After `detach` the process's memory
    has no breakpoints and nothing traces it. Every verb raises GdbError with GDB's own message,
    GdbDied, or DeadlineExpired.

    Not thread-safe. One verb at a time, with one exception: `interrupt` may be called at any time.
    """

    subscriber: Callable[[Notice], None]

    @property
    def rank(self) -> int: ...

    @property
    def node(self) -> Node | None:
        """The other host that it is on; None for this one."""
        ...

    @property
    def state(self) -> TargetState: ...

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        ...

    @property
    def gdb_pid(self) -> int:
        """The process id of its debugger."""
        ...

    @property
    def dead(self) -> bool:
        """Has its debugger ended?"""
        ...

    @property
    def lent(self) -> bool:
        """Is the process free of its debugger, without the debugger's knowledge? See `lend`."""
        ...

    @property
    def selection(self) -> Selection:
        """Only for questions, which are carried out on the rank's own host."""
        ...

    @property
    def last_stop(self) -> RankStopped | None:
        """How the process came to stop, or to end; None before the first stop and while it runs."""
        ...

    async def attach(self, pid: int, deadline: Deadline) -> RankStopped:
        """Attach to a process and stop it.

        If SIGSTOP had stopped it, resume and detach still let it run.
        """
        ...

    async def open_core(
        self, core: Path, program: Path, stop: RankStopped, deadline: Deadline
    ) -> RankStopped:
        """Look at a core file instead of a process; verbs that need a process are refused then.

        stop: how the process ended, without its place. Returns it with the place.
        """
        ...

    async def detach(self, deadline: Deadline, *, hold: bool = False) -> None:
        """Remove breakpoints and let the process go.

        hold: it stays where it is even so, stopped by SIGSTOP.
        """
        ...

    async def lend(self, signal: int, deadline: Deadline) -> None:
        """Let the process go like `detach`, but behind the debugger's back.

        signal: it is queued to the threads, which take it first. Until `take_back` every other verb
        is refused.
        """
        ...

    async def take_back(self, deadline: Deadline) -> None:
        """Hold it again. Raises GdbError if a thread has ended: then this debugger cannot be used
        any more."""
        ...

    async def walk_out(
        self, before: Sequence[Thread], selected: int, stop: RankStopped | None, deadline: Deadline
    ) -> None:
        """Lead every thread from the waitpoint to its place `before`; see
        gdbscripts/checkpoint.py.

        selected: the TID of the thread to select, or 0.
        stop: from now on this counts as the last stop; None for one at the place where the rank
        comes out.
        Raises a GdbError that names the threads that are elsewhere.
        """
        ...

    def mark_ended(self, detail: str | None) -> None:
        """Note that the process has ended unseen by the debugger. None: it never held the
        process."""
        ...

    async def resume(self, deadline: Deadline) -> None:
        """Returns when it runs; `stopped` waits for its stop."""
        ...

    async def step(self, count: int, deadline: Deadline) -> None:
        """Step `count` source lines, into calls."""
        ...

    async def next(self, count: int, deadline: Deadline) -> None:
        """Step `count` source lines, over calls."""
        ...

    async def finish(self, deadline: Deadline, level: int = 0) -> None:
        """Run until a frame returns; 0 is the innermost."""
        ...

    async def run(self, motion: Motion, deadline: Deadline) -> None:
        """Run until the motion is complete; see `resume`."""
        ...

    async def stopped(self) -> RankStopped:
        """The stop of the present or last run.

        Has no deadline: a program may run for as long as it likes. Ends with the stop, the end of
        the process, or GdbDied; `interrupt` causes a stop.
        """
        ...

    async def interrupt(
        self, deadline: Deadline, reason: StopReason = StopReason.INTERRUPT
    ) -> RankStopped:
        """Stop it if it runs. reason: of the stop, if this interrupt caused it.

        A rank that stopped for a reason of its own meanwhile keeps that reason, and nothing of
        the interrupt remains for later.
        """
        ...

    async def arrive(self, deadline: Deadline) -> None:
        """Let the debugger know the new place of a process that was moved, so that a breakpoint
        there does not stop it at once when it runs on."""
        ...

    async def settle(self, deadline: Deadline) -> None:
        """Make sure that no SIGSTOP of the debugger's or ours is pending in the stopped rank."""
        ...

    def stands(self, location: Location) -> None:
        """Set the place to show for the stopped rank: that of the frame that matters to the user,
        not of the innermost one."""
        ...

    async def evaluate(self, expression: str, deadline: Deadline, format: str = "") -> str:
        """The value as GDB's print shows it. format: "/x" and the like."""
        ...

    async def backtrace(self, limit: int, deadline: Deadline) -> tuple[Frame, ...]:
        """The selected thread's frames, innermost first; all of them if limit is 0."""
        ...

    async def threads(self, deadline: Deadline) -> tuple[ThreadInfo, ...]:
        """All threads, in GDB's order."""
        ...

    async def select_thread(self, number: int, deadline: Deadline) -> None:
        """Select the thread that step, backtrace and evaluate apply to."""
        ...

    async def location(self, deadline: Deadline) -> Location:
        """The place of the selected frame."""
        ...

    async def console(self, command: str, deadline: Deadline) -> str:
        """The output of one command on GDB's command line."""
        ...

    async def mi(self, command: str, deadline: Deadline) -> Result:
        """One MI command; only for crdebug.debugger, which has a verb for each."""
        ...

    async def insert_breakpoint(self, request: BreakpointRequest, deadline: Deadline) -> Inserted:
        """Pending if the location is not known yet."""
        ...

    async def delete_breakpoint(self, gdb_number: int, deadline: Deadline) -> None:
        """By GDB's own number."""
        ...

    async def keep(
        self, name: str, ranges: Sequence[str], deadline: Deadline, most: int | None = None
    ) -> KeptInfo:
        """Take a snapshot of the stopped process, under a name, held by its debugger.

        It has the registers and private memory, and lasts until `forget`, `detach`, or the
        process's end; a frozen one at most until `lend`.

        ranges: shared mappings whose content to keep too, see gdbscripts/snapshot/commands.py.
        most: how many bytes may be copied if there is no other way; by default a share of the free
        memory.
        """
        ...

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of its snapshots."""
        ...

    async def kept_sizes(self, deadline: Deadline) -> dict[str, int]:
        """By snapshot, the bytes that only it holds now: about as much as forgetting it frees."""
        ...

    async def put_back_obstacles(self, name: str, deadline: Deadline) -> tuple[str, ...]:
        """The reasons why `put_memory_back` would be refused now; empty if there are none."""
        ...

    async def hold(self, deadline: Deadline) -> None:
        """Make the stopped process stay stopped even if its debugger ends and so lets it go: queue
        a SIGSTOP, until `show_put_back` takes it out."""
        ...

    async def put_memory_back(self, name: str, deadline: Deadline) -> None:
        """Bring the process back to a snapshot. Breakpoints stay as they are. Data that it wrote to
        pipes and terminals meanwhile stays written.

        Raises Refused, with nothing done, if the process's state in the kernel has changed;
        GdbError if it fails half-way: then the process cannot be used any more.
        """
        ...

    async def show_put_back(
        self, name: str, deadline: Deadline, stop: RankStopped | None = None
    ) -> RankStopped:
        """After `put_memory_back`: let the debugger see where the process is. stop: from now on
        this counts as its last stop; None for the last stop at the snapshot. Returns it."""
        ...

    async def forget(self, name: str, deadline: Deadline) -> None:
        """Free a snapshot's memory. Raises BadInput if there is none of that name."""
        ...

    async def walk(self, command: str, deadline: Deadline) -> MiTuple:
        """A command of gdbscripts/stepper, for debugger/stepper.py. It may leave the process in
        another place."""
        ...

    def break_in(self) -> None:
        """Make the debugger give up the command that it works on, which then raises GdbError."""
        ...

    async def kill(self, deadline: Deadline) -> None:
        """End the process."""
        ...

    async def close(self, deadline: Deadline) -> None:
        """End the debugger. A process that it attached to runs on."""
        ...
