"""Breakpoints where a restart, or going back, puts the ranks; and in another session."""

from __future__ import annotations

import crdebug
from crdebug.base.events import JobSays
from crdebug.session import Session
from harness.jobs import Heard
from harness.programs import build
from harness.talk import Talk
from harness.travel import recorded


async def test_a_breakpoint_where_the_rank_is_put_has_been_hit_already() -> None:
    async with recorded(build("dies"), "--step", 0, ranks=2) as job:
        talk = Talk(job)
        await talk.all(["barrier exchange", "[0] break work_step", "continue"])
        assert await talk("[0] print step") == "[0] = 2"
        await talk("checkpoint")
        for verb in ("[0] next", "[0] step", "[0] stepi", "continue"):
            await talk("restart")
            said = await talk(verb)
            again = "rank 0 hit breakpoint 2: work_step at "
            assert said.startswith(again if verb == "continue" else "[0] work_step at "), verb
        assert await talk("[0] print step") == "[0] = 3"
        (point,) = job.breakpoints()
        assert point.hits == 2
        # also where it was taken back by steps, or in memory
        await talk.all(["[0] next", "[0] reverse-next"])
        assert (await talk("[0] next")).startswith("[0] work_step at ")
        await talk.all(["[0] reverse-next", "mark here", "[0] next", "goto here"])
        assert (await talk("[0] next")).startswith("[0] work_step at ")


def points(job: Session) -> list[object]:
    """The breakpoints and displays that should be as they were."""
    return [
        (p.number, p.kind, p.ranks, p.condition, p.ignore, p.enabled, p.commands, p.hits)
        for p in job.breakpoints()
    ]


async def test_breakpoints_and_displays_are_there_in_the_next_session() -> None:
    ends = ["--step", 0, "--steps", 10**7]
    async with recorded(build("dies"), *ends, ranks=2) as job:
        talk = Talk(job)
        await talk.all(["barrier exchange", "break exchange if step > 3", "continue", "ignore 2 1"])
        await talk("commands 2", "print step")
        await talk.all(["break die", "disable 3", "[0] tbreak report", "watch when"])
        await talk.all(["[0] break *$pc", "[1] display step"])
        await talk("checkpoint")
        name, expected = job.job, points(job)
        await talk("watch sum")  # which is of the frame
        await job.detach()
    heard = Heard()

    def told() -> list[str]:
        return [each.text for each in heard.events if isinstance(each, JobSays)]

    async def is_as_it_was(job: Session, dropped: str) -> None:
        assert points(job) == expected
        numbers = ["breakpoint 2", "breakpoint 3", "breakpoint 4", "watchpoint 5", "breakpoint 6"]
        assert f"set again: {', '.join(numbers)}, display 1{dropped}" in told()
        talk = Talk(job)
        assert await talk("info display") == "1: [1] display step"
        # the next number is a new one
        assert (await talk("break pause_us")).startswith("breakpoint 8 ")
        await talk.all(["delete 8", "delete 5-6", "continue"])
        assert "hit breakpoint 2" in await talk("continue")

    async with crdebug.attach(name, subscriber=heard) as job:
        await is_as_it_was(job, "; dropped: watchpoint 7 (sum)")
    async with crdebug.restart(f"{name}:1", subscriber=heard) as job:
        assert [p.number for p in job.breakpoints()] == [2, 3, 4]
        await Talk(job).all(["watch sum", "restart"])
        assert "dropped by the restart: watchpoint 5 (sum)" in told()
