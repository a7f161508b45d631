"""The GDB commands for each of the user's motions."""

from __future__ import annotations

import pytest
from fake_target import FakeTarget

from crdebug.base.deadline import Deadline
from crdebug.base.events import StopReason
from crdebug.debugger import motions, rank_commands, stepper
from crdebug.debugger.target import Motion, Verb

ORIGIN = stepper.WalkOrigin("alone", stop_at=0x7F10, stop=258, hold=0x4011)


@pytest.mark.parametrize(
    ("motion", "command"),
    [
        (Motion(Verb.STEP, 2), "-exec-step 2"),
        (Motion(Verb.NEXT), "-exec-next 1"),
        (Motion(Verb.STEPI, 3), "-exec-step-instruction 3"),
        (Motion(Verb.NEXTI), "-exec-next-instruction 1"),
        (Motion(Verb.FINISH), "-exec-finish"),
        (Motion(Verb.UNTIL), "-exec-until"),
        (Motion(Verb.UNTIL, location="ring.c:7"), "-exec-until ring.c:7"),
        (Motion(Verb.ADVANCE, location="work"), '-interpreter-exec console "advance work&"'),
    ],
)
def test_each_motion_has_a_command(motion: Motion, command: str) -> None:
    assert motions.command(motion) == command


def test_only_a_finish_is_done_when_its_function_has_returned() -> None:
    done = {verb: motions.completed(Motion(verb)) for verb in Verb}
    assert done.pop(Verb.FINISH) is StopReason.FINISH
    assert set(done.values()) == {StopReason.STEP}


async def test_the_rank_s_endings_are_heeded_or_not() -> None:
    rank, limit = FakeTarget(0), Deadline(5.0)
    await rank_commands.heed_endings(rank, True, 48, limit)
    await rank_commands.heed_endings(rank, False, 48, limit)
    assert rank.calls == ["-crdebug-endings on 48", "-crdebug-endings off 48"]


def test_a_walk_begins_with_the_clock_as_it_was() -> None:
    assert ORIGIN.options == "--write 7f10=0201000000000000 --limit 4011"
    dead_end = stepper.WalkOrigin("alone", 0x7F10, 258, 0x4011, dead_end=True)
    assert dead_end.options.endswith(" --dead-end 1")
