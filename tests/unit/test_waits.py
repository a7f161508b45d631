"""How long a job runs between crdebug's own stops, beside threads that wait in one call."""

from __future__ import annotations

import pytest

from crdebug.travel.waits import Pace, Place

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
    """After how many seconds of run a wait ends that begins anew at each stop."""
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
    """The call goes on a little later than the clock says, and is cut off a little before."""
    pace = Pace()
    pace.stopped({HERE: 10.0}, 10.0)
    pace.stopped({HERE: 10.0}, 10.1)
    assert pace.factor == 2
