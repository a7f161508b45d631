"""The record of a job over hosts, of made-up hosts: what each of them says, and fails to say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from rank_log import LogWriter

from crdebug.attached.far_record import FarRecord, ThisHostRecord
from crdebug.base.errors import CrdebugError, NotAvailable, StoreError
from crdebug.job.far_clocks import ClockLook, ClockWrite
from crdebug.job.mirrored_logs import News, Source
from crdebug.job.record_here import Is, RankSeen, RecordNow, Wanted
from crdebug.native.recorder import clock as layout
from crdebug.timeline.log import read_log
from harness.matcher import library

pytestmark = pytest.mark.unit

MOST = 1 << 30


class Host:
    """ranks: what became of them.  there: does it have logs?  forged: news besides the true ones.
    problem: why it does not answer."""

    def __init__(self, logs: Path, ranks: Mapping[int, Is]) -> None:
        self.ranks = dict(ranks)
        self.there = True
        self.forged: dict[int, News] = {}
        self.problem = ""
        self.clock = bytes(layout.SIZE)
        self.asked: list[Wanted] = []
        self.written: list[ClockWrite] = []
        self._sources = {rank: Source(logs / str(rank)) for rank in range(4)}
        self.has = set(ranks)

    async def record(self, wanted: Wanted) -> tuple[ClockLook, RecordNow]:
        self.asked.append(wanted)
        if self.problem:
            raise CrdebugError(self.problem)
        seen = {rank: RankSeen(self.ranks[rank], self.clock) for rank in wanted.ranks}
        if wanted.since is None or not self.there:
            return ClockLook(), RecordNow(seen)
        news = {
            rank: found
            for rank in self.has
            if (found := self._sources[rank].news(wanted.since.get(rank, 0), MOST)) is not None
        }
        return ClockLook(), RecordNow(seen, True, news | self.forged, {}, 1)

    def write(self, write: ClockWrite) -> None:
        self.written.append(write)

    async def cut(self, wanted: Wanted, compiler: str) -> None:
        raise AssertionError

    async def lines(self, sites: tuple[tuple[int, int], ...]) -> dict[tuple[int, int], str]:
        if self.problem:
            raise CrdebugError(self.problem)
        return {site: f"heat.c:{site[1]}" for site in sites}


class Job:
    """Ranks 0 and 1 on n1, 2 and 3 on n2; all have a log."""

    def __init__(self, place: Path, living: Mapping[str, tuple[int, ...]]) -> None:
        (place / "logs").mkdir()
        (place / "run").mkdir()
        self.logs = [LogWriter(place / "logs" / str(rank), rank, 4) for rank in range(4)]
        for log in self.logs:
            log.define(1, [0, 1, 2, 3])
            log.call("MPI_Barrier")
        self.run = place / "run"
        self.hosts = {
            name: Host(place / "logs", dict.fromkeys(ranks, Is.THERE))
            for name, ranks in living.items()
        }
        pids = {name: {rank: 100 + rank for rank in ranks} for name, ranks in living.items()}
        self.far = FarRecord(
            lambda name: self.hosts[name],
            ThisHostRecord(),
            pids,
            "layer",
            place / "logs",
            self.run,
            "cc",
        )

    def copied(self) -> list[str]:
        return sorted(path.name for path in self.far.directory.iterdir())

    def same(self, rank: int) -> bool:
        copy = self.far.directory / str(rank)
        calls = [read_log(path, library()).calls[:] for path in (copy, self.logs[rank].path)]
        return calls[0] == calls[1]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path, {"n1": (0, 1), "n2": (2, 3)})


async def test_logs_are_copied_when_they_are_wanted(job: Job) -> None:
    await job.far.refresh(logs=False)
    assert [clock.rank for clock in job.far.clocks] == [0, 1, 2, 3] and not job.copied()
    await job.far.refresh()
    job.logs[2].call("MPI_Barrier")
    await job.far.refresh()
    assert all(map(job.same, range(4)))


async def test_a_silent_host_leaves_the_others_alone_and_is_named(job: Job) -> None:
    await job.far.refresh()
    job.hosts["n2"].problem = "the agent on n2 has ended"
    job.logs[1].call("MPI_Barrier")
    await job.far.refresh()
    assert job.same(1) and job.far.knows(1) and not job.far.knows(2)
    with pytest.raises(NotAvailable, match="the agent on n2 has ended"):
        job.far.clocks[2].read()
    assert [*job.far.caveats()] == [
        "what ranks 2-3 did since is not known: the agent on n2 has ended"
    ]
    assert await job.far.of([(1, 7), (2, 7)]) == {(1, 7): "heat.c:7"}
    job.hosts["n2"].problem = ""
    await job.far.refresh()
    assert job.far.knows(2) and not [*job.far.caveats()]


async def test_once_all_ranks_have_ended_the_copies_are_the_record(job: Job) -> None:
    for host in job.hosts.values():
        host.ranks = dict.fromkeys(host.ranks, Is.ENDED)
    await job.far.refresh(logs=False)  # their last calls count
    assert job.far.directory == job.run / "time" and all(map(job.same, range(4)))
    asked = len(job.hosts["n1"].asked)
    await job.far.refresh()
    assert len(job.hosts["n1"].asked) == asked
    job.far.close()
    assert job.copied() == ["0", "1", "2", "3"]


async def test_what_is_no_clock_counts_as_silence(job: Job) -> None:
    job.hosts["n2"].clock = b"short"
    await job.far.refresh()
    assert job.far.knows(1) and not job.far.knows(2)
    assert [*job.far.caveats()] == [
        "what ranks 2-3 did since is not known: n2 sends a clock that is none"
    ]
    with pytest.raises(NotAvailable, match="n2 sends a clock that is none"):
        job.far.stands(2, b"short", ClockLook())


async def test_without_the_last_calls_there_is_no_record(job: Job) -> None:
    for host in job.hosts.values():
        host.ranks = dict.fromkeys(host.ranks, Is.ENDED)
    job.hosts["n2"].there = False  # somebody was faster
    await job.far.refresh()
    job.far.close()
    assert not [*job.run.iterdir()]


async def test_the_log_of_a_rank_that_had_ended_before_is_copied_too(tmp_path: Path) -> None:
    job = Job(tmp_path, {"n1": (0, 1), "n2": (3,)})
    job.hosts["n2"].has.add(2)
    await job.far.refresh()
    assert all(map(job.same, range(4)))


async def test_a_host_speaks_for_its_own_ranks_only(job: Job, tmp_path: Path) -> None:
    forged = News(9, True, 100, {0: b"forged"})
    job.hosts["n2"].forged = {1: forged}
    await job.far.refresh()
    assert job.same(1)
    for rank in (-1, 1 << 20, str(tmp_path / "victim")):
        job.hosts["n2"].forged = {rank: forged}  # type: ignore[dict-item]
        await job.far.refresh()
        assert "sends a log of no rank" in str(job.far.silent["n2"])
    assert not (tmp_path / "victim").exists()


async def test_a_full_disk_is_an_error_in_words(job: Job) -> None:
    job.far.directory.rmdir()
    with pytest.raises(StoreError, match="cannot be copied to this host: no such file"):
        await job.far.refresh()
