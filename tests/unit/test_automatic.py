"""Automatic checkpoints: which stay, which go, and the messages about them."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from crdebug.base.errors import CrsFailed, Refused
from crdebug.base.events import Event, JobSays
from crdebug.base.instant import Cut, cut_of
from crdebug.base.ranks import RankSet
from crdebug.timeline.elapsed import Elapsed
from crdebug.travel.auto_checkpoints import Automatic, Bound
from crdebug.travel.restore_points import Base

pytestmark = pytest.mark.unit

BYTES = 100


@dataclass
class Store:
    """number → the cut that was kept."""

    cuts: dict[int, Cut] = field(default_factory=dict)
    last: int = 0

    def list(self) -> tuple[SimpleNamespace, ...]:
        return tuple(SimpleNamespace(number=number, size=BYTES) for number in self.cuts)

    def delete(self, number: int) -> None:
        del self.cuts[number]


class Run:
    """A job that does nothing but get on: two ranks, one of them with twice as many calls."""

    def __init__(self, path: Path) -> None:
        self.path = path  # of a disk
        self.history, self.store = Store(), Store()
        self.place = 0
        self.branch = ""
        self.branches: dict[int, str] = {}  # of the history's checkpoints
        self.problem: CrsFailed | None = None
        self.told: list[str] = []
        self.locked = 0
        self.busy = False
        self.in_epochs = RankSet()
        self.recorded = self
        self.automatic = Automatic(
            SimpleNamespace(directory=self, checkpoint=self.checkpoint),  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.tell,
        )

    # what Automatic asks of a job, its directory, a traveller, and its recorded job

    @contextlib.contextmanager
    def lock(self, what: str) -> Iterator[None]:
        if self.busy:
            raise Refused(f"cannot {what}: another crdebug works on job 'heat'")
        self.locked += 1
        yield
        self.locked -= 1

    async def checkpoint(self, note: str, store: Store) -> None:
        assert not self.locked
        if self.problem is not None:
            raise self.problem
        store.last += 1
        store.cuts[store.last] = self.cut()
        self.branches[store.last] = self.branch

    def cut(self) -> Cut:
        return cut_of(self.place, 2 * self.place)

    def bases(self) -> list[Base]:
        kept = [Base(self.cut(), kept="s1")]  # one in memory is none of those
        for history, store in ((True, self.history), (False, self.store)):
            kept += [
                Base(cut, number, history)
                for number, cut in store.cuts.items()
                if not history or self.branches[number] == self.branch
            ]
        return kept

    def tell(self, event: Event) -> None:
        assert isinstance(event, JobSays)
        self.told.append(event.text)

    # what a test does

    def run(self, seconds: float, calls: int = 100) -> None:
        before = self.cut()
        self.place += calls
        self.automatic.elapsed.ran(before, self.cut(), seconds)

    async def go(self, times: int, seconds: float = 10.0) -> None:
        for _ in range(times):
            await self.automatic.take_if_useful()
            self.run(seconds)

    def places(self) -> list[int]:
        return sorted(cut[0] for cut in self.history.cuts.values())


@pytest.fixture
def job(tmp_path: Path) -> Run:
    return Run(tmp_path)


async def test_their_number_grows_with_the_logarithm_of_the_run(job: Run) -> None:
    counts = []
    for times in (30, 270, 2700):
        await job.go(times)
        counts.append(len(job.places()))
    growth = [after - before for before, after in itertools.pairwise(counts)]
    assert 0 < growth[1] <= 1.3 * growth[0]
    assert counts[2] < 10 * math.log(3000)
    assert job.places()[0] == 0
    assert job.places()[-1] == 100 * 2999
    assert job.told == []


async def test_one_that_was_taken_is_taken_though_nothing_could_be_removed(job: Run) -> None:
    """Another crdebug has the job's lock just then: the next one makes room."""
    job.automatic.bound = Bound(6 * BYTES)
    await job.go(6)
    job.busy = True
    await job.go(2)
    assert len(job.places()) == 8
    assert job.told == [
        "no automatic checkpoint was removed: cannot remove automatic checkpoints: "
        "another crdebug works on job 'heat'"
    ]
    job.busy = False
    await job.go(1)
    assert len(job.places()) == 6


async def test_it_is_the_seconds_of_run_that_count(job: Run) -> None:
    """A stretch with many calls in little time is no long one."""
    await job.go(40)
    job.run(0.5, calls=10**6)
    await job.go(40)
    other = Run(job.path)
    await other.go(80)
    assert len(job.places()) == pytest.approx(len(other.places()), abs=2)
    after = [place for place in job.places() if place > 10**6]
    assert len(after) > len(job.places()) / 3


async def test_the_bound_holds_and_its_cost_is_reported(job: Run) -> None:
    job.automatic.bound = Bound(6 * BYTES)
    await job.go(200)
    assert len(job.places()) == 6
    assert job.places()[0] == 0, "history begins where it began"
    assert job.places()[-1] == 100 * 199
    assert job.told
    assert all("given up: together they took" in text for text in job.told)
    assert len(job.told) < 200


async def test_those_of_other_branches_count_and_stay(job: Run) -> None:
    job.automatic.bound = Bound(6 * BYTES)
    await job.go(4)
    before, job.branch = dict(job.history.cuts), "other"
    await job.go(40)
    assert before.items() <= job.history.cuts.items()
    assert job.places()[4] == 400, "the branch begins where it began"
    assert len(job.places()) == 6


@pytest.mark.parametrize("bound", [1, BYTES, 2 * BYTES - 1])
async def test_the_first_and_the_last_stay_whatever_they_take(job: Run, bound: int) -> None:
    job.automatic.bound = Bound(bound)
    await job.go(30)
    assert job.places() == [0, 100 * 29]
    assert sum("the first and the last one stay" in text for text in job.told) == 1


async def test_what_the_user_took_stays_and_does_not_count(job: Run) -> None:
    job.automatic.bound = Bound(3 * BYTES)
    for number in range(1, 60):
        await job.go(2)
        job.store.cuts[number] = job.cut()
    assert len(job.store.cuts) == 59
    assert len(job.places()) <= 3


async def test_the_first_one_may_go_where_the_users_begins_history(job: Run) -> None:
    job.store.cuts[1] = job.cut()
    job.run(1.0)
    job.automatic.bound = Bound(1)
    await job.go(20)
    assert job.places() == [100 * 20]


async def test_one_place_is_kept_once(job: Run) -> None:
    for _ in range(3):
        await job.automatic.take_if_useful()
    assert (job.places(), job.history.last) == ([0], 1)
    job.run(10.0, calls=0)  # it computes, and calls nothing
    await job.automatic.take_if_useful()
    assert job.history.last == 1


async def test_an_error_is_reported_once_and_has_no_further_effect(job: Run) -> None:
    await job.go(2)
    job.problem = CrsFailed("the disk is full")
    await job.go(5)
    assert job.told == ["no automatic checkpoint was taken: the disk is full"]
    job.problem = CrsFailed("another reason")
    await job.go(2)
    assert job.told[1:] == ["no automatic checkpoint was taken: another reason"]
    job.problem = None
    await job.go(1)
    assert job.places() == [0, 100, 900]


async def test_after_going_back_the_later_ones_stay(job: Run) -> None:
    await job.go(300)
    job.place = 14_950
    ahead = [place for place in job.places() if place > job.place + 2000]
    await job.go(20)
    assert ahead and set(ahead) <= set(job.places())
    # and on its way through what it had thinned out it has left some, close to where it is
    fresh = [place for place in job.places() if place in range(14_950, 16_851, 100)]
    assert fresh[-1] == 16_850
    assert len(fresh) > 8


# ---- how long it has run -----------------------------------------------------------------------


def test_seconds_of_run_by_place() -> None:
    elapsed = Elapsed()
    assert elapsed.at(cut_of(0, 0)) == elapsed.at(cut_of(5, 5)) == 0.0
    elapsed.ran(cut_of(0, 0), cut_of(10, 30), 4.0)
    elapsed.ran(cut_of(10, 30), cut_of(20, 60), 2.0)
    assert [elapsed.at(cut_of(n, 3 * n)) for n in (0, 5, 10, 15, 20, 25)] == [
        0,
        2,
        4,
        5,
        6,
        6,
    ]


def test_what_is_run_again_does_not_count() -> None:
    elapsed = Elapsed()
    elapsed.ran(cut_of(0), cut_of(100), 10.0)
    elapsed.ran(cut_of(20), cut_of(50), 60.0)
    assert elapsed.at(cut_of(50)) == pytest.approx(5.0)
    elapsed.ran(cut_of(50), cut_of(200), 20.0)  # beyond the end: as long as it took from there
    assert elapsed.at(cut_of(200)) == pytest.approx(25.0)
    assert elapsed.at(cut_of(100)) == pytest.approx(10.0)


def test_it_never_falls_and_steps_without_number_take_no_room() -> None:
    chance, elapsed, place, total = random.Random(1), Elapsed(), 0, 0.0
    for _ in range(20_000):
        seconds, calls = chance.choice([0.001, 0.01, 0.3]), chance.randrange(3)
        elapsed.ran(cut_of(place), cut_of(place + calls), seconds)
        place, total = place + calls, total + seconds
    times = [elapsed.at(cut_of(each)) for each in range(place + 1)]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(total)
    assert len(elapsed._places) < 2 * total


async def test_none_is_taken_inside_an_epoch_of_one_sided_communication(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.in_epochs = RankSet.of([1])
    await run.automatic.take_if_useful()
    assert not run.history.cuts and not run.told
    run.in_epochs = RankSet()
    await run.automatic.take_if_useful()
    assert len(run.history.cuts) == 1


async def test_one_that_is_delayed_for_a_minute_is_reported_once(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.in_epochs = RankSet.of([1])
    await run.go(6)
    assert run.told == []
    await run.go(20)
    (said,) = run.told
    assert said.startswith(
        "no automatic checkpoint was taken for 60 s of run: each time a rank was"
    )
    # Each minute counts from the last one that could be taken.
    run.in_epochs = RankSet()
    await run.go(1)
    run.in_epochs = RankSet.of([0])
    await run.go(6)
    assert len(run.history.cuts) == 1
    assert run.told == [said]
