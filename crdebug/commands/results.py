"""What commands answer. Values only: how they look is ui/render.py's business."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from crdebug.base.answers import Answers
from crdebug.base.events import GroupStopped
from crdebug.base.instant import Cut
from crdebug.base.ranks import RankSet

if TYPE_CHECKING:
    from crdebug.charts.images import Image
    from crdebug.charts.plots import Plot
    from crdebug.session.points import Display
    from crdebug.session.values import (
        Breakpoint,
        Checkpoint,
        Communicator,
        Compared,
        Frame,
        HostInfo,
        OnTheWay,
        Overview,
        RankInfo,
        Stack,
        StackTree,
        Stock,
        ThreadInfo,
        Traced,
        Verified,
    )
    from crdebug.session.waiting import AtBarrier

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Stopped:
    """The job ran, and is stopped again."""

    stop: GroupStopped


@dataclass(frozen=True, slots=True)
class Printed:
    """The value of one expression on each rank. each: they are to be shown one by one."""

    answers: Answers[str]
    each: bool = False


@dataclass(frozen=True, slots=True)
class Ranked:
    """The value of one expression on each rank, to see which are unlike the others.

    deviating: those ranks; see crdebug.base.summary.
    """

    answers: Answers[str]
    deviating: RankSet


@dataclass(frozen=True, slots=True)
class Tabled:
    """The values of several expressions on each rank. each: ranks are to be shown one by one."""

    columns: tuple[tuple[str, Answers[str]], ...]
    each: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """What the ranks' GDBs printed, as they printed it."""

    answers: Answers[str]


@dataclass(frozen=True, slots=True)
class Backtraces:
    """The frames of each rank, innermost first. each: they are to be shown one by one."""

    answers: Answers[Stack]
    each: bool = False


@dataclass(frozen=True, slots=True)
class Tree:
    """The stacks of several ranks as one tree."""

    tree: StackTree


@dataclass(frozen=True, slots=True)
class Charted:
    """Numbers, to be shown as a chart."""

    plot: Plot


@dataclass(frozen=True, slots=True)
class Pictured:
    """A distributed array, to be shown as a picture."""

    image: Image


@dataclass(frozen=True, slots=True)
class Applied:
    """What the ranks' GDBs printed for each thread, by GDB's numbers of threads."""

    threads: tuple[tuple[int, Answers[str]], ...]


@dataclass(frozen=True, slots=True)
class ThreadStacks:
    """The stacks of threads, by GDB's numbers of threads."""

    threads: tuple[tuple[int, Answers[Stack]], ...]


@dataclass(frozen=True, slots=True)
class Frames:
    """The selected frame of each rank."""

    answers: Answers[Frame]


@dataclass(frozen=True, slots=True)
class Gathered:
    """The ranks were to come to a barrier."""

    barrier: AtBarrier


@dataclass(frozen=True, slots=True)
class Displayed:
    """The displays, with their present values."""

    values: tuple[tuple[Display, Answers[str]], ...]


@dataclass(frozen=True, slots=True)
class Several:
    """Results that belong together, in this order."""

    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads of each rank."""

    answers: Answers[tuple[ThreadInfo, ...]]


@dataclass(frozen=True, slots=True)
class Ranks:
    """Who the ranks are and what they do."""

    ranks: tuple[RankInfo, ...]


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts that have ranks."""

    hosts: tuple[HostInfo, ...]


@dataclass(frozen=True, slots=True)
class Sets:
    """Rank sets by what they are called."""

    sets: tuple[tuple[str, RankSet], ...]


@dataclass(frozen=True, slots=True)
class BreakpointSet:
    """A breakpoint was set."""

    breakpoint: Breakpoint


@dataclass(frozen=True, slots=True)
class BreakpointsDeleted:
    """Breakpoints were deleted; none if there were none."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Breakpoints:
    """The session's breakpoints."""

    breakpoints: tuple[Breakpoint, ...]


@dataclass(frozen=True, slots=True)
class CheckpointTaken:
    """A checkpoint was taken, and is whole."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Restarted:
    """The job is back at a checkpoint. ranks: where everybody is now."""

    checkpoint: Checkpoint
    incarnation: int
    ranks: tuple[RankInfo, ...]


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The job's checkpoints, oldest first."""

    checkpoints: tuple[Checkpoint, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """The job is at another place of its history.

    focus: the rank that it was about.  tick: how many MPI calls it has completed there; recorded:
    how many in all.  note: anything else worth saying, or "".  ranks: where everybody is now.
    """

    focus: int
    tick: int
    recorded: int
    note: str
    ranks: tuple[RankInfo, ...]


@dataclass(frozen=True, slots=True)
class Messages:
    """What is between the ranks."""

    on_the_way: OnTheWay


@dataclass(frozen=True, slots=True)
class TraceTable:
    """`info trace`. names: the expressions; last: how many hits to show."""

    point: Breakpoint
    names: tuple[str, ...]
    answers: Answers[Traced]
    last: int


@dataclass(frozen=True, slots=True)
class Repeated:
    """`verify`."""

    verified: Verified


@dataclass(frozen=True, slots=True)
class Communicators:
    """`info comms`."""

    found: tuple[Communicator, ...]


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where some ranks are in the job's history."""

    overview: Overview
    ranks: RankSet


@dataclass(frozen=True, slots=True)
class Snapshots:
    """The snapshots in memory, seen from a rank. marks: names and cuts."""

    focus: int
    stock: Stock
    marks: tuple[tuple[str, Cut], ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The job's history as a whole. calls: those that ranks are in, in lines."""

    overview: Overview
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The values of one expression at the ends of branches of history."""

    branches: tuple[Compared, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Text for the user: help, echo."""

    text: str


@dataclass(frozen=True, slots=True)
class Killed:
    """The job was ended on request."""

    job: str


@dataclass(frozen=True, slots=True)
class Left:
    """The conversation is over. detached: the job lives on without a debugger.  held: it stays
    stopped."""

    job: str
    detached: bool
    held: bool = False


@dataclass(frozen=True, slots=True)
class Nothing:
    """There is nothing to say: an empty line, or the user answered no."""


Result = (
    Stopped
    | Printed
    | Ranked
    | Tabled
    | Said
    | Hosts
    | Backtraces
    | Tree
    | Charted
    | Pictured
    | Applied
    | ThreadStacks
    | Frames
    | Gathered
    | Displayed
    | Several
    | Threads
    | Ranks
    | Sets
    | BreakpointSet
    | BreakpointsDeleted
    | Breakpoints
    | CheckpointTaken
    | Restarted
    | Checkpoints
    | Moved
    | Messages
    | Repeated
    | Communicators
    | TraceTable
    | Comparison
    | Whereabouts
    | Snapshots
    | Timeline
    | Text
    | Killed
    | Left
    | Nothing
)
