"""crdebug reports missing records where that matters."""

from __future__ import annotations

from pathlib import Path

import pytest

from crdebug.base.errors import Refused
from crdebug.base.events import JobSays
from crdebug.job.clocks import RankClock
from crdebug.native.recorder.clock import Clock
from crdebug.native.recorder.clock import Refused as Reason
from crdebug.node import memory
from harness.faults import small_disk
from harness.jobs import Heard, run_to_end
from harness.layered import Layered
from harness.programs import build
from harness.travel import history, place, recorded, run_to


async def test_mpi_called_from_two_threads_is_not_recorded_any_more() -> None:
    async with recorded(build("threaded"), ranks=2) as job:
        await run_to(job, 0, "puts")
        past = history(job)
        with pytest.raises(Refused, match="MPI is called from more than one thread"):
            await past.goto_tick(0, 3)
        # What was recorded before is there still.
        moment = await past.goto_tick(0, 1)
        assert (moment.tick, moment.recorded, moment.note) == (1, 2, "")


def _told_of_epochs(heard: Heard) -> int:
    told = [event.text for event in heard.events if isinstance(event, JobSays)]
    return sum("an epoch of one-sided communication is open" in text for text in told)


async def test_one_sided_communication_on_the_way_and_a_huge_record_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = Heard()
    async with recorded(build("onesided"), ranks=2, heard=heard) as job:
        monkeypatch.setattr(memory, "available", lambda: 0)
        await run_to(job, 0, "MPI_Finalize")
        past = history(job)
        assert past.now(0).recorded > 2  # how long it is needs no memory
        with pytest.raises(Refused, match=r"[1-9]\d* records are not read yet, which may take"):
            await past.goto_tick(0, 1)
        monkeypatch.undo()
        calls = past.traveller.recorded.logs()[0].calls
        before = next(call.tick for call in calls if call.name == "MPI_Win_create") - 1
        assert "inside an epoch" not in (await past.goto_tick(0, before)).note
        await past.branch("other")
        note = (await past.switch("main", 0)).note
        assert note.startswith("on branch main; ranks 0-1: one-sided communication on the way")
        inside = next(call.tick for call in calls if call.name == "MPI_Put")
        note = (await past.goto_tick(0, inside)).note
        assert "one-sided communication on the way is not recorded" in note
        assert "inside an epoch" in note
        assert "a call holds them up" not in note  # it was known that the fence would
        # A restart is exact there too, so this is only a notice.
        taken = await job.checkpoint()
        assert _told_of_epochs(heard) == 1
        # What is locked is not accessed; but ranks do not wait for each other there.
        assert (await job.barrier(job.ranks, "flushed")).there == job.ranks
        await job.checkpoint()
        assert _told_of_epochs(heard) == 1
        await job.restart(taken.number)
        before = len(heard.text())
        assert await run_to_end(job) == 0
        assert heard.text()[before:] == "done\n"


@pytest.mark.root
def test_a_disk_that_is_full_ends_the_recording_not_the_run(tmp_path: Path) -> None:
    """Writing to a page for which the disk has no space would cause SIGBUS."""
    with small_disk(tmp_path / "time", 4) as disk:
        job = Layered(disk, "chatty", "--calls", 60_000, "--jitter-us", 0, ranks=2)
        assert "rank 1" in job.run()
        ends = [(log.refused, log.calls[-1].tick) for log in map(job.log, range(job.ranks))]
    assert [why for why, _ in ends] == [Reason.NO_SPACE] * 2
    assert min(tick for _, tick in ends) > 10_000
    with small_disk(tmp_path / "time", 1) as disk:
        (disk / "0").touch()  # space for one of them, at most
        job = Layered(disk, "chatty", "--rounds", 1, ranks=2)
        assert "rank 1" in job.run()


async def _ends_well(heard: Heard) -> None:
    async with recorded(build("chatty"), "--calls", 160_000, ranks=2, heard=heard) as job:
        assert await run_to_end(job) == 0


def _of_no_process(clock: RankClock) -> Clock:
    """As for a rank that has run to its end between two looks."""
    raise ProcessLookupError(clock.rank)


@pytest.mark.root
@pytest.mark.parametrize("looks", ["while it runs", "once it has ended"])
async def test_a_full_disk_is_reported_and_the_job_runs_to_its_end(
    home: Path, monkeypatch: pytest.MonkeyPatch, looks: str
) -> None:
    if looks == "once it has ended":
        monkeypatch.setattr(RankClock, "read", _of_no_process)
    heard = Heard()
    with small_disk(home, 24):
        await _ends_well(heard)
    said = [e.text for e in heard.events if isinstance(e, JobSays) and "recorded" in e.text]
    assert any("there is no space left for the log" in text for text in said), said


async def test_a_full_log_is_reported_and_still_leads_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CRDEBUG_TIME_RECORDS", "256")
    heard = Heard()
    async with recorded(build("pingpong"), "--rounds", 400, ranks=2, heard=heard) as job:
        await run_to(job, 0, "MPI_Finalize")
        past = history(job)
        ends = past.traveller.recorded.tails()
        assert all(200 < end < 512 for end in ends)
        # Of both at once, or of each by itself.
        said = [e.text for e in heard.events if isinstance(e, JobSays) and "recorded" in e.text]
        assert said[0].startswith("rank")
        assert all("MPI calls are not recorded any more since tick " in text for text in said)
        assert all("the log is full" in text for text in said)
        with pytest.raises(Refused, match="the log is full") as refused:
            await past.reverse("next", 0)
        assert f"goto tick {ends[0] // 2} on 0" in (refused.value.hint or "")
        last = (await past.goto_tick(0, ends[0] // 2)).cut
        assert last[0] == ends[0]
        assert last[1] <= ends[1]
        first = await past.goto_tick(1, 100)
        there = await place(job, 1)
        back = await past.reverse("next", 1)
        assert back.cut[1] <= first.cut[1]
        assert await place(job, 1) != there
        again = await past.goto_tick(1, 100)
        assert again.cut == first.cut
        assert await place(job, 1) == there
        assert (await past.overview(1)).ends == ends
        # Beyond the end of the record it runs as before.
        await run_to(job, 0, "MPI_Finalize")
        with pytest.raises(Refused, match="the log is full"):
            await past.goto_tick(0, ends[0] // 2 + 2)
