"""Which snapshots stay: by their distances, their number, and the memory that they take."""

from __future__ import annotations

import itertools
import random

import pytest

from crdebug.travel.snapshot_room import MOST, Holdings, Plan

pytestmark = pytest.mark.unit

MIB = 1 << 20
PLENTY = 1 << 50


class Job:
    """Runs with snapshots; pages are numbers, and a version of each is a moment. It is known here
    what they really hold. whole: pages."""

    def __init__(self, whole: int, copied: bool = False) -> None:
        self.holdings = Holdings()
        self.copied = copied
        self.pages = [0] * whole
        self.kept: dict[str, list[int]] = {}
        self.at: dict[str, float] = {}
        self.now = 0.0
        self.count = 0

    def write(self, pages: range) -> None:
        self.now += 1.0
        self.count += 1
        for page in pages:
            self.pages[page] = self.count

    def really(self) -> int:
        """How many versions of pages are held which the ranks do not have."""
        versions = {
            (page, version) for kept in self.kept.values() for page, version in enumerate(kept)
        }
        return len(versions - (set() if self.copied else set(enumerate(self.pages))))

    def alone(self) -> dict[str, int]:
        found = {}
        for name, kept in self.kept.items():
            others = [self.pages] if not self.copied else []
            others += [other for key, other in self.kept.items() if key != name]
            found[name] = sum(
                all(other[page] != version for other in others) for page, version in enumerate(kept)
            )
        return found

    def take(self, free: int) -> Plan:
        """free: pages that are free without the snapshots."""
        whole, left = len(self.pages), free - self.really()
        plan = self.holdings.plan(self.now, whole, left)
        alone: dict[str, int] = {}
        if plan.drop and plan.tight:
            alone = self.alone()
            self.holdings.look(alone)
            plan = self.holdings.plan(self.now, whole, left)
        for name in plan.drop:
            self.holdings.forget(name, alone.get(name, 0))
            alone = {}
            del self.kept[name], self.at[name]
        if plan.fits:
            last = list(self.kept.values())[-1:] if self.copied else list(self.kept.values())
            changed = sum(
                all(kept[page] != version for kept in last)
                for page, version in enumerate(self.pages)
            )
            name = f"s{self.now:g}"
            self.kept[name] = list(self.pages)
            self.at[name] = self.now
            self.holdings.taken(name, self.now, whole, changed, self.copied)
        return plan

    def ages(self) -> list[float]:
        return sorted(self.now - at for at in self.at.values())


def test_there_are_more_of_them_near_now_and_their_number_is_bounded() -> None:
    job = Job(1)
    for _ in range(600):
        job.write(range(1))
        assert job.take(PLENTY).fits
        assert len(job.at) <= MOST
    ages = job.ages()
    assert ages[:5] == [0, 1, 2, 3, 4]
    assert max(b / a for a, b in itertools.pairwise(ages[4:-1])) < 2
    assert ages[-1] == 599, "the first one stays"
    assert sum(age < 20 for age in ages) > len(ages) / 3
    assert any(100 < age < 500 for age in ages)


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("written", [1, 20, 100])
@pytest.mark.parametrize("free", [100, 420, 900, 4000])
def test_they_never_hold_more_than_a_quarter_of_the_free_memory(
    free: int, written: int, copied: bool
) -> None:
    """Looked at all the time, also before the next one is taken."""
    job, chance = Job(100, copied), random.Random(free)
    taken = 0
    for _ in range(60):
        start = chance.choice([0, 30]) % (101 - written)
        job.write(range(start, start + written))
        assert job.really() <= free // 4
        taken += job.take(free).fits
        assert job.really() <= free // 4
    assert bool(taken) == (free >= 400), "the first one may come to all memory"
    if free == 4000:
        assert taken == 60 and len(job.at) >= (20 if written == 1 and not copied else 2)


def test_little_memory_means_fewer_of_them_and_those_near_now() -> None:
    some, many = Job(100), Job(100)
    for _ in range(100):
        for job, free in ((some, 2000), (many, 10**6)):
            job.write(range(100))
            assert job.take(free).fits
    assert 2 <= len(some.at) < len(many.at)
    assert some.ages()[:2] == [0, 1]


def test_the_plan_says_if_there_is_too_little_memory() -> None:
    job = Job(100)
    job.write(range(100))
    plan = job.take(399)
    assert (plan.fits, plan.bound, plan.next) == (False, 99, 100)
    plan = job.take(400)
    assert (plan.fits, plan.short, plan.drop) == (True, False, ())
    job.write(range(100))
    plan = job.take(400)
    assert (plan.fits, plan.short, plan.drop) == (True, True, ("s1",))


def test_a_job_that_writes_little_has_many_though_one_could_come_to_a_lot() -> None:
    job = Job(100)
    for _ in range(50):
        job.write(range(3))
        assert job.take(440).fits
    assert len(job.at) > 5


def test_later_snapshots_go_when_there_is_no_room_for_them() -> None:
    job = Job(100)
    for _ in range(5):
        job.write(range(100))
        job.take(10**6)
    job.now = -10.0
    job.write(range(100))
    plan = job.take(1200)
    assert plan.fits and plan.short
    assert job.really() <= 300


def test_a_copy_may_come_to_all_memory_however_little_has_changed() -> None:
    for copied, expected in ((True, 100), (False, 2)):
        job = Job(100, copied)
        for _ in range(5):
            job.write(range(1))
            plan = job.take(10**6)
        assert plan.next == expected


def test_what_is_given_up_may_still_be_needed() -> None:
    holdings = Holdings()
    for number in range(3):
        holdings.taken(f"s{number}", float(number), 10 * MIB, 4 * MIB, False)
    assert holdings.bytes == 8 * MIB
    holdings.forget("s1")
    assert holdings.bytes == 8 * MIB
    holdings.forget("s0")
    assert holdings.bytes == 0


def test_what_history_begins_with_stays_however_little_memory_there_is() -> None:
    holdings = Holdings()
    holdings.taken("first", 0.0, 100 * MIB, 0, False, stays=True)
    for n in range(1, 4 * MOST):
        now = 10.0 * n
        plan = holdings.plan(now, 100 * MIB, 1000 * MIB)
        assert "first" not in plan.drop
        for name in plan.drop:
            holdings.forget(name)
        if plan.fits:
            holdings.taken(f"s{n}", now, 100 * MIB, 10 * MIB, False)
    assert holdings.names()[0] == "first"
    plan = holdings.plan(1e4, 100 * MIB, MIB)
    assert "first" not in plan.drop and not plan.fits
    assert set(plan.drop) == set(holdings.names()) - {"first"}
