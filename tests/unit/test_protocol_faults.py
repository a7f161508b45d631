"""The checkpoint protocol as lists: any failure, in any order, ends well."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_story import (
    ALL,
    HAPPY,
    INTERLEAVINGS,
    MACHINES,
    SIZE,
    UP,
    Choose,
    Story,
    checkpoint,
    each,
    failure,
    give_up,
    oldest,
    restart,
    succeed,
)

from crdebug.base.ranks import RankSet
from crdebug.checkpoint.protocol import (
    Announce,
    Attach,
    AwaitWaitpoint,
    Detach,
    Dump,
    Event,
    Failed,
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
    Succeeded,
    WalkOut,
)

pytestmark = pytest.mark.unit


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


def test_an_attach_is_tried_twice_and_the_first_failure_is_not_reported() -> None:
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


def test_a_debugger_that_dies_on_the_way_out_is_replaced_once_and_reported() -> None:
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


def test_a_restart_is_announced_once_whichever_thread_is_last() -> None:
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
