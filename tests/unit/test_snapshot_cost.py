"""How often a job is stopped for snapshots and checkpoints, by their costs: simulated runs."""

from __future__ import annotations

import math

import pytest

from crdebug.travel.snapshot_cost import (
    BUDGET,
    CHECKPOINTS,
    COPYING,
    FIRST,
    GREATEST,
    GREATEST_CHECKPOINT,
    LEAST,
    Costs,
)

pytestmark = pytest.mark.unit

EVERY = 10.0
GIB = 1 << 30


class Run:
    """A job that runs, and is stopped as soon as something is due.

    stop, checkpoint: the seconds for which each of these stops it.
    changed: bytes, from one snapshot to the next.
    """

    def __init__(
        self,
        stop: float,
        checkpoint: float = 0.0,
        changed: int = 0,
        *,
        every: float = EVERY,
        budget: float = BUDGET,
    ) -> None:
        self.costs = Costs()
        self.costs.budget = budget
        self.stop, self.checkpoint, self.changed, self.every = stop, checkpoint, changed, every
        self.snapshots: list[float] = []  # at which moments of the run
        self.checkpoints: list[float] = []
        self.costs.checkpoints.expect(checkpoint)

    def until(self, seconds: float) -> Run:
        costs = self.costs
        while True:
            snapshot = costs.snapshot_interval(self.every) - costs.snapshots.since
            checkpoint = costs.checkpoint_interval(self.every) - costs.checkpoints.since
            after = max(min(snapshot, checkpoint), LEAST)
            if costs.run + after > seconds:
                costs.ran(seconds - costs.run)
                return self
            costs.ran(after)
            if checkpoint <= after:
                self.checkpoints.append(costs.run)
                costs.checkpoints.stopped(costs.part_of_checkpoints)
                costs.checkpoints.cost(self.checkpoint)
            if snapshot <= after:
                first = not self.snapshots
                self.snapshots.append(costs.run)
                costs.snapshots.stopped(costs.part_of_snapshots(self.every))
                costs.snapshots.cost(self.stop + (0 if first else COPYING * self.changed))

    @property
    def lost(self) -> float:
        """In all, as a part of the run."""
        faults = COPYING * self.changed * max(len(self.snapshots) - 1, 0)
        stood = self.stop * len(self.snapshots) + self.checkpoint * len(self.checkpoints)
        return (stood + faults) / self.costs.run

    def intervals(self) -> list[float]:
        return [b - a for a, b in zip(self.snapshots, self.snapshots[1:], strict=False)]


@pytest.mark.parametrize("budget", [0.005, BUDGET, 0.1])
@pytest.mark.parametrize("changed", [0, 10 << 20, 2 * GIB])
@pytest.mark.parametrize("checkpoint", [0.0, 0.05, 0.6, 2.0])
@pytest.mark.parametrize("stop", [0.002, 0.1, 1.0])
def test_in_the_long_run_all_of_it_costs_no_more_than_the_budget(
    stop: float, checkpoint: float, changed: int, budget: float
) -> None:
    run = Run(stop, checkpoint, changed, budget=budget).until(4000)
    one = stop + COPYING * changed + checkpoint  # the last ones are not paid off yet
    within = (stop + COPYING * changed) / GREATEST <= budget / 2
    if within and checkpoint / GREATEST_CHECKPOINT <= budget * CHECKPOINTS:
        assert run.lost <= budget * 1.001 + one / run.costs.run
    assert run.costs.spent == pytest.approx(run.lost)


def test_a_stop_of_100_ms_comes_every_5_seconds_where_checkpoints_cost_nothing() -> None:
    run = Run(0.1).until(100)
    assert run.snapshots[0] == FIRST
    assert run.intervals() == pytest.approx([5.0] * len(run.intervals()), rel=0.01)


def test_a_cheap_one_comes_no_more_often_than_is_of_use() -> None:
    assert set(Run(0.0).until(30).intervals()) == {LEAST}
    assert min(Run(0.005).until(30).intervals()) == LEAST


def test_checkpoints_take_no_more_than_their_share_and_snapshots_the_rest() -> None:
    run = Run(0.1, 0.6).until(1000)
    assert [b - a for a, b in zip(run.checkpoints, run.checkpoints[1:], strict=False)] == (
        pytest.approx([120.0] * (len(run.checkpoints) - 1), abs=2)
    )
    assert len(run.snapshots) * 0.1 / 1000 == pytest.approx(BUDGET * (1 - CHECKPOINTS), rel=0.1)
    cheap = Run(0.1, 0.01).until(1000)
    assert len(cheap.snapshots) * 0.1 / 1000 == pytest.approx(BUDGET - 0.001, rel=0.1)


def test_what_the_first_checkpoint_took_puts_off_the_next_one() -> None:
    assert Run(0.0, 0.3).until(59).checkpoints == []
    assert Run(0.0, 0.3).until(61).checkpoints != []
    assert Run(0.0, 0.01).until(11).checkpoints == [10.0]


def test_a_checkpoint_is_due_after_5_minutes_whatever_it_costs() -> None:
    run = Run(0.0, 60.0).until(1000)
    assert run.checkpoints[0] == pytest.approx(GREATEST_CHECKPOINT, abs=LEAST)
    assert Run(0.0, 60.0, every=900.0).until(1000).checkpoints == [900.0], "but as the user wants"


def test_what_the_last_one_makes_ranks_copy_delays_the_next_and_counts_once() -> None:
    costs = Costs()
    costs.snapshots.stopped(BUDGET)
    costs.snapshots.cost(0.1)
    assert costs.snapshot_interval(EVERY) == pytest.approx(5.0)
    for seen in (0.3, 0.8, 0.5):  # pages that were shared anew do not make it less
        costs.snapshots.caused(seen)
    assert costs.snapshot_interval(EVERY) == pytest.approx(0.9 / BUDGET)
    costs.ran(0.9 / BUDGET)
    costs.snapshots.stopped(BUDGET)
    costs.snapshots.had_caused(1.0)
    assert costs.snapshots.spent == pytest.approx(1.1)
    assert costs.snapshot_interval(EVERY) == pytest.approx(0.2 / BUDGET)
    costs.snapshots.stopped(BUDGET)
    costs.snapshots.had_caused(0.4)
    assert costs.snapshots.spent == pytest.approx(1.5)


def test_one_odd_stop_is_forgotten_after_a_while() -> None:
    run = Run(0.1).until(10)
    run.costs.snapshots.cost(1000.0)
    run.until(2000)
    assert max(run.intervals()) == pytest.approx(GREATEST, abs=LEAST)
    assert run.intervals()[-1] == pytest.approx(5.0)


def test_short_runs_add_up() -> None:
    """The user continues from stop to stop: all run since the last snapshot counts."""
    costs = Costs()
    costs.snapshots.stopped(BUDGET)
    costs.snapshots.cost(0.1)
    for _ in range(10):
        costs.ran(0.4)
    assert costs.snapshot_interval(EVERY) - costs.snapshots.since == pytest.approx(1.0)


def test_what_is_not_paid_off_yet_delays_the_one_after_the_next() -> None:
    """One that came early, with a checkpoint say."""
    costs = Costs()
    for _ in range(2):
        costs.snapshots.stopped(BUDGET)
        costs.snapshots.cost(0.1)
        costs.ran(1.0)
    assert costs.snapshot_interval(EVERY) == pytest.approx((0.1 - BUDGET + 0.1) / BUDGET)


def test_with_a_budget_of_nothing_there_are_checkpoints_and_no_snapshots() -> None:
    run = Run(0.0, 0.15, budget=0.0).until(100)
    assert run.snapshots == []
    assert run.costs.snapshot_interval(EVERY) == math.inf
    assert [round(each) for each in run.checkpoints] == [30, 60, 90]
    assert Run(0.0, 0.0, budget=0.0).until(35).checkpoints == [10.0, 20.0, 30.0]
