"""A disk that is full for a while costs nothing of what a job writes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.events import Event, JobSays
from harness.faults import small_disk
from harness.jobs import Heard, run_to_end, session
from harness.programs import build

ROUNDS = 4000


class Waits(Heard):
    """Waits for the event that the job's output waits."""

    def __init__(self) -> None:
        super().__init__()
        self.come = asyncio.Event()

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if isinstance(event, JobSays) and "waits: no space left on device" in event.text:
            self.come.set()


def fill(path: Path) -> None:
    """Write until not another byte fits."""
    for size in (1 << 16, 1):
        try:
            with path.open("ab", buffering=0) as file:
                while True:
                    file.write(b"x" * size)
        except OSError:
            continue


async def test_output_waits_for_space(home: Path) -> None:
    heard = Waits()
    with small_disk(home, 16):
        async with session(build("prints"), "--rounds", ROUNDS, ranks=1, heard=heard) as job:
            filler = home / "filler"
            fill(filler)
            ended = asyncio.create_task(run_to_end(job))
            await Deadline(60).wait(heard.come.wait(), "the output to wait")
            assert not ended.done()
            filler.unlink()
            assert await ended == 0
        assert [line.partition(":")[0] for line in heard.text().splitlines()] == [
            f"rank 0, step {step}.{part}" for step in range(ROUNDS) for part in range(2)
        ]
        says = [each.text for each in heard.events if isinstance(each, JobSays)]
        assert [each for each in says if "standard output" in each] == [
            "the job's output to standard output waits: no space left on device "
            "(make room: it goes on by itself, and nothing is lost)",
            "the job's output to standard output goes on",
        ]
