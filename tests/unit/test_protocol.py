"""The checkpoint protocol as lists: every way that it can go, without a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    phase_of,
    variables,
)
from crdebug.errors import CrdebugError, InvalidTransition
from crdebug.ranks import RankSet

pytestmark = pytest.mark.unit

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


def oldest(pending: Sequence[Instruction]) -> Instruction:
    return pending[0]


def newest(pending: Sequence[Instruction]) -> Instruction:
    return pending[-1]


def highest_rank_first(pending: Sequence[Instruction]) -> Instruction:
    return max(pending, key=lambda each: getattr(each, "rank", -1))


def job_last(pending: Sequence[Instruction]) -> Instruction:
    return min(pending, key=lambda each: not isinstance(each, RankInstruction))


INTERLEAVINGS = (oldest, newest, highest_rank_first, job_last)

# ---- when all goes well --------------------------------------------------------------------------

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


@pytest.mark.parametrize("name", MACHINES)
def test_all_goes_well(name: str) -> None:
    story = Story(MACHINES[name]()).run(succeed, oldest)
    assert story.asked == HAPPY[name]
    assert not story.machine.problems
    assert story.machine.taken


@pytest.mark.parametrize(("name", "choose"), list(product(MACHINES, INTERLEAVINGS)))
def test_the_order_of_answers_changes_neither_what_is_asked_nor_the_outcome(
    name: str, choose: Choose
) -> None:
    story = Story(MACHINES[name]()).run(succeed, choose)
    assert sorted(map(str, story.asked)) == sorted(map(str, HAPPY[name]))
    assert story.machine.taken


def test_the_ranks_go_in_step_up_to_the_dump_and_alone_after_it() -> None:
    story = Story(checkpoint())
    for kind, following in pairwise(UP[:4]):
        assert story.feed(Succeeded(kind(0))) == []
        assert story.feed(Succeeded(kind(2))) == []
        assert story.feed(Succeeded(kind(1))) == each(following)
    for rank in (1, 2):
        assert story.feed(Succeeded(AwaitWaitpoint(rank))) == []
    assert story.feed(Succeeded(AwaitWaitpoint(0))) == [Dump()]
    assert story.feed(Succeeded(Dump())) == [Publish(), *each(Attach)]
    assert story.feed(Succeeded(Attach(1))) == [WalkOut(1)]
    assert story.feed(Succeeded(WalkOut(1))) == []
    assert story.machine.rungs == {0: Rung.WAITING, 1: Rung.OUT, 2: Rung.WAITING}


def phases(machine: Protocol) -> str:
    """Each once, in the order that they are told, when the image is the slowest to be written."""
    story, told = Story(machine), [machine.phase]
    while machine.pending:
        story.feed(Succeeded(job_last(machine.pending)))
        told.append(machine.phase)
    return ", ".join(phase.value for phase in dict.fromkeys(told))


def test_the_phases_that_users_read() -> None:
    up = "record, herd, detach, hold, dump, attach, walk out, publish, ended"
    assert phases(checkpoint()) == up
    assert phases(restart()) == "restore, retire, hold, attach, walk out, ended"
    assert phases(bare_checkpoint()) == "dump, publish, ended"
    assert phases(bare_restart()) == "restore, retire, ended"


def test_the_variables_of_the_protocols_table() -> None:
    table = {
        # debugger at checkpoint, at restart: with_checkpoint, gate, waiting; before and after
        (False, False): ((0, 0, False), (0, 1, False)),
        (False, True): ((0, 0, False), (1, 0, True)),
        (True, True): ((1, 0, True), (1, 0, True)),
        (True, False): ((1, 0, True), (0, 1, False)),
    }
    for scenario, expected in table.items():
        found = tuple((v.with_checkpoint, v.gate, v.waiting) for v in variables(*scenario))
        assert found == expected


# ---- one failure, everywhere ---------------------------------------------------------------------

WAYS = {"failed": (False, False), "lost": (True, False), "let go": (False, True)}


@pytest.mark.parametrize(("name", "way"), list(product(MACHINES, WAYS)))
def test_each_instruction_fails_in_each_way_in_each_order(name: str, way: str) -> None:
    lost, let_go = WAYS[way]
    for choose, victim in product(INTERLEAVINGS, HAPPY[name]):
        for times in (1, 2, 99):
            left = [times]

            def answer(
                instruction: Instruction,
                victim: Instruction = victim,
                left: list[int] = left,
            ) -> Event:
                if instruction != victim or left[0] == 0:
                    return Succeeded(instruction)
                left[0] -= 1
                return failure(instruction, lost, let_go)

            Story(MACHINES[name]()).run(answer, choose)


def after(machine: Protocol, *events: Event) -> list[Instruction]:
    """What is asked after these events, and all others that were asked before went well.

    An event waits until its instruction is pending.
    """
    story = Story(machine)
    answers: list[Instruction] = []
    for event in events:
        assert isinstance(event, Succeeded | Failed)
        while event.instruction not in machine.pending:
            story.feed(Succeeded(machine.pending[0]))
        answers = story.feed(event)
    story.run(succeed, oldest)
    return answers


@pytest.mark.parametrize("kind", [Record, Herd])
def test_before_a_signal_is_queued_a_failure_leaves_every_rank_as_it_is(
    kind: type[RankInstruction],
) -> None:
    machine = checkpoint()
    story = Story(machine)
    if kind is Herd:
        for rank in ALL:
            story.feed(Succeeded(Record(rank)))
    assert story.feed(failure(kind(1))) == []
    assert not any(story.feed(failure(kind(rank))) for rank in (0, 2))
    story.check_end()
    assert set(machine.rungs.values()) == {Rung.RECORDED if kind is Herd else Rung.STOPPED}
    assert machine.problems[0].problem == f"no {kind(1)}"


def test_who_was_herded_comes_out_again_when_another_cannot_be() -> None:
    machine = checkpoint()
    story = Story(machine)
    for rank in ALL:
        story.feed(Succeeded(Record(rank)))
    story.feed(Succeeded(Herd(0)))
    assert story.feed(failure(Herd(1))) == [Detach(0)]
    assert story.feed(Succeeded(Herd(2))) == [Detach(2)]
    assert story.feed(Succeeded(Detach(0))) == [AwaitWaitpoint(0)]
    assert story.feed(Succeeded(AwaitWaitpoint(0))) == [Attach(0)]
    story.run(succeed, oldest)
    assert machine.rungs == {0: Rung.OUT, 1: Rung.RECORDED, 2: Rung.OUT}
    assert Dump() not in story.asked


def test_a_rank_whose_debugger_died_gets_another_one_and_is_led_out() -> None:
    for kind, following in ((Record, Attach), (Herd, Attach), (Detach, AwaitWaitpoint)):
        machine = checkpoint()
        assert after(machine, failure(kind(1), let_go=True))[0] == following(1)
        assert machine.rungs[1] is Rung.OUT
        assert not machine.held


def test_a_thread_that_does_not_come_keeps_nobody_waiting() -> None:
    machine = checkpoint()
    story = Story(machine)
    for kind in UP[:3]:
        for rank in ALL:
            story.feed(Succeeded(kind(rank)))
    story.feed(Succeeded(AwaitWaitpoint(2)))
    assert story.feed(failure(AwaitWaitpoint(0))) == [Attach(0), Attach(2)]
    assert story.feed(Succeeded(AwaitWaitpoint(1))) == [Attach(1)]
    story.run(succeed, oldest)
    assert set(machine.rungs.values()) == {Rung.OUT}
    assert not machine.taken


def test_a_failed_dump_brings_all_out() -> None:
    machine = checkpoint()
    assert after(machine, failure(Dump())) == each(Attach)
    assert set(machine.rungs.values()) == {Rung.OUT}
    assert not machine.taken


def test_a_failed_publication_stops_nobody_on_the_way_out() -> None:
    machine = checkpoint()
    assert after(machine, failure(Publish())) == []
    assert set(machine.rungs.values()) == {Rung.OUT}
    assert not machine.taken


def test_an_attach_is_tried_twice_and_the_first_failure_is_not_told() -> None:
    machine = checkpoint()
    assert after(machine, failure(Attach(1))) == [Attach(1)]
    assert not machine.problems and machine.taken
    machine = checkpoint()
    again = failure(Attach(1))
    assert after(machine, failure(Attach(1)), again) == []
    assert machine.problems == [again.error]
    assert machine.held == RankSet.of([1])
    assert machine.taken


def test_a_rank_that_is_not_led_out_is_held_and_the_others_are_not() -> None:
    machine = checkpoint()
    assert after(machine, failure(WalkOut(1))) == []
    assert machine.held == RankSet.of([1])
    assert machine.rungs == {0: Rung.OUT, 1: Rung.ATTACHED, 2: Rung.OUT}


def test_a_debugger_that_dies_on_the_way_out_gets_a_successor_once_and_it_is_told() -> None:
    machine = checkpoint()
    assert after(machine, failure(WalkOut(1), let_go=True)) == [Attach(1)]
    assert not machine.held and len(machine.problems) == 1
    machine = checkpoint()
    after(machine, failure(WalkOut(1), let_go=True), failure(WalkOut(1), let_go=True))
    assert machine.held == RankSet.of([1])


@pytest.mark.parametrize("kind", UP)
def test_a_rank_that_ends_drops_out_and_the_others_come_out(kind: type[RankInstruction]) -> None:
    machine = checkpoint()
    story = Story(machine)
    while kind(1) not in machine.pending:
        story.feed(Succeeded(machine.pending[0]))
    story.feed(failure(kind(1), lost=True))
    story.run(succeed, oldest)
    assert machine.lost == RankSet.of([1])
    assert 1 not in machine.rungs
    # The image was whole before: a checkpoint that was dumped is taken whoever ends later.
    assert machine.taken == (kind in (Attach, WalkOut))


@pytest.mark.parametrize(("name", "kind"), list(product(("checkpoint", "restart"), UP)))
def test_all_ranks_end_at_once(name: str, kind: type[RankInstruction]) -> None:
    machine = MACHINES[name]()

    def answer(instruction: Instruction) -> Event:
        return (
            failure(instruction, lost=True)
            if isinstance(instruction, kind)
            else succeed(instruction)
        )

    story = Story(machine).run(answer, oldest)
    if kind(0) in story.asked:
        assert machine.lost == ALL
        assert not machine.rungs and len(machine.problems) == SIZE


def test_in_a_restart_the_announcement_comes_once_whoever_comes_last() -> None:
    for lost in (False, True):
        machine = restart()
        story = Story(machine)
        story.feed(Succeeded(Restore()))
        story.feed(Succeeded(Retire()))
        story.feed(Succeeded(AwaitWaitpoint(0)))
        story.feed(Succeeded(AwaitWaitpoint(2)))
        assert story.feed(failure(AwaitWaitpoint(1), lost)) == [Announce()]
        story.run(succeed, oldest)
        assert story.asked.count(Announce()) == 1
        assert len(machine.problems) == 1 and machine.taken


def test_a_restart_that_fails_leaves_the_job_as_it_was() -> None:
    machine = restart()
    assert after(machine, failure(Restore())) == []
    assert not machine.taken and not machine.rungs and not machine.held


def test_the_new_incarnation_is_led_out_even_if_the_old_one_does_not_end() -> None:
    machine = restart()
    assert after(machine, failure(Retire())) == each(AwaitWaitpoint)
    assert set(machine.rungs.values()) == {Rung.OUT}
    assert machine.taken and len(machine.problems) == 1


# ---- giving up -----------------------------------------------------------------------------------


def give_up() -> GiveUp:
    return GiveUp(CrdebugError("interrupted"))


@pytest.mark.parametrize(("name", "choose"), list(product(MACHINES, INTERLEAVINGS)))
def test_giving_up_at_any_time_ends_well(name: str, choose: Choose) -> None:
    for steps in range(len(HAPPY[name]) + 1):
        machine = MACHINES[name]()
        story = Story(machine)
        for _ in range(steps):
            story.feed(Succeeded(choose(machine.pending)))
        before = list(story.asked)
        story.feed(give_up())
        story.feed(give_up())  # Ctrl-C once more
        while machine.pending:
            story.feed(Succeeded(choose(machine.pending)))
        assert machine.phase is Phase.ENDED
        assert set(machine.rungs.values()) <= {Rung.STOPPED, Rung.RECORDED, Rung.OUT}
        assert not machine.held
        assert len(machine.problems) <= 1
        if not machine.restart and Dump() not in before:
            assert Dump() not in story.asked and not machine.taken
            assert [error.problem for error in machine.problems] == ["interrupted"]
        if machine.restart:
            assert machine.taken and not machine.problems


def test_a_dump_that_is_broken_off_says_interrupted_first() -> None:
    machine = checkpoint()
    story = Story(machine)
    while Dump() not in machine.pending:
        story.feed(Succeeded(machine.pending[0]))
    assert story.feed(give_up()) == []
    assert story.feed(failure(Dump())) == each(Attach)
    story.run(succeed, oldest)
    assert machine.problems[0].problem == "interrupted"


# ---- anything, in any order ----------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(sorted(MACHINES)))
def test_whatever_fails_in_whatever_order(data: st.DataObject, name: str) -> None:
    machine = MACHINES[name]()
    story = Story(machine)
    gave_up = False
    ways = [None, None, None, *WAYS.values()]
    while machine.pending:
        assert len(story.asked) < 20 * (SIZE + 1)
        if not gave_up and data.draw(st.integers(0, 19), "give up") == 0:
            gave_up = True
            story.feed(give_up())
            continue
        instruction = data.draw(st.sampled_from(machine.pending), "next")
        way = data.draw(st.sampled_from(ways), "way")
        story.feed(Succeeded(instruction) if way is None else failure(instruction, *way))
    if not gave_up:
        story.check_end()
    assert machine.phase is Phase.ENDED


# ---- events that nobody asked for ----------------------------------------------------------------


def test_what_was_not_asked_for_is_refused_with_the_story() -> None:
    machine = checkpoint()
    story = Story(machine)
    for rank in ALL:
        story.feed(Succeeded(Record(rank)))
    wrong: list[Event] = [Start(), Succeeded(Record(0)), Succeeded(Dump()), failure(Detach(0))]
    for event in wrong:
        before = machine.pending
        with pytest.raises(InvalidTransition) as caught:
            machine.handle(event)
        assert machine.pending == before, "it goes on as if nothing had happened"
        told = str(caught.value)
        assert "during herd" in told
        for rank in ALL:
            assert f"record: Succeeded(instruction=Record(rank={rank}))" in told
    story.run(succeed, oldest)
    assert machine.taken
    with pytest.raises(InvalidTransition):
        machine.handle(Succeeded(WalkOut(0)))
    assert machine.handle(give_up()) == []  # it may come late
    assert not machine.problems


def test_every_instruction_has_a_phase() -> None:
    for story in HAPPY.values():
        for instruction in story:
            assert phase_of(instruction) in Phase
