"""Requests during the user's `continue`, and the messages about them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from crdebug.base.errors import Interrupted
from crdebug.base.events import GroupStopped, RankStopped, StopReason
from crdebug.session.requests import Interludes

INTERRUPT, BREAKPOINT = StopReason.INTERRUPT, StopReason.BREAKPOINT


class Runs:
    """A job whose runs end with the stops that a test gives, as soon as it is interrupted."""

    def __init__(self, *ends: Sequence[StopReason]) -> None:
        self.ends = list(ends)
        self.own = 0
        self._stop = asyncio.Event()
        self.interludes = Interludes(self.interrupt)

    async def interrupt(self) -> None:
        self._stop.set()

    def misses(self) -> None:
        """What has interrupted it so far came too early."""
        self._stop.clear()

    async def take(self, since: float) -> float:
        self.own += 1
        return 0.001

    async def run(self) -> GroupStopped:
        await self._stop.wait()
        self._stop.clear()
        stops = tuple(RankStopped(rank, why) for rank, why in enumerate(self.ends.pop(0)))
        return GroupStopped(stops, stops)

    async def resume(self) -> list[tuple[int, StopReason]]:
        stop = await self.interludes.run(self.run, self.take, 0.001)
        assert [each.reason for each in stop.stops].count(INTERRUPT) == 0
        return [(each.rank, each.reason) for each in stop.cause]


async def test_a_stop_during_an_interlude_is_the_only_cause() -> None:
    job = Runs([INTERRUPT, INTERRUPT], [INTERRUPT, BREAKPOINT])
    job.interludes.begin()
    assert await job.resume() == [(1, BREAKPOINT)]
    assert job.own == 1


async def test_an_interlude_may_be_the_end_of_the_run() -> None:
    job = Runs([INTERRUPT, INTERRUPT])

    async def over(since: float) -> float:
        return -1.0

    stop = await job.interludes.run(job.run, over, 0.001)
    assert [each.reason for each in stop.cause] == [INTERRUPT, INTERRUPT]


async def test_an_interlude_is_due_when_its_owner_says_so() -> None:
    job, due = Runs([INTERRUPT], [BREAKPOINT]), asyncio.Event()

    async def wait(seconds: float) -> None:
        await due.wait()

    running = asyncio.create_task(job.interludes.run(job.run, job.take, 0.001, None, wait))
    await asyncio.sleep(0.01)
    assert job.own == 0
    due.set()
    await running
    assert job.own == 1


async def test_an_interlude_that_is_due_before_the_run_has_begun_comes() -> None:
    job, due = Runs([INTERRUPT], [BREAKPOINT]), asyncio.Event()
    due.set()

    async def begins_late() -> GroupStopped:
        await asyncio.sleep(0.01)
        job.misses()
        return await job.run()

    async def wait(seconds: float) -> None:
        await due.wait()

    await asyncio.wait_for(job.interludes.run(begins_late, job.take, 0.001, None, wait), 10)
    assert job.own == 1


async def test_an_interrupt_before_the_run_has_begun_counts() -> None:
    job = Runs()
    job.interludes.begin()
    job.interludes.user_interrupts()
    with pytest.raises(Interrupted, match="before the ranks ran"):
        await job.resume()
    assert not job.interludes.possible


class Slow:
    """One that hears an interrupt only once its run has begun."""

    def __init__(self) -> None:
        self.may_begin = asyncio.Event()
        self.begun = False
        self.stopped = asyncio.Event()
        self.served: list[str] = []
        self.interludes = Interludes(self.interrupt)

    async def interrupt(self) -> None:
        if self.begun:
            self.stopped.set()

    async def serve(self, note: str) -> int:
        assert not self.begun
        self.served.append(note)
        return len(self.served)

    async def run(self) -> GroupStopped:
        await self.may_begin.wait()
        self.begun = True
        await self.stopped.wait()
        self.stopped.clear()
        self.begun = False
        return GroupStopped((RankStopped(0, INTERRUPT),), ())


async def test_a_request_that_comes_before_the_run_has_begun_is_served_all_the_same() -> None:
    job = Slow()
    job.interludes.begin()
    running = asyncio.create_task(job.interludes.run(job.run, None, 0.0))
    serve = (partial(job.serve, note) for note in ("a", "b"))
    asked = [asyncio.create_task(job.interludes.ask(each)) for each in serve]
    await asyncio.wait(asked, timeout=0)
    job.may_begin.set()
    assert await asyncio.gather(*asked) == [1, 2]
    assert job.served == ["a", "b"]
    assert not running.done()
    while not running.done():
        job.interludes.user_interrupts()
        await job.interrupt()
        await asyncio.wait([running], timeout=0.01)
    assert not job.interludes.possible
