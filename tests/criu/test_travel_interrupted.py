"""Ctrl-C on the way back: it comes between two parts of a command, when no rank runs."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, Interrupted
from crdebug.base.events import Event, Progress
from crdebug.node import proc
from harness import looks
from harness.jobs import run_to_end
from harness.programs import build
from harness.talk import Talk
from harness.travel import history, recorded, run_to

_SOME = 50  # clock ticks of computing: half a second

# Commands, and at which progress it comes: words of the phase.
WAYS = (
    ("[0] goto tick 3", "checkpoint"),
    ("[0] goto tick 3", "replay"),
    ("[0] bisect rank 0: step >= 6", "tick"),
    ("[0] reverse-continue", "looking for stops"),
)


async def test_a_long_way_within_one_call_ends_where_it_is_interrupted() -> None:
    """While the rank computes in a walk of its GDB, and nothing else is under way."""
    async with recorded(build("alone"), "--blocks", 200, ranks=2) as job:
        past = history(job)
        past.costs.budget = 0.0  # no snapshots on the way
        await run_to(job, 0, "after")
        first = looks.shims()[0].pid
        back = asyncio.create_task(past.reverse("next", 0))

        def computes() -> bool:
            """Does the rank compute again, where it was brought back?"""
            with contextlib.suppress(IndexError, OSError, CrdebugError):
                pid = looks.shims()[0].pid
                return pid != first and proc.processor_time(pid) > _SOME
            return False

        await Deadline(60).until(computes, "the walk")
        await job.interrupt()
        with pytest.raises(Interrupted, match="the job is now at rank 0 at tick"):
            await back
        assert (await job.evaluate(job.ranks, "block")).values
        for point in job.breakpoints():
            await job.delete_breakpoint(point.number)
        assert await run_to_end(job) == 0


async def test_every_way_back_ends_where_it_is_interrupted() -> None:
    async with recorded(build("threads"), "--steps", 12, ranks=2) as job:
        talk = Talk(job)
        wanted: list[str] = []
        pressed: list[asyncio.Task[None]] = []

        def press(event: Event) -> None:
            if isinstance(event, Progress) and any(each in event.phase for each in wanted):
                wanted.clear()
                pressed.append(asyncio.ensure_future(job.interrupt()))

        job.subscribe(press)
        await run_to(job, 0, "exchange", "step == 10")
        await talk("[0] break exchange if step == 4")
        for line, phase in WAYS:
            wanted.append(phase)
            with pytest.raises(Interrupted, match="the job is now at rank 0 at tick"):
                await talk(line)
            await asyncio.gather(*pressed)
            assert pressed and not wanted and not job.running
            pressed.clear()
            await talk("[0] goto tick 16")
        # the next one is not meant
        await talk("[0] reverse-continue")
        assert await talk("[0] print step") == "[0] = 4"
