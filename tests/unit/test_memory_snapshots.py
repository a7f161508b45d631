"""Snapshots of an imaginary job: which are dropped, and the notices about that."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fake_target import FakeTarget

from crdebug.base.events import Event, JobSays
from crdebug.base.instant import cut_of
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.job_snapshot import KeptJob
from crdebug.debugger.rank_host import HostRoom
from crdebug.debugger.target import KeptInfo
from crdebug.job.output_cuts import Written
from crdebug.travel import memory_snapshots
from crdebug.travel.memory_snapshots import Near

pytestmark = pytest.mark.unit

MIB = 1 << 20


class Kernel:
    """Two ranks of so much memory each. free: without snapshots.  changed: by each rank, from one
    snapshot to the next."""

    def __init__(self, free: int, memory: int = 100 * MIB, changed: int = 100 * MIB) -> None:
        self.free, self.memory, self.changed = free, memory, changed
        self.frozen = True
        self.kept: list[str] = []
        self.ended: set[str] = set()
        self.asked = 0
        self.near: Near
        self.others: tuple[HostRoom, ...] = ()  # of other hosts
        self.leaderless = RankSet()

    # what Near asks of Snapshots

    async def keep(self, name: str, deadline: object, others: object) -> KeptJob:
        self.kept.append(name)
        first = len(self.kept) == 1
        changed = self.memory if first else self.changed
        small = KeptInfo(self.memory, changed // 2, self.frozen)
        return KeptJob(name, {0: KeptInfo(self.memory, changed, self.frozen), 1: small})

    async def rooms(self) -> tuple[HostRoom, ...]:
        whole = 2 * self.memory
        return (*self.others, HostRoom(whole, self.free - self.near.held, self.leaderless))

    async def forget(self, name: str, deadline: object) -> None:
        self.kept.remove(name)

    def has(self, name: str) -> bool:
        return name in self.kept and name not in self.ended

    async def sizes(self, deadline: object) -> dict[str, int]:
        self.asked += 1
        return dict.fromkeys(self.kept, 3 * self.changed // 2)


class Job:
    near: Near

    def __init__(self, kernel: Kernel, patch: pytest.MonkeyPatch) -> None:
        self.kernel = kernel
        self.told: list[str] = []
        self.record = SimpleNamespace(incarnation=1, branch="main", pid=1, hosts=())
        self.has_no_checkpoints = False
        self.group = {0: FakeTarget(0)}
        self.settings = Settings()
        patch.setattr(memory_snapshots, "Snapshots", lambda group, logs: kernel)
        self.near = Near(self, frozenset, self.tell)  # type: ignore[arg-type]
        kernel.near = self.near
        patch.setattr(self.near, "drained", self.drained)
        self.place = 0

    def tell(self, event: Event) -> None:
        assert isinstance(event, JobSays)
        self.told.append(event.text)

    async def drained(self) -> list[int]:
        return []

    def written(self) -> Written:
        return Written((0, 0), 0)

    def input_size(self) -> int:
        return 0

    async def run(self, times: int = 1) -> int:
        """Returns how many snapshots were taken on the way."""
        taken = 0
        for _ in range(times):
            before = cut_of(self.place, self.place)
            self.place += 10
            now = cut_of(self.place, self.place)
            self.near.elapsed.ran(before, now, 1.0)
            taken += await self.near.keep(now) is not None
        return taken


async def test_what_was_changed_on_the_rank_that_changed_most_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(Kernel(1 << 40), monkeypatch)
    assert await job.run() == 1
    assert job.near.changed == 0, "the first one shares its pages with none before it"
    assert await job.run() == 1
    assert job.near.changed == 100 * MIB
    job.kernel.frozen = False
    assert await job.run() == 1
    assert job.near.changed == 0, "no page is shared with one that was copied"


async def test_a_place_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(Kernel(1 << 40), monkeypatch)
    await job.run(3)
    again = await job.near.keep(cut_of(job.place, job.place))
    assert again is not None and again.kept == job.kernel.kept[-1]
    assert len(job.kernel.kept) == 3


async def test_with_little_memory_there_are_fewer_and_one_notice_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each time 150 MiB change: 500 MiB have room for three states."""
    job = Job(Kernel(2000 * MIB), monkeypatch)
    assert await job.run(10) == 10
    assert len(job.kernel.kept) == 3
    assert job.near.held <= 300 * MIB
    assert job.told == [
        "snapshots may take 500 MiB, a quarter of the memory that is free: fewer of them stay, and "
        "ways back may take longer"
    ]
    assert job.kernel.asked >= 7


async def test_of_several_hosts_the_fullest_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one, 50 MiB of ranks have 400 MiB: that is 2,000 MiB for the 250 MiB of all ranks."""
    job = Job(Kernel(1 << 40), monkeypatch)
    job.kernel.others = (HostRoom(50 * MIB, 400 * MIB, RankSet()),)
    assert await job.run() == 1
    assert job.near.bound == 500 * MIB


async def test_a_rank_without_its_main_thread_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(Kernel(1 << 40), monkeypatch)
    job.kernel.leaderless = RankSet.of([1])
    assert await job.run() == 0
    assert job.near.why_not == "its main thread has ended (pthread_exit)"


async def test_without_room_for_one_none_is_taken_and_none_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(Kernel(2000 * MIB), monkeypatch)
    await job.run(2)
    job.kernel.free = 400 * MIB
    assert await job.run(3) == 0
    assert job.kernel.kept == [] and job.near.bases() == []
    assert job.near.why_not == (
        "snapshots may take 100 MiB, a quarter of the memory that is free, and the next one may "
        "come to 150 MiB"
    )
    assert job.told == [
        f"{job.near.why_not}: none is taken, and ways back begin where there is one"
    ]
    job.kernel.free = 2000 * MIB
    assert await job.run() == 1
    assert job.near.why_not == ""


async def test_a_copy_may_take_all_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(Kernel(2400 * MIB, changed=0), monkeypatch)
    job.kernel.frozen = False
    assert await job.run(20) == 20
    held = len(job.kernel.kept)
    job.kernel.changed = 100 * MIB
    assert await job.run(20) == 20
    assert 1 < len(job.kernel.kept) < held


async def test_those_of_another_incarnation_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(Kernel(1 << 40), monkeypatch)
    await job.run(5)
    job.record.incarnation = 2
    assert job.near.bases() == []
    await job.run()
    assert job.kernel.kept == ["s6"]


async def test_those_that_a_checkpoint_has_ended_are_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(Kernel(1 << 40), monkeypatch)
    await job.run(5)
    job.kernel.ended |= set(job.kernel.kept)
    assert job.near.bases() == []
    await job.run()
    assert job.kernel.kept == ["s6"]


async def test_they_are_shown_with_their_ages_and_their_own_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(Kernel(1 << 40), monkeypatch)
    await job.run(3)
    shown = await job.near.look(cut_of(job.place, job.place))
    assert [each.age for each in shown] == pytest.approx([2.0, 1.0, 0.0])
    assert [each.alone for each in shown] == [150 * MIB] * 3
    assert not any(each.copied for each in shown)
    behind = await job.near.look(cut_of(10, 10))
    assert [each.age for each in behind] == pytest.approx([0.0, -1.0, -2.0])
