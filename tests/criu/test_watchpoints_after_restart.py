"""Watchpoints hit in every thread, also after a checkpoint, a restart, and a snapshot."""

from __future__ import annotations

from crdebug.base.events import StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger.target import PointKind
from crdebug.session import Session
from harness.programs import build
from harness.travel import history, recorded

ZERO = RankSet.of([0])
VALUES = ("values[0]", "values[1]", "values[2]")
STEPS = 3  # with which a round of hits continues


async def hits(job: Session, count: int) -> list[tuple[str, int]]:
    """The watched location and the written value, at each of so many stops."""
    points = {str(each.number): each.location for each in job.breakpoints()}
    found = []
    for _ in range(count):
        (cause,) = (await job.resume(job.ranks)).cause
        assert cause.reason is StopReason.WATCHPOINT, cause
        location = points[cause.detail]
        found.append((location, int((await job.evaluate(ZERO, location)).values[0])))
    return found


def expect_all(found: list[tuple[str, int]], first: int) -> None:
    """Each value once in each step, whichever thread came first."""
    wanted = {(each, first + step) for each in VALUES for step in range(STEPS)}
    assert sorted(found) == sorted(wanted)


async def test_each_write_of_each_thread_is_reported() -> None:
    async with recorded(build("writes"), ranks=2) as job:
        for value in VALUES:
            await job.add_breakpoint(ZERO, value, kind=PointKind.WATCH)
        count = STEPS * len(VALUES)
        expect_all(await hits(job, count), 1)
        await job.checkpoint()
        expect_all(await hits(job, count), 1 + STEPS)
        for _ in range(3):
            await job.restart()
            expect_all(await hits(job, count), 1 + STEPS)
            expect_all(await hits(job, count), 1 + 2 * STEPS)
        traveller = history(job).traveller
        kept = await traveller.near.keep(traveller.recorded.cut())
        assert kept is not None, traveller.near.why_not
        expect_all(await hits(job, count), 1 + 3 * STEPS)
        await traveller.bring_back(kept)
        expect_all(await hits(job, count), 1 + 3 * STEPS)
