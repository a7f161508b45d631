"""Ways back inside a long stretch without MPI calls: from a snapshot in the middle of it, and
waiting as long as any rank moves."""

from __future__ import annotations

from random import Random

import pytest

from crdebug.base.events import Progress
from crdebug.base.instant import Instant
from crdebug.base.ranks import RankSet
from crdebug.job.clocks import RankClock
from crdebug.session import Session
from crdebug.travel import replay
from harness.jobs import Heard
from harness.programs import build
from harness.travel import history, recorded, run_to, snapshots_at_random

ONE = RankSet.of([0])
BLOCKS = 120  # more than a second


async def where(job: Session) -> tuple[str, int | None, str, str]:
    """The function and line, and the program's progress."""
    top = (await job.backtrace(ONE)).values[0][0].location
    block = (await job.evaluate(ONE, "block")).values[0]
    return top.function, top.line, block, (await job.evaluate(ONE, "state")).values[0]


async def test_a_way_back_starts_at_a_snapshot_in_the_middle_of_it() -> None:
    heard = Heard()
    async with recorded(build("alone"), "--blocks", BLOCKS, ranks=2, heard=heard) as job:
        past = history(job)
        await run_to(job, 0, "compute")
        tick = past.now(0).tick
        begun = await where(job)
        taken = snapshots_at_random(job, Random(1), 0.2)
        await run_to(job, 0, "at_half")
        half = await where(job)
        await run_to(job, 0, "after")
        there = await where(job)
        assert (there[0], past.now(0).tick) == ("after", tick)
        same = [base for base in past.traveller.near.bases() if base.cut[0] == 2 * tick]
        assert len(same) > 3, (taken, past.traveller.near.bases())

        # A short way: no checkpoint is brought back.
        heard.events.clear()
        await past.reverse("finish", 0)
        assert (await where(job))[0] == "compute"
        assert (await where(job))[2:] == there[2:]
        phases = [event.phase for event in heard.events if isinstance(event, Progress)]
        assert "a snapshot in memory" in phases
        assert not any("checkpoint" in phase or "restore" in phase for phase in phases), phases

        # What lies before all of the snapshots in it is found as well.
        await past.reverse("finish", 0)
        now = await where(job)
        assert now[0] == "main"
        assert now[3] == begun[3]
        assert past.now(0).tick == tick

        # And forward again: nothing was lost.
        await run_to(job, 0, "at_half")
        assert await where(job) == half
        await run_to(job, 0, "after")
        assert await where(job) == there


async def test_a_rank_that_waits_for_one_that_computes_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That another rank computes counts as a sign that the replay moves on."""
    seen, moved = set[tuple[int, Instant, int]](), replay.moved

    def noted(clock: RankClock) -> tuple[Instant, int]:
        found = moved(clock)
        seen.add((clock.rank, *found))
        return found

    arguments = ("--blocks", BLOCKS, "--alone", 1, "--rounds", 3)
    async with recorded(build("alone"), *arguments, ranks=2) as job:
        past = history(job)
        past.costs.budget = 0.0  # no snapshots: all of it must be repeated
        await job.add_breakpoint(ONE, "before")
        for step in (1, 2):
            await job.resume(job.ranks)
            assert (await job.evaluate(ONE, "'alone.c'::step")).values[0] == str(step)
        monkeypatch.setattr(replay, "moved", noted)
        monkeypatch.setattr(replay, "_LOOK", 0.01)
        await past.reverse("continue", 0)
        assert (await job.evaluate(ONE, "'alone.c'::step")).values[0] == "1"
    computed = [time for rank, now, time in seen if rank == 1 and not now.inside]
    assert len(computed) > 20
