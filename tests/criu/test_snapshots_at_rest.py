"""A snapshot while the user looks at a stop: a short way back from what runs on from there."""

from __future__ import annotations

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.events import Progress
from crdebug.base.ranks import RankSet
from crdebug.travel.history import History
from harness.jobs import Heard
from harness.programs import build
from harness.travel import history, place, recorded, run_to

ONE = RankSet.of([0])
STEP = "'memory.c'::step"


def without_stops(past: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine even a short run would be stopped for snapshots of its own."""
    begin_run = past.begin_run

    async def begin() -> float:
        await begin_run()
        return 0.0

    monkeypatch.setattr(past, "begin_run", begin)


@pytest.mark.parametrize(
    ("where", "short"),
    [
        ("memory.c:42", True),  # at its beginning, to which only the line before leads
        ("work_step", False),  # after the code that sets up its frame
        ("memory.c:40", False),  # to which a call returns
    ],
)
async def test_the_first_way_back_after_a_next_ends_where_the_user_stood(
    where: str, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    async with recorded(build("memory"), "--delay-us", 1000, ranks=2, heard=heard) as job:
        past, limit = history(job), Deadline(60)
        without_stops(past, monkeypatch)
        near = past.traveller.near
        await run_to(job, 0, where, f"{STEP} == 50")
        before = await place(job, 0, [STEP])
        await job.group[0].console("up", limit)
        await job.rest()
        assert (await job.group[0].console("frame", limit)).startswith("#1 ")
        assert [base.cut for base in near.bases()] == [before.cut]
        await job.rest()  # nothing has run since
        assert len(near.bases()) == 1

        await job.next(ONE)
        heard.events.clear()
        await past.reverse("next", 0)
        there = await place(job, 0, [STEP])
        assert before.values == there.values
        assert before.frames[0][2:] == there.frames[0][2:]
        phases = [event.phase for event in heard.events if isinstance(event, Progress)]
        assert phases[0] == "a snapshot in memory"
        if not short:
            return
        assert before.differences(there) == ()
        assert phases == ["a snapshot in memory"]

        # What was before that snapshot is found as well.
        await past.reverse("next", 0)
        earlier = await place(job, 0, [STEP])
        assert earlier.values == before.values
        assert (earlier.frames[0][0], earlier.frames[0][2]) == ("work_step", 41)
        await job.next(ONE)
        assert before.frames[0][1:] == (await place(job, 0)).frames[0][1:]


async def test_none_is_taken_where_snapshots_are_not_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with recorded(build("memory"), "--delay-us", 1000, ranks=2) as job:
        past = history(job)
        without_stops(past, monkeypatch)
        past.costs.budget = 0.0
        await run_to(job, 0, "work_step", f"{STEP} == 50")
        await job.rest()
        assert past.traveller.near.bases() == []
