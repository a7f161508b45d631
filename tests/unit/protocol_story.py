"""A run of the checkpoint protocol without a driver, for its tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crdebug.base.errors import CrdebugError
from crdebug.base.ranks import RankSet
from crdebug.checkpoint.protocol import (
    Announce,
    Attach,
    AwaitWaitpoint,
    Detach,
    Dump,
    Event,
    Failed,
    GiveUp,
    Herd,
    Instruction,
    Phase,
    Protocol,
    Publish,
    RankInstruction,
    Record,
    Restore,
    Retire,
    Rung,
    Start,
    Succeeded,
    WalkOut,
)

SIZE = 3
ALL = RankSet.span(SIZE)
UP: tuple[type[RankInstruction], ...] = (Record, Herd, Detach, AwaitWaitpoint, Attach, WalkOut)


def each(kind: type[RankInstruction], ranks: RankSet = ALL) -> list[Instruction]:
    return [kind(rank) for rank in ranks]


def checkpoint(ranks: RankSet = ALL) -> Protocol:
    return Protocol(ranks, restart=False, debugger=True)


def restart(replaces: bool = True) -> Protocol:
    return Protocol(ALL, restart=True, debugger=True, replaces=replaces)


def bare_checkpoint() -> Protocol:
    return Protocol(ALL, restart=False, debugger=False)


def bare_restart(replaces: bool = True) -> Protocol:
    return Protocol(RankSet(), restart=True, debugger=False, replaces=replaces)


MACHINES: dict[str, Callable[[], Protocol]] = {
    "checkpoint": checkpoint,
    "restart": restart,
    "restart of a job that is over": lambda: restart(replaces=False),
    "checkpoint without a debugger": bare_checkpoint,
    "restart without a debugger": bare_restart,
    "restart of a job that is over, without a debugger": lambda: bare_restart(replaces=False),
}

# ---- a run of the machine, whatever happens in it ------------------------------------------------

Answer = Callable[[Instruction], Event]
Choose = Callable[[Sequence[Instruction]], Instruction]


class Story:
    """What was asked of a driver, and how it was answered; checks what must hold at every step."""

    def __init__(self, machine: Protocol) -> None:
        self.machine = machine
        self.asked: list[Instruction] = []
        self.failed: list[Failed] = []
        self.feed(Start())

    def feed(self, event: Event) -> list[Instruction]:
        if isinstance(event, Failed):
            self.failed.append(event)
        new = self.machine.handle(event)
        self.asked += new
        if Dump() in new and self.machine.debugger:
            assert set(self.machine.rungs.values()) == {Rung.WAITING}
            assert not self.machine.problems
        if isinstance(event, Failed):
            assert event.error in self.machine.problems or event.instruction in new, (
                "an error is told, or the instruction is tried again"
            )
        return new

    def run(self, answer: Answer, choose: Choose) -> Story:
        while self.machine.pending:
            assert self.machine.phase is not Phase.ENDED
            assert len(self.asked) < 20 * (SIZE + 1), "it does not come to an end"
            self.feed(answer(choose(self.machine.pending)))
        self.check_end()
        return self

    def check_end(self) -> None:
        machine = self.machine
        assert machine.phase is Phase.ENDED
        for rank, rung in machine.rungs.items():
            assert rung <= Rung.RECORDED or rung is Rung.OUT or rank in machine.held, (rank, rung)
        final = {
            event.instruction.rank
            for event in self.failed
            if isinstance(event.instruction, Attach | WalkOut)
        }
        assert set(machine.held) <= final, "held without a failed way out"
        assert set(machine.lost) == {
            event.instruction.rank
            for event in self.failed
            if event.lost and isinstance(event.instruction, RankInstruction)
        }
        assert not set(machine.lost) & machine.rungs.keys()
        done = Restore() if machine.restart else Publish()
        failed = [event.instruction for event in self.failed]
        assert machine.taken == (done in self.asked and done not in failed)
        if not self.failed:
            assert not machine.problems
        if not machine.problems:
            assert machine.taken
            assert not machine.held and not machine.lost
            assert set(machine.rungs.values()) <= {Rung.OUT}


def succeed(instruction: Instruction) -> Event:
    return Succeeded(instruction)


def failure(instruction: Instruction, lost: bool = False, let_go: bool = False) -> Failed:
    return Failed(instruction, CrdebugError(f"no {instruction}"), lost, let_go)


def give_up() -> GiveUp:
    return GiveUp(CrdebugError("interrupted"))


def oldest(pending: Sequence[Instruction]) -> Instruction:
    return pending[0]


def newest(pending: Sequence[Instruction]) -> Instruction:
    return pending[-1]


def highest_rank_first(pending: Sequence[Instruction]) -> Instruction:
    return max(pending, key=lambda each: getattr(each, "rank", -1))


def job_last(pending: Sequence[Instruction]) -> Instruction:
    return min(pending, key=lambda each: not isinstance(each, RankInstruction))


INTERLEAVINGS = (oldest, newest, highest_rank_first, job_last)

HAPPY: dict[str, list[Instruction]] = {
    "checkpoint": [
        *each(Record),
        *each(Herd),
        *each(Detach),
        *each(AwaitWaitpoint),
        Dump(),
        Publish(),
        *each(Attach),
        *each(WalkOut),
    ],
    "restart": [
        Restore(),
        Retire(),
        *each(AwaitWaitpoint),
        Announce(),
        *each(Attach),
        *each(WalkOut),
    ],
    "restart of a job that is over": [
        Restore(),
        *each(AwaitWaitpoint),
        Announce(),
        *each(Attach),
        *each(WalkOut),
    ],
    "checkpoint without a debugger": [Dump(), Publish()],
    "restart without a debugger": [Restore(), Retire()],
    "restart of a job that is over, without a debugger": [Restore()],
}
