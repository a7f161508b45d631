"""The checkpoint protocol as lists: every way that it can go, without a process."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from protocol_story import (
    ALL,
    HAPPY,
    INTERLEAVINGS,
    MACHINES,
    UP,
    Choose,
    Story,
    bare_checkpoint,
    bare_restart,
    checkpoint,
    each,
    failure,
    give_up,
    job_last,
    oldest,
    restart,
    succeed,
)

from crdebug.base.errors import InvalidTransition
from crdebug.checkpoint.protocol import (
    Attach,
    AwaitWaitpoint,
    Detach,
    Dump,
    Event,
    Phase,
    Protocol,
    Publish,
    Record,
    Rung,
    Start,
    Succeeded,
    WalkOut,
    phase_of,
    variables,
)

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", MACHINES)
def test_all_goes_well(name: str) -> None:
    story = Story(MACHINES[name]()).run(succeed, oldest)
    assert story.asked == HAPPY[name]
    assert not story.machine.problems
    assert story.machine.taken


@pytest.mark.parametrize(("name", "choose"), list(product(MACHINES, INTERLEAVINGS)))
def test_the_order_of_answers_changes_neither_the_requests_nor_the_outcome(
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
    """Each once, in the order of their events, if the image takes longest to write."""
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
