"""Ctrl-C on the way back: it comes between two parts of a command, when no rank runs."""

from __future__ import annotations

import asyncio

import pytest

from crdebug.base.errors import Interrupted
from crdebug.base.events import Event, Progress
from harness.programs import build
from harness.talk import Talk
from harness.travel import recorded, run_to

# Commands, and at which progress it comes: words of the phase.
WAYS = (
    ("[0] goto tick 3", "checkpoint"),
    ("[0] goto tick 3", "replay"),
    ("[0] bisect rank 0: step >= 6", "tick"),
    ("[0] reverse-continue", "looking for stops"),
)


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
