"""The C/R-aware debugging protocol as a pure state machine: events in, instructions out.

After Hursey et al., "Checkpoint/Restart-Enabled Parallel Debugging" (EuroMPI 2010). No I/O, no
clock: `driver.py` carries the instructions out and answers each with one event.

Each rank goes up a ladder, one rung for each instruction that succeeded; the job as a whole waits
only once, for every rank to be in its waitpoint before the dump:

    STOPPED  -Record->  RECORDED  -Herd->  HERDED  -Detach->  DETACHED  -AwaitWaitpoint->  WAITING
    (all ranks WAITING: Dump)
    WAITING  -Attach->  ATTACHED  -WalkOut->  OUT

A restart begins with Restore, and its ranks at DETACHED (all WAITING: Announce).

A failure before the dump leaves it out: ranks that were herded by then go up the same ladder
without the stop in the middle, the others stay where they are. A debugger that dies lets its rank
go: wherever that happens, the rank goes on at Attach, which brings a new debugger. So every path
ends with the job stopped in its debuggers as before, or with the ranks that are held named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum

from crdebug.base import events
from crdebug.base.errors import CrdebugError, InvalidTransition
from crdebug.base.ranks import RankSet


class Rung(IntEnum):
    """How far a rank has come."""

    STOPPED = 0
    RECORDED = 1
    HERDED = 2
    DETACHED = 3
    WAITING = 4
    ATTACHED = 5
    OUT = 6


class Phase(Enum):
    """What the operation as a whole does, in this order; the value is the word that users read."""

    RECORD = "record"
    HERD = "herd"
    DETACH = "detach"
    HOLD = "hold"
    DUMP = "dump"
    RESTORE = "restore"
    RETIRE = "retire"
    ATTACH = "attach"
    WALK_OUT = "walk out"
    PUBLISH = "publish"
    ENDED = events.ENDED


# ---- instructions ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """Note each thread's PC, SP and system call; report any obstacle to herding it."""

    rank: int


@dataclass(frozen=True, slots=True)
class Herd:
    """Close the gate and queue the waitpoint signal to every thread, while all are stopped."""

    rank: int


@dataclass(frozen=True, slots=True)
class Detach:
    """Take breakpoints out and detach the debugger; its process stays."""

    rank: int


@dataclass(frozen=True, slots=True)
class AwaitWaitpoint:
    """Wait until every thread of the rank is in the waitpoint, and nothing traces it."""

    rank: int


@dataclass(frozen=True, slots=True)
class Attach:
    """Attach the rank's debugger again, with a new one if the old one died."""

    rank: int


@dataclass(frozen=True, slots=True)
class WalkOut:
    """Lead each thread to where it was, and verify."""

    rank: int


@dataclass(frozen=True, slots=True)
class Dump:
    """The CRS writes the image of the whole job."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Make the image a checkpoint: hashes, manifest, rename."""


@dataclass(frozen=True, slots=True)
class Restore:
    """The CRS brings the job back, as another incarnation, set up by `variables`."""


@dataclass(frozen=True, slots=True)
class Retire:
    """End the previous incarnation."""


@dataclass(frozen=True, slots=True)
class Announce:
    """Say that it is safe to attach: MPIR_debug_info) lines."""


RankInstruction = Record | Herd | Detach | AwaitWaitpoint | Attach | WalkOut
JobInstruction = Dump | Publish | Restore | Retire | Announce
Instruction = RankInstruction | JobInstruction

# ---- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """The user asked."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    instruction: Instruction


@dataclass(frozen=True, slots=True)
class Failed:
    """error: why.  lost: the rank has ended, there is nothing to bring back.  let_go: its debugger
    has died, so that nothing stops the rank any more."""

    instruction: Instruction
    error: CrdebugError
    lost: bool = False
    let_go: bool = False


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The user has given up. Comes unasked, at any time; work that cannot be left half done goes
    on.  error: what to say."""

    error: CrdebugError


Event = Start | Succeeded | Failed | GiveUp

_UP: dict[Rung, type[RankInstruction]] = {
    Rung.STOPPED: Record,
    Rung.RECORDED: Herd,
    Rung.HERDED: Detach,
    Rung.DETACHED: AwaitWaitpoint,
    Rung.WAITING: Attach,
    Rung.ATTACHED: WalkOut,
}
_PHASES: dict[type[Instruction], Phase] = {
    Record: Phase.RECORD,
    Herd: Phase.HERD,
    Detach: Phase.DETACH,
    AwaitWaitpoint: Phase.HOLD,
    Dump: Phase.DUMP,
    Restore: Phase.RESTORE,
    Retire: Phase.RETIRE,
    Announce: Phase.ATTACH,
    Attach: Phase.ATTACH,
    WalkOut: Phase.WALK_OUT,
    Publish: Phase.PUBLISH,
}
_ORDER = tuple(Phase)
ATTACH_TRIES = 2


def phase_of(instruction: Instruction) -> Phase:
    """The phase that an instruction belongs to."""
    return _PHASES[type(instruction)]


@dataclass(frozen=True, slots=True)
class Variables:
    """The two variables of the protocol's table in every rank, and whether its threads wait."""

    with_checkpoint: int
    gate: int
    waiting: bool


def variables(before: bool, after: bool) -> tuple[Variables, Variables]:
    """The protocol's table: the values in the image, and the values to set before it runs again.

    before, after: is there a debugger at the checkpoint, and at the restart?
    """
    image = Variables(int(before), 0, before)
    return image, Variables(int(after), 0 if after else 1, after)


@dataclass(slots=True)
class Protocol:
    """One checkpoint or one restart.

    ranks: of the job. restart: bring back rather than take. debugger: is there one: at the
    checkpoint that is taken, or after the restart? replaces: an incarnation is to be retired once
    the new one is there.

    After each event: `phase`; once it is ENDED, `problems` (empty: all went well; the first one is
    the cause), `taken` (a checkpoint was published, or the job was restored), `held` (ranks that
    no debugger could lead out of the waitpoint) and `lost` (ranks that have ended).
    """

    ranks: RankSet
    restart: bool
    debugger: bool
    replaces: bool = False

    phase: Phase = Phase.RECORD
    taken: bool = False
    problems: list[CrdebugError] = field(default_factory=list)
    rungs: dict[int, Rung] = field(default_factory=dict)
    held: RankSet = RankSet()  # noqa: RUF009 - immutable
    lost: RankSet = RankSet()  # noqa: RUF009
    story: list[str] = field(default_factory=list)
    _pending: list[Instruction] = field(default_factory=list)
    _tries: dict[int, int] = field(default_factory=dict)
    _started: bool = False
    _parted: bool = False  # after the barrier: each rank goes up on its own

    def handle(self, event: Event) -> list[Instruction]:
        """What to do now. Raises InvalidTransition for an event that nobody asked for."""
        self._check(event)
        self.story.append(f"{self.phase.value}: {event}")
        match event:
            case Start():
                instructions = self._start()
            case Succeeded(instruction):
                self._pending.remove(instruction)
                instructions = self._succeeded(instruction)
            case Failed(instruction):
                self._pending.remove(instruction)
                instructions = self._failed(event)
            case GiveUp(error):
                instructions = self._give_up(error)
        self._pending += instructions
        further = self._advance()
        self._pending += further
        phases = [phase_of(each) for each in self._pending]
        self.phase = min(phases, key=_ORDER.index, default=Phase.ENDED)
        self.validate()
        return instructions + further

    @property
    def pending(self) -> tuple[Instruction, ...]:
        """The instructions that no event has answered yet."""
        return tuple(self._pending)

    def _check(self, event: Event) -> None:
        match event:
            case Start():
                wrong = "started twice" if self._started else ""
            case Succeeded(instruction) | Failed(instruction):
                wrong = "" if instruction in self._pending else f"{event} was not asked for"
            case GiveUp():
                wrong = ""
        if wrong:
            raise InvalidTransition(wrong, phase=self.phase.value, story=tuple(self.story))

    def validate(self) -> None:
        """Raises AssertionError unless the invariants hold; they do after every event."""
        busy = [each.rank for each in self._pending if isinstance(each, RankInstruction)]
        assert len(busy) == len(set(busy)), "two instructions for one rank"
        assert all(rank in self.rungs and rank not in self.held for rank in busy), "a rank is gone"
        if Dump() in self._pending:
            assert set(self.rungs.values()) <= {Rung.WAITING}, "a dump of ranks that can run"
            assert not busy, "a dump while ranks move"
        if self.phase is Phase.ENDED:
            assert not self._pending, "not at the end"
            for rank, rung in self.rungs.items():
                whole = rung < Rung.HERDED or rung is Rung.OUT or rank in self.held
                assert whole, f"rank {rank} was left at {rung.name}"

    # ---- the job ---------------------------------------------------------------------------

    def _start(self) -> list[Instruction]:
        self._started = True
        if self.restart:
            return [Restore()]
        if not self.debugger:
            return [Dump()]
        self.rungs = dict.fromkeys(self.ranks, Rung.STOPPED)
        return []

    def _succeeded(self, instruction: Instruction) -> list[Instruction]:
        match instruction:
            case Dump():
                self._parted = True
                return [Publish()]
            case Publish():
                self.taken = True
            case Restore():
                self.taken = True
                if self.replaces:
                    return [Retire()]
                self._bring_in()
            case Retire():
                self._bring_in()
            case Announce():
                self._parted = True
            case _:
                self.rungs[instruction.rank] = Rung(self.rungs[instruction.rank] + 1)
        return []

    def _failed(self, event: Failed) -> list[Instruction]:
        instruction = event.instruction
        if isinstance(instruction, RankInstruction):
            return self._rank_failed(instruction, event)
        self.problems.append(event.error)
        match instruction:
            case Dump() | Announce():
                self._parted = True
            case Retire():
                self._bring_in()
        return []

    def _bring_in(self) -> None:
        """The image holds the threads in their waitpoints, or the signals that lead them there."""
        if self.debugger:
            self.rungs = dict.fromkeys(self.ranks, Rung.DETACHED)

    def _give_up(self, error: CrdebugError) -> list[Instruction]:
        # Once the ways have parted, each operation ends by itself, and soon; so does one on a job
        # that is back. The answer to a dump is an event of its own.
        if self._pending and not self._parted and not self.restart and not self.problems:
            self.problems.append(error)
            self._parted = Dump() not in self._pending
        return []

    # ---- the ranks -------------------------------------------------------------------------

    def _rank_failed(self, instruction: RankInstruction, event: Failed) -> list[Instruction]:
        rank = instruction.rank
        if not self.restart:
            self._parted = True  # no dump any more, if there was none yet
        if event.lost:
            self.lost |= RankSet.of([rank])
            del self.rungs[rank]
        elif isinstance(instruction, Attach):
            self._tries[rank] = self._tries.get(rank, 0) + 1
            if self._tries[rank] < ATTACH_TRIES:
                return [instruction]  # the second try decides, and is the one that is told
            self.held |= RankSet.of([rank])
        elif isinstance(instruction, WalkOut):
            # A debugger that died on the way out gets a successor; once.
            self._tries[rank] = self._tries.get(rank, 0) + 1
            if event.let_go and self._tries[rank] < ATTACH_TRIES:
                self.rungs[rank] = Rung.WAITING
            else:
                self.held |= RankSet.of([rank])
        elif isinstance(instruction, AwaitWaitpoint):
            # A thread did not come. The rank is led out again, as far as it went in.
            self.rungs[rank] = Rung.WAITING
        elif isinstance(instruction, Detach):
            self.rungs[rank] = Rung.DETACHED  # whatever became of its debugger: it was herded
        elif event.let_go:
            self.rungs[rank] = Rung.WAITING  # it is running: a new debugger has to stop it
        self.problems.append(event.error)
        return []

    def _advance(self) -> list[Instruction]:
        """What the ranks do next."""
        if any(not isinstance(each, RankInstruction | Publish) for each in self._pending):
            return []
        busy = {each.rank for each in self._pending if isinstance(each, RankInstruction)}
        if self._parted:
            # Ranks that no signal was queued to need no undoing.
            return [
                _UP[rung](rank)
                for rank, rung in self.rungs.items()
                if Rung.HERDED <= rung < Rung.OUT and rank not in busy and rank not in self.held
            ]
        # Up to the dump the ranks go in step: no signal is queued anywhere before every rank said
        # that it can be herded, and none is dumped before all are held.
        rungs = set(self.rungs.values())
        if busy or len(rungs) != 1:
            return []
        rung = rungs.pop()
        if rung is Rung.WAITING:
            return [Announce() if self.restart else Dump()]
        return [_UP[rung](rank) for rank in self.rungs]
