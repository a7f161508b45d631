"""The interface of a rank under a debugger, whatever implements it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from crdebug.base.deadline import Deadline
from crdebug.base.events import Event, Location, RankStopped, StopReason
from crdebug.gdbscripts.wire import Thread
from crdebug.mi.records import MiTuple, Result


class TargetState(Enum):
    """What a target's process does; the value is the word that users read."""

    IDLE = "no process"
    STOPPED = "stopped"
    RUNNING = "running"
    EXITED = "exited"
    DEAD = "gdb died"


class SelectedBy(Enum):
    """Who selected the frame that questions to a stopped rank are about."""

    NOBODY = "nobody"  # it is the innermost
    RULE = "rule"  # it is the program's; see frames.at_program
    USER = "user"  # or a journey through history, to where the user wants to be


@dataclass(slots=True)
class Selection:
    """Of one rank, at its present stop."""

    by: SelectedBy = SelectedBy.NOBODY


class Verb(Enum):
    """The ways of `Motion`; the value is the user's word for it."""

    STEP = "step"
    NEXT = "next"
    STEPI = "stepi"
    NEXTI = "nexti"
    FINISH = "finish"
    UNTIL = "until"
    ADVANCE = "advance"


@dataclass(frozen=True, slots=True)
class Motion:
    """A way to let a rank run until it is done. count: of lines or instructions, for the first
    four.
    location: of until, for which it may be empty, and advance."""

    verb: Verb
    count: int = 1
    location: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stack. level: 0 is the innermost. arguments: ``n=3, p=0x1000``.

    python: it is a Python function; Python's frames have levels of their own.
    """

    level: int
    location: Location
    arguments: str = ""
    python: bool = False


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """One thread. number: GDB's. tid: the kernel's id (LWP). state: "stopped" or "running".

    location: where its innermost frame is; None while it runs.
    """

    number: int
    tid: int
    name: str
    location: Location | None
    state: str


class PointKind(Enum):
    """What makes a rank stop; the value is GDB's command for it."""

    BREAK = "break"
    WATCH = "watch"  # a value changes
    RWATCH = "rwatch"  # it is read
    AWATCH = "awatch"  # either
    CATCH = "catch"  # an event: throw, syscall, signal, fork, ...

    @property
    def word(self) -> str:
        """For people."""
        match self:
            case PointKind.BREAK:
                return "breakpoint"
            case PointKind.CATCH:
                return "catchpoint"
            case _:
                return "watchpoint"


@dataclass(frozen=True, slots=True)
class BreakpointRequest:
    """A request to a target to insert a breakpoint. location: as GDB reads it ("Linespec
    Locations"); of a watchpoint the expression, of a catchpoint the event.

    ignore: hits that do not stop.
    """

    location: str
    condition: str = ""
    temporary: bool = False
    ignore: int = 0
    enabled: bool = True
    kind: PointKind = PointKind.BREAK


@dataclass(frozen=True, slots=True)
class Inserted:
    """What one GDB made of a request.

    gdb_number: its own number for it.  locations: where it is; empty while it is pending, and for
    what has no place.  ignore: hits from now on that do not stop.
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
    """GDB deleted a breakpoint, of itself (a temporary one) or on a typed command."""

    rank: int
    gdb_number: int


@dataclass(frozen=True, slots=True)
class DebuggerDied:
    """GDB ended by itself, or had to be killed, and its process goes on without it: perhaps with
    breakpoints in its code."""

    rank: int
    pid: int


Notice = Event | BreakpointChanged | BreakpointGone | DebuggerDied
"""What a target tells its subscriber; breakpoint numbers in it are GDB's own."""


@dataclass(frozen=True, slots=True)
class KeptInfo:
    """A snapshot. bytes: what it holds.  changed: how much of that it shares with no earlier
    snapshot.  frozen: it is a frozen clone of the process, which takes no memory but for what
    changes later; else a copy in the memory of the debugger."""

    bytes: int
    changed: int
    frozen: bool


class Target(Protocol):
    """One rank under one debugger.

    Verbs that change the process's state (attach, detach, resume, step, next, finish, kill) are
    refused (`Refused`, with rank and state) in any but the right state. After `detach` no
    breakpoint is left in the process's memory and nothing traces it. Every verb raises GdbError
    with GDB's own message, GdbDied, or DeadlineExpired.

    Not thread-safe. One verb at a time, with one exception: `interrupt` may be called at any time.
    """

    subscriber: Callable[[Notice], None]

    @property
    def rank(self) -> int: ...

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
        """Is the process free of its debugger without the debugger's knowledge? See `lend`."""
        ...

    @property
    def selection(self) -> Selection: ...

    @property
    def last_stop(self) -> RankStopped | None:
        """How the process came to stop, or to end; None before the first stop and while it runs."""
        ...

    async def attach(self, pid: int, deadline: Deadline) -> RankStopped:
        """Take hold of a process and stop it.

        Also one that SIGSTOP had stopped: resume and detach let it run.
        """
        ...

    async def detach(self, deadline: Deadline, *, hold: bool = False) -> None:
        """Take breakpoints out and let the process go.

        hold: it stays where it is all the same, stopped by SIGSTOP.
        """
        ...

    async def lend(self, signal: int, deadline: Deadline) -> None:
        """Let the process go as `detach` does, but without the debugger's noticing.

        signal: queued to the threads; taken first. Until `take_back` every other verb is refused.
        """
        ...

    async def take_back(self, deadline: Deadline) -> None:
        """Hold it again. Raises GdbError when a thread has ended: the debugger is of no use
        then."""
        ...

    async def walk_out(
        self, before: Sequence[Thread], selected: int, stop: RankStopped | None, deadline: Deadline
    ) -> None:
        """Lead every thread from the waitpoint to where it was `before`; see
        gdbscripts/checkpoint.py.

        selected: TID of the thread to select, or 0. stop: what counts as the last stop from now
        on; None for being where it comes out. Raises GdbError that names the threads that are
        elsewhere.
        """
        ...

    def mark_ended(self, detail: str | None) -> None:
        """Note that the process has ended without the debugger's seeing it. None: it never held
        it."""
        ...

    async def resume(self, deadline: Deadline) -> None:
        """Returns when it runs; `stopped` waits for its stop."""
        ...

    async def step(self, count: int, deadline: Deadline) -> None:
        """`count` source lines, into calls."""
        ...

    async def next(self, count: int, deadline: Deadline) -> None:
        """`count` source lines, over calls."""
        ...

    async def finish(self, deadline: Deadline, level: int = 0) -> None:
        """Until a frame returns; 0 is the innermost."""
        ...

    async def run(self, motion: Motion, deadline: Deadline) -> None:
        """Let it run until it is done; see `resume`."""
        ...

    async def stopped(self) -> RankStopped:
        """The stop of the present or last run.

        Without a deadline: a program may run for as long as it likes. Ends with the stop, the end
        of the process, or GdbDied; `interrupt` brings it about.
        """
        ...

    async def interrupt(
        self, deadline: Deadline, reason: StopReason = StopReason.INTERRUPT
    ) -> RankStopped:
        """Stop it if it runs. reason: what the stop counts as if it came by this interrupt.

        A rank that stopped for a reason of its own meanwhile keeps that reason, and nothing of
        the interrupt is left for later.
        """
        ...

    async def arrive(self, deadline: Deadline) -> None:
        """Let the debugger know where a process is that was moved: a breakpoint there then does not
        stop it at once when it runs on."""
        ...

    async def settle(self, deadline: Deadline) -> None:
        """Make sure that no SIGSTOP of the debugger's or ours is on its way to the stopped rank."""
        ...

    def stands(self, location: Location) -> None:
        """Set the place that is shown for the stopped rank: that of the frame that counts for the
        user, not of the innermost one."""
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
        """Select the thread that step, backtrace and evaluate are about."""
        ...

    async def location(self, deadline: Deadline) -> Location:
        """Where the selected frame is."""
        ...

    async def console(self, command: str, deadline: Deadline) -> str:
        """One command of GDB's command line, and what it printed."""
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

        Registers and private memory; ranges: of which shared mappings the content is kept
        too, see gdbscripts/snapshot/commands.py. most: how many bytes may be copied, where that is
        the only way; a share of the free memory without it. It lasts until `forget`, `detach`, or
        the process's end; a frozen one also until `lend`.
        """
        ...

    def has_kept(self, name: str) -> bool:
        """Is there a snapshot of that name?"""
        ...

    async def kept_sizes(self, deadline: Deadline) -> dict[str, int]:
        """By snapshot, the bytes that only it holds now: about what forgetting it would free."""
        ...

    async def put_back_obstacles(self, name: str, deadline: Deadline) -> tuple[str, ...]:
        """Why `put_memory_back` would be refused now; empty if it would not."""
        ...

    async def hold(self, deadline: Deadline) -> None:
        """Make the stopped process stay where it is even if its debugger ends and so lets it go: a
        SIGSTOP is queued, until `show_put_back` takes it out."""
        ...

    async def put_memory_back(self, name: str, deadline: Deadline) -> None:
        """Bring the process back to a snapshot. Breakpoints stay as they are. Data that it wrote
        meanwhile, to files and pipes, stays written.

        Raises Refused, with nothing done, when the kernel's state of the process has changed;
        GdbError when it fails half-way: the process cannot be used any more then.
        """
        ...

    async def show_put_back(
        self, name: str, deadline: Deadline, stop: RankStopped | None = None
    ) -> RankStopped:
        """After `put_memory_back`: let its debugger see where it is. stop: what counts as its last
        stop from now on; None for what did when the snapshot was kept. Returns it."""
        ...

    async def forget(self, name: str, deadline: Deadline) -> None:
        """Free a snapshot's memory. Raises BadInput if there is none of that name."""
        ...

    async def walk(self, command: str, deadline: Deadline) -> MiTuple:
        """A command of gdbscripts/stepper, by debugger/stepper.py: the process may be elsewhere
        then."""
        ...

    async def kill(self, deadline: Deadline) -> None:
        """End the process."""
        ...

    async def close(self, deadline: Deadline) -> None:
        """End the debugger. A process that was attached to runs on."""
        ...
