"""What is done while the user's `continue` lasts, and what the user is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from crdebug.control import Request
from crdebug.errors import Interrupted
from crdebug.events import GroupStopped, RankStopped, StopReason
from crdebug.interludes import Interludes

INTERRUPT, BREAKPOINT = StopReason.INTERRUPT, StopReason.BREAKPOINT


class Runs:
    """A job whose runs end with the stops that a test gives, as soon as it is interrupted."""

    def __init__(self, *ends: Sequence[StopReason]) -> None:
        self.ends = list(ends)
        self.own = 0
        self._stop = asyncio.Event()
        self.interludes = Interludes(self.interrupt, self.serve)

    async def interrupt(self) -> None:
        self._stop.set()

    async def serve(self, request: Request) -> int:
        raise AssertionError

    async def take(self) -> None:
        self.own += 1

    async def run(self) -> GroupStopped:
        await self._stop.wait()
        self._stop.clear()
        stops = tuple(RankStopped(rank, why) for rank, why in enumerate(self.ends.pop(0)))
        return GroupStopped(stops, stops)

    async def resume(self) -> list[tuple[int, StopReason]]:
        stop = await self.interludes.run(self.run, self.take, 0.001)
        assert [each.reason for each in stop.stops].count(INTERRUPT) == 0
        return [(each.rank, each.reason) for each in stop.cause]


async def test_a_stop_beside_an_interlude_is_the_only_cause() -> None:
    job = Runs([INTERRUPT, INTERRUPT], [INTERRUPT, BREAKPOINT])
    job.interludes.begin()
    assert await job.resume() == [(1, BREAKPOINT)]
    assert job.own == 1


async def test_an_interrupt_before_the_run_has_begun_counts() -> None:
    job = Runs()
    job.interludes.begin()
    job.interludes.user_interrupts()
    with pytest.raises(Interrupted, match="before the ranks ran"):
        await job.resume()
    assert not job.interludes.possible
