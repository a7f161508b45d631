"""What happens in a job, as values. They travel up: target -> session -> ui."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from crdebug.base.ranks import RankSet


class StopReason(Enum):
    """Why a rank stopped; the value is the word that users read."""

    BREAKPOINT = "breakpoint"
    WATCHPOINT = "watchpoint"
    CATCHPOINT = "catchpoint"
    STEP = "step"
    FINISH = "finish"
    SIGNAL = "signal"
    ENDING = "ending"  # about to end abnormally
    REPORT = "report"  # a sanitizer has found something
    INTERRUPT = "interrupt"  # the user asked
    FOLLOWED = "followed"  # all-stop: another rank stopped first
    EXITED = "exited"
    KILLED = "killed"
    OTHER = "stopped"


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a program. address: the program counter. line: 0 if not known.

    file: the name that the compiler got.  path: the same file's absolute name.
    library: the shared library that contains the place, if the file is not known.
    """

    address: int
    function: str
    file: str = ""
    line: int = 0
    path: str = ""
    library: str = ""

    @property
    def name(self) -> str:
        """The function, else its library, else the address. Libraries are often stripped, and their
        addresses differ from rank to rank."""
        if self.function or not self.library:
            return self.function or hex(self.address)
        return f"?? in {self.library.rpartition('/')[2]}"

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.file else ""
        if where and not (self.function or self.library or self.address):
            return where
        return f"{self.name} at {where}" if where else self.name


@dataclass(frozen=True, slots=True)
class RankStopped:
    """One rank stopped, or ended.

    thread: the thread that caused it, in GDB's numbering, 0 if none.
    detail: the breakpoint's number, the signal's name, or the exit status, as text; for an ENDING
    the call that is about to end the rank, and its caller: ``exit(3), from main at ...``; for a
    REPORT its summary.
    note: additional text for people: which value changed, which event was caught.
    location: None when the rank has ended.
    """

    rank: int
    reason: StopReason
    detail: str = ""
    thread: int = 0
    location: Location | None = None
    note: str = ""

    @property
    def ended_well(self) -> bool:
        return self.reason is StopReason.EXITED and self.detail in ("", "0")


@dataclass(frozen=True, slots=True)
class RankRunning:
    """One rank was resumed."""

    rank: int


@dataclass(frozen=True, slots=True)
class GroupStopped:
    """Every rank that was resumed together has stopped again, or has ended. As an event: a rank
    that ran independently has.

    cause: the first stops, which made the others stop; stops: one for each rank.
    """

    cause: tuple[RankStopped, ...]
    stops: tuple[RankStopped, ...]


@dataclass(frozen=True, slots=True)
class GdbSays:
    """A rank's GDB said something that belongs to no command."""

    rank: int
    text: str


@dataclass(frozen=True, slots=True)
class JobOutput:
    """The application wrote. stream: "stdout" or "stderr"."""

    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class JobSays:
    """crdebug's part in the job has something to say to the user."""

    text: str


@dataclass(frozen=True, slots=True)
class StandsStill(JobSays):
    """No rank has come further for a while. for_ever: it is proved that none ever can."""

    for_ever: bool = False


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The launcher ended. status: its exit status; 128 + n when signal n ended it."""

    status: int


@dataclass(frozen=True, slots=True)
class RankRestored:
    """A rank is back, and it is safe to attach to it (MPIR_debug_info)."""

    rank: int
    host: str
    pid: int


ENDED = "ended"  # the phase of an operation that is over


@dataclass(frozen=True, slots=True)
class Progress:
    """A long operation entered a new phase. operation: "checkpoint", …"""

    operation: str
    phase: str
    ranks: RankSet | None = None


Event = (
    RankStopped
    | RankRunning
    | GroupStopped
    | GdbSays
    | JobOutput
    | JobSays
    | StandsStill
    | JobEnded
    | RankRestored
    | Progress
)
