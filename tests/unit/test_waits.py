"""How long a job runs between crdebug's own stops if threads wait in one call."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from crdebug.travel import waits
from crdebug.travel.snapshot_cost import BUDGET, CHECKPOINTS, FIRST, LEAST, WRITING
from crdebug.travel.waits import Due, Pace, Pauses, Place, Wait

pytestmark = pytest.mark.unit

HERE: Place = (0, 7, "poll")
THERE: Place = (1, 9, "poll")


def factors(every: float, *stops: dict[Place, float]) -> list[int]:
    """By stop, by how much longer the job runs after it, each time as long as it should."""
    pace, found = Pace(), []
    for limits in stops:
        pace.stopped(limits, every * pace.factor)
        found.append(pace.factor)
    return found


def begun_anew(limit: float, every: float) -> float:
    """The seconds of run after which a wait ends that each stop restarts."""
    pace, run = Pace(), 0.0
    while every * pace.factor <= limit:
        run += every * pace.factor
        pace.stopped({HERE: limit}, every * pace.factor)
    return run + limit


@pytest.mark.parametrize("every", [0.2, 2.0, 10.0])
@pytest.mark.parametrize("times", [1, 1.01, 1.6, 3.9, 4.1, 100, 10000])
def test_a_wait_ends_within_four_times_its_limit(every: float, times: float) -> None:
    assert begun_anew(times * every, every) <= 4 * times * every


def test_the_interval_doubles_while_a_thread_stays_in_its_call() -> None:
    stay: dict[Place, float] = {HERE: 60.0, THERE: 5.0}
    assert factors(10.0, stay, stay, stay, stay, {}) == [1, 2, 4, 8, 1]


def test_another_call_or_another_thread_each_time_changes_nothing() -> None:
    limits: list[dict[Place, float]] = [{HERE: 60.0}, {THERE: 60.0}, {(0, 7, "nanosleep"): 60.0}]
    assert factors(10.0, *limits) == [1, 1, 1]


def test_a_thread_that_waits_for_a_short_time_again_and_again_changes_nothing() -> None:
    assert factors(10.0, *[{HERE: 5.0}] * 5) == [1] * 5


def test_a_loop_of_long_waits_has_the_interval_grow_no_further_than_one_of_them() -> None:
    assert factors(10.0, *[{HERE: 25.0}] * 9) == [1, 2, 4, 1, 2, 4, 1, 2, 4]


def test_a_wait_that_lasts_just_as_long_as_the_interval_ends_too() -> None:
    """The call resumes a little later than the clock says, and is cut off a little earlier."""
    pace = Pace()
    pace.stopped({HERE: 10.0}, 10.0)
    pace.stopped({HERE: 10.0}, 10.1)
    assert pace.factor == 2


# ---- what stops cost ---------------------------------------------------------------------------

EVERY = 10.0


class Job:
    """A job whose time passes as a test says."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.waits: list[Wait] = []
        patch.setattr(waits, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.pauses = Pauses(None)  # type: ignore[arg-type]
        patch.setattr(self.pauses, "_look", self.look)
        self.memory = 0
        patch.setattr(self.pauses, "_memory", lambda: self.memory)
        self.costs = self.pauses.costs

    async def look(self) -> list[Wait]:
        return self.waits

    def run(self, seconds: float) -> None:
        self.pauses.goes_on()
        self.now += seconds
        self.pauses.stands()

    async def interlude(self, stop: float, checkpoint: float) -> Due:
        """stop: seconds from the interrupt until it begins, and again until it ends."""
        since, self.now = self.now, self.now + stop
        due = await self.pauses.stopped(since, EVERY)
        if due.checkpoint:
            self.now += checkpoint
            self.pauses.taken(checkpoint)
        self.now += stop
        self.after = self.pauses.begin(EVERY)
        return due


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(monkeypatch)


async def test_a_stop_lasts_from_the_interrupt_until_ranks_go_on(job: Job) -> None:
    assert job.pauses.begin(EVERY) == FIRST
    job.run(FIRST)
    assert await job.interlude(0.04, 0.0) == Due(True, False)
    assert job.after == pytest.approx(0.08 / BUDGET)
    job.now += 0.02
    job.run(1.0)
    assert job.costs.snapshots.spent == pytest.approx(0.1)
    assert job.costs.run == pytest.approx(FIRST + 1.0)


async def test_what_the_user_does_between_two_runs_is_no_cost(job: Job) -> None:
    job.run(job.pauses.begin(EVERY))
    await job.interlude(0.05, 0.0)
    job.pauses.over()
    job.now += 3600.0
    job.run(1.0)  # a step
    job.now += 3600.0
    job.pauses.begin(EVERY)
    job.run(1.0)
    assert job.costs.snapshots.spent == pytest.approx(0.1)
    assert job.costs.run == pytest.approx(FIRST + 2.0)


async def test_the_checkpoint_before_the_first_run_predicts_the_cost_of_others(job: Job) -> None:
    job.pauses.taken(0.3)
    assert job.costs.checkpoints.spent == 0.0
    assert job.costs.checkpoint_interval(EVERY) == pytest.approx(0.3 / (BUDGET * CHECKPOINTS))


async def test_a_job_that_has_grown_since_its_checkpoint_pays_for_the_next_one_first(
    job: Job,
) -> None:
    """A dump takes longer by the memory that the ranks have by then."""
    job.pauses.taken(0.05)
    job.run(job.pauses.begin(EVERY))  # at first there is no more memory than before
    job.memory = 128 << 20
    assert await job.interlude(0.0, 0.0) == Due(True, False)
    more = WRITING * job.memory
    due = (0.05 + more) / (BUDGET * CHECKPOINTS)
    assert job.costs.checkpoint_interval(EVERY) == pytest.approx(due)
    job.run(job.after)
    while not (await job.interlude(0.0, 0.05 + more)).checkpoint:
        job.run(job.after)
    assert job.costs.run == pytest.approx(due, abs=2 * LEAST)
    # That was paid for: the one after it comes as if the memory had always been there.
    assert job.costs.checkpoint_interval(EVERY) == pytest.approx(EVERY, abs=2 * LEAST)


async def test_what_is_due_at_about_the_same_time_is_done_in_one_stop(job: Job) -> None:
    job.pauses.begin(EVERY)
    job.costs.snapshots.stopped(BUDGET)
    job.costs.snapshots.cost(BUDGET * 10.5)
    job.run(job.pauses.begin(EVERY))
    assert await job.interlude(0.1, 0.5) == Due(True, True)
    job.run(1.0)
    assert job.costs.checkpoints.spent == pytest.approx(0.5)
    assert job.costs.snapshots.spent == pytest.approx(BUDGET * 10.5 + 0.2)


async def test_with_each_checkpoint_a_snapshot_is_taken(job: Job) -> None:
    """It ends the existing ones; nobody should go back by it without need."""
    job.pauses.begin(EVERY)
    job.costs.snapshots.stopped(BUDGET)
    job.costs.snapshots.cost(1.0)
    job.run(job.pauses.begin(EVERY))
    assert job.costs.run == EVERY
    assert await job.interlude(0.1, 0.5) == Due(True, True)


async def test_a_stop_for_a_checkpoint_only_is_paid_by_checkpoints(job: Job) -> None:
    job.costs.budget = 0.0
    assert job.pauses.begin(EVERY) == EVERY
    job.run(EVERY)
    assert await job.interlude(0.1, 0.5) == Due(False, True)
    job.run(1.0)
    assert job.costs.checkpoints.spent == pytest.approx(0.7)
    assert job.costs.snapshots.spent == 0.0


async def test_snapshots_get_rarer_if_a_thread_stays_in_one_call(job: Job) -> None:
    job.waits = [Wait(HERE, 60.0, False)]
    found = []
    job.pauses.begin(EVERY)
    for _ in range(4):
        job.costs.checkpoints.since = 0.0
        job.run(2.5)
        await job.interlude(0.0, 0.0)
        found.append(job.after)
    assert found == [0.5, 1.0, 2.0, 4.0]
    job.waits = []
    job.run(job.after)
    await job.interlude(0.0, 0.0)
    assert job.after == 0.5
