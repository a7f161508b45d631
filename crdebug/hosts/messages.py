"""The messages between crdebug and an agent, besides the values that they carry."""

from __future__ import annotations

from dataclasses import dataclass, replace

from crdebug.acquire.daemons import Daemon
from crdebug.acquire.mpir import ProcDesc
from crdebug.base.answers import Answers, T
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.base.events import StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.question import Question
from crdebug.debugger.run import Run
from crdebug.hosts.merged import Mirrors, Stops, Told
from crdebug.job.far_clocks import ClockLook, ClockWrite
from crdebug.job.record_here import RecordNow, Wanted


@dataclass(frozen=True, slots=True)
class Call:
    """A request with this number; `Reply` or `Failed` answers it, unless the number is negative."""

    number: int
    request: Request


@dataclass(frozen=True, slots=True)
class Reply:
    number: int
    value: object


@dataclass(frozen=True, slots=True)
class Failed:
    number: int
    error: CrdebugError

    def __post_init__(self) -> None:
        if not isinstance(self.error, CrdebugError):
            raise ValueError("this is no error")


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody waits for this answer any more."""

    number: int


# ---- requests -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """The first one. The answer is a Greeting. build: of crdebug's code, see `greeting.build`."""

    version: str
    build: str


@dataclass(frozen=True, slots=True)
class Greeting:
    """host: as the machine calls itself."""

    version: str
    build: str
    host: str


@dataclass(frozen=True, slots=True)
class Find:
    """Which ranks has this daemon of the launcher's started? The answer is a tuple of ProcDescs.

    users: see Attach.
    """

    daemon: Daemon
    users: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Attach:
    """Start a GDB for each of these ranks and attach it. The answer is a tuple of Mirrors.

    users: the ids of the launcher's user, to whom the ranks must belong.
    again: another agent had them, which has ended; some may have ended since, and
    are in no Mirrors.
    layer: the path of the library in them that records; "" if nothing is recorded.
    """

    entries: tuple[ProcDesc, ...]
    settings: Settings
    users: tuple[int, ...]
    again: bool = False
    layer: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to ranks. The answer is Classes. looking: see questions.look; None for
    questions.ask."""

    question: Question[object]
    ranks: RankSet
    looking: Looking | None = None


@dataclass(frozen=True, slots=True)
class Looking:
    deadline: Deadline
    also_ended: bool


@dataclass(frozen=True, slots=True)
class Do:
    """A verb of one rank's target, see debugger.target.Target. The answer is what it returns."""

    rank: int
    verb: str
    arguments: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Go:
    """Carry out a run of ranks there. The answer, once all of them have stopped, is Gone; Stand
    comes before.

    number: of the run.
    """

    number: int
    run: Run
    ranks: RankSet


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop the ranks of a run that still run, for this reason. seconds: they may take so long."""

    number: int
    reason: StopReason
    seconds: float


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there?"""


@dataclass(frozen=True, slots=True)
class Probe:
    """What has this machine? The answer is a Machine of node.probes. gdb, compiler: see there."""

    gdb: str
    compiler: str


@dataclass(frozen=True, slots=True)
class Renew:
    """See debugger.node.Node.renew. How the rank is then comes before the answer."""

    rank: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """Ranks of a new job over hosts are about to begin there. The answer is Prepared.

    mark: the job's, see node.bare.  compiler: the user's.
    layer: of the library that records MPI calls, which should be at this path; "" if none is to.
    mpicc: with this it can be compiled, if it is not.
    hold: they are to wait for their debuggers.
    patience: seconds after which the agent ends if it has heard nothing.
    """

    mark: str
    compiler: str
    layer: str
    mpicc: str
    hold: bool
    patience: float


@dataclass(frozen=True, slots=True)
class Prepared:
    """The paths of crdebug's parts for the ranks there. layer: as in Prepare."""

    shim: str
    layer: str


@dataclass(frozen=True, slots=True)
class Gather:
    """Which ranks of this job over hosts have begun there? The answer is Gathered.

    host: its name for the user.
    """

    mark: str
    shim: str
    host: str


@dataclass(frozen=True, slots=True)
class SetGate:
    """Open (1) or close (0) the gate of a gathered rank that waits before its main."""

    entry: ProcDesc
    shim: str
    value: int


@dataclass(frozen=True, slots=True)
class Diverges:
    """Does a gathered rank of a job leave the record? See gathering.diverges."""

    mark: str
    shim: str
    layer: str


@dataclass(frozen=True, slots=True)
class LetGo:
    """Let the gathered ranks of a job run on without a debugger. For the arguments and the answer
    see gathering.let_go."""

    mark: str
    shim: str
    layer: str
    another: bool


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """The clocks and logs of ranks there. The answer is a ReadAt."""

    wanted: Wanted


@dataclass(frozen=True, slots=True)
class ReadAt:
    """What the record was at a look."""

    look: ClockLook
    record: RecordNow


@dataclass(frozen=True, slots=True)
class WriteClock:
    """Set something in the clock of a rank there, if the rank still exists."""

    write: ClockWrite


@dataclass(frozen=True, slots=True)
class CutRecord:
    """Forget what is on record there after the place of each of these ranks. compiler: for the
    library that reads it."""

    wanted: Wanted
    compiler: str


@dataclass(frozen=True, slots=True)
class AskHost:
    """A verb of debugger.rank_host.RankHost. The answer is what it returns."""

    verb: str
    arguments: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class FindLines:
    """The source lines of calls of MPI there. The answer is a mapping of these sites, each a PID
    and a return address, to lines."""

    sites: tuple[tuple[int, int], ...]


Request = (
    Hello
    | Find
    | Attach
    | Renew
    | Ask
    | Do
    | Go
    | Halt
    | Ping
    | Probe
    | Prepare
    | Gather
    | SetGate
    | Diverges
    | LetGo
    | ReadRecord
    | WriteClock
    | AskHost
    | CutRecord
    | FindLines
)


# ---- what an agent sends unasked ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Happened:
    """What has happened to ranks: how they are now, and then what their targets told."""

    mirrors: tuple[Mirrors, ...]
    told: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class Stand:
    """The ranks of a run that have stopped. over: so that the run is over; the others are being
    stopped."""

    number: int
    ranks: RankSet
    over: bool


@dataclass(frozen=True, slots=True)
class Says:
    """Words for the user."""

    text: str


Message = Call | Reply | Failed | Cancel | Happened | Stand | Says


# ---- answers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gone:
    """How a run has ended, see Ran."""

    stops: tuple[Stops, ...]
    errors: Classes
    completed: RankSet

    def __post_init__(self) -> None:
        if not all(isinstance(each, Stops) for each in self.stops):
            raise ValueError("these are no stops")
        if not isinstance(self.errors, Classes) or not isinstance(self.completed, RankSet):
            raise ValueError("this is no end of a run")


@dataclass(frozen=True, slots=True)
class Classes:
    """The answers of many ranks, equal ones as one.

    errors: equal ones as one; `ranks` of each is the rank itself, if it is empty here.
    """

    values: tuple[tuple[RankSet, object], ...]
    errors: tuple[tuple[RankSet, CrdebugError], ...]

    def __post_init__(self) -> None:
        pairs = (*self.values, *self.errors)
        if not all(isinstance(ranks, RankSet) for ranks, _ in pairs):
            raise ValueError("not by ranks")
        if not all(isinstance(error, CrdebugError) for _, error in self.errors):
            raise ValueError("these are no errors")


def as_classes(answers: Answers[T]) -> Classes:
    found: dict[tuple[str, str], tuple[CrdebugError, list[int]]] = {}
    for rank, error in answers.errors.items():
        own = RankSet.of([rank])
        alike = str(error).replace(own.words, "") if error.ranks == own else str(error)
        found.setdefault((type(error).__name__, alike), (error, []))[1].append(rank)
    errors = [(RankSet.of(members), _general(error)) for error, members in found.values()]
    return Classes(answers.merged(), tuple(errors))


def _general(error: CrdebugError) -> CrdebugError:
    if error.ranks is not None and len(error.ranks) == 1:
        return replace(error, ranks=None)
    return error


def by_rank(classes: Classes) -> Answers[object]:
    """The answers again, each rank's error with its rank."""
    values = {rank: value for ranks, value in classes.values for rank in ranks}
    errors = {
        rank: replace(error, ranks=error.ranks or RankSet.of([rank]))
        for ranks, error in classes.errors
        for rank in ranks
    }
    return Answers(dict(sorted(values.items())), dict(sorted(errors.items())))
