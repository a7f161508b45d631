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
without the stop in the middle, the others stay where they are. So every path ends with the job
stopped in its debuggers as before, or with the ranks that are held named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum

from crdebug.errors import CrdebugError, InvalidTransition
from crdebug.ranks import RankSet


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
    """What the operation as a whole does; the value is the word that users read."""

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
    ENDED = "ended"


# ---- instructions ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """Note each thread's PC, SP and system call; say what stands in the way of herding it."""

    rank: int


@dataclass(frozen=True, slots=True)
class Herd:
    """Close the gate and queue the waitpoint signal to every thread, while all are stopped."""

    rank: int


@dataclass(frozen=True, slots=True)
class Detach:
    """Take breakpoints out and let the debugger go; its process stays."""

    rank: int


@dataclass(frozen=True, slots=True)
class AwaitWaitpoint:
    """Until every thread of the rank is in the waitpoint, and nothing traces it."""

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
    """Have the CRS write the image of the whole job."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Make the image a checkpoint: hashes, manifest, rename."""


@dataclass(frozen=True, slots=True)
class Restore:
    """Have the CRS bring the job back, as another incarnation, set up by `variables`."""


@dataclass(frozen=True, slots=True)
class Retire:
    """End the incarnation that was there before."""


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
    """error: why. lost: the rank has ended, there is nothing to bring back."""

    instruction: Instruction
    error: CrdebugError
    lost: bool = False


Event = Start | Succeeded | Failed

_UP: dict[Rung, type[RankInstruction]] = {
    Rung.STOPPED: Record,
    Rung.RECORDED: Herd,
    Rung.HERDED: Detach,
    Rung.DETACHED: AwaitWaitpoint,
    Rung.WAITING: Attach,
    Rung.ATTACHED: WalkOut,
}
_PHASE: dict[Rung, Phase] = {
    Rung.STOPPED: Phase.RECORD,
    Rung.RECORDED: Phase.HERD,
    Rung.HERDED: Phase.DETACH,
    Rung.DETACHED: Phase.HOLD,
    Rung.WAITING: Phase.ATTACH,
    Rung.ATTACHED: Phase.WALK_OUT,
}
ATTACH_TRIES = 2


@dataclass(frozen=True, slots=True)
class Variables:
    """The two variables of the protocol's table in every rank, and whether its threads wait."""

    with_checkpoint: int
    gate: int
    waiting: bool


def variables(before: bool, after: bool) -> tuple[Variables, Variables]:
    """The protocol's table: what holds in the image, and what is set in it before it runs again.

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

    After each event: `phase`; once it is ENDED, `problems` (empty: all went well), `taken` (a
    checkpoint was published, or the job was restored), `held` (ranks left in the waitpoint) and
    `lost` (ranks that have ended).
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
    _dumped: bool = False

    def handle(self, event: Event) -> list[Instruction]:
        """What to do now. Raises InvalidTransition for an event that nobody asked for."""
        self.story.append(f"{self.phase.value}: {event}")
        match event:
            case Start():
                instructions = self._start()
            case Succeeded(instruction):
                self._settle(instruction, event)
                instructions = self._succeeded(instruction)
            case Failed(instruction, error, lost):
                self._settle(instruction, event)
                self.problems.append(error)
                instructions = self._failed(instruction, lost)
        self._pending += instructions
        if not self._pending:
            self.phase = Phase.ENDED
        return instructions

    @property
    def pending(self) -> tuple[Instruction, ...]:
        """The instructions that no event has answered yet."""
        return tuple(self._pending)

    def _settle(self, instruction: Instruction, event: Event) -> None:
        if instruction not in self._pending:
            raise InvalidTransition(
                f"{event} was not asked for", phase=self.phase.value, story=tuple(self.story)
            )
        self._pending.remove(instruction)

    def _start(self) -> list[Instruction]:
        if self._pending or self.rungs or self.phase is Phase.ENDED:
            raise InvalidTransition(
                "started twice", phase=self.phase.value, story=tuple(self.story)
            )
        if self.restart:
            self.phase = Phase.RESTORE
            return [Restore()]
        if not self.debugger:
            self.phase = Phase.DUMP
            return [Dump()]
        self.rungs = dict.fromkeys(self.ranks, Rung.STOPPED)
        return [Record(rank) for rank in self.ranks]

    # ---- the ladder ------------------------------------------------------------------------

    def _succeeded(self, instruction: Instruction) -> list[Instruction]:
        match instruction:
            case Dump():
                self._dumped = True
                return [Publish(), *self._climb_all(Rung.WAITING)]
            case Publish():
                self.taken = True
                return []
            case Restore():
                self.taken = True
                if self.replaces:
                    self.phase = Phase.RETIRE
                    return [Retire()]
                return self._after_restore()
            case Retire():
                return self._after_restore()
            case Announce():
                return self._climb_all(Rung.WAITING)
            case _:
                self.rungs[instruction.rank] = Rung(self.rungs[instruction.rank] + 1)
                return self._go_on(instruction.rank)

    def _failed(self, instruction: Instruction, lost: bool) -> list[Instruction]:
        match instruction:
            case Dump():
                return self._climb_all(Rung.WAITING)
            case Publish() | Restore():
                return []
            case Retire():
                return self._after_restore()
            case Announce():
                return self._climb_all(Rung.WAITING)
            case _:
                return self._rank_failed(instruction, lost)

    def _after_restore(self) -> list[Instruction]:
        if not self.debugger:
            return []
        # The image holds the threads in their waitpoints, or the signals that lead them there.
        self.rungs = dict.fromkeys(self.ranks, Rung.DETACHED)
        return self._climb_all(Rung.DETACHED)

    def _rank_failed(self, instruction: RankInstruction, lost: bool) -> list[Instruction]:
        rank = instruction.rank
        if lost:
            self.lost |= RankSet.of([rank])
            del self.rungs[rank]
            return self._on_without_dump()
        match instruction:
            case Record() | Herd():
                return self._on_without_dump()
            case Detach() | AwaitWaitpoint():
                # Its debugger died, which detached it; or a thread did not come. The others come
                # out again; so does this one, as far as it went in.
                self.rungs[rank] = Rung.WAITING
                return self._on_without_dump()
            case Attach():
                self._tries[rank] = self._tries.get(rank, 0) + 1
                if self._tries[rank] < ATTACH_TRIES:
                    self.problems.pop()  # the second try decides
                    return [instruction]
                self.held |= RankSet.of([rank])
                return []
            case WalkOut():
                self.held |= RankSet.of([rank])
                return []

    @property
    def _abandoned(self) -> bool:
        """Is there to be no dump any more?"""
        return bool(self.problems) and not self._dumped and not self.restart

    def _on_without_dump(self) -> list[Instruction]:
        """After a failure: ranks that stood at a barrier go on without it."""
        idle = [
            r for r in self.rungs if not any(getattr(p, "rank", -1) == r for p in self._pending)
        ]
        return [instruction for rank in idle for instruction in self._go_on(rank)]

    def _climb_all(self, rung: Rung) -> list[Instruction]:
        self.phase = _PHASE[rung] if self.rungs else self.phase
        return [_UP[rung](rank) for rank, at in self.rungs.items() if at is rung]

    def _go_on(self, rank: int) -> list[Instruction]:
        """The next instruction for a rank, or for all of them if it was the last one awaited."""
        rung = self.rungs[rank]
        if rung is Rung.OUT or rank in self.held:
            return []
        if self._abandoned:
            # What was not herded yet stays as it is.
            return [] if rung < Rung.HERDED else [self._step(rank)]
        if rung is Rung.ATTACHED:
            return [self._step(rank)]
        # Up to the dump the ranks go in step: no signal is queued anywhere before every rank said
        # that it can be herded, and none is dumped before all are held.
        if any(at < rung for at in self.rungs.values()):
            return []
        if rung is Rung.WAITING:
            self.phase = Phase.ATTACH if self.restart else Phase.DUMP
            return [Announce() if self.restart else Dump()]
        return self._climb_all(rung)

    def _step(self, rank: int) -> Instruction:
        rung = self.rungs[rank]
        self.phase = _PHASE[rung]
        return _UP[rung](rank)
