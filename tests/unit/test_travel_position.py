"""What the places of a job's history are measured from."""

from __future__ import annotations

import pytest

from crdebug.base.instant import cut_of
from crdebug.travel.position import Position

pytestmark = pytest.mark.unit


def test_a_job_that_has_not_run_is_not_in_the_past() -> None:
    position = Position(2)
    assert position.furthest == ()
    assert position.branch_start == cut_of(0, 0)
    assert not position.is_behind(cut_of(0, 0))
    assert position.is_on_branch(cut_of(0, 0))


def test_runs_lead_further_and_never_back() -> None:
    position = Position(2)
    position.advance(cut_of(4, 6))
    position.advance(cut_of(6, 2))  # rank 1 was brought back before this run
    assert position.furthest == cut_of(6, 6)
    assert position.is_behind(cut_of(6, 2))
    assert position.is_behind(cut_of(5, 6))
    assert not position.is_behind(cut_of(6, 6))
    assert not position.is_behind(cut_of(8, 8))


def test_a_new_branch_begins_at_the_jobs_position() -> None:
    position = Position(2)
    position.advance(cut_of(8, 8))
    position.begin_branch(cut_of(4, 3))
    assert position.branch_start == position.furthest == cut_of(4, 3)
    assert not position.is_behind(cut_of(4, 3))
    assert not position.is_on_branch(cut_of(4, 2))
    assert position.is_on_branch(cut_of(4, 3)) and position.is_on_branch(cut_of(9, 9))


def test_on_another_branch_the_job_may_have_come_less_far() -> None:
    position = Position(2)
    position.begin_branch(cut_of(4, 4))
    position.advance(cut_of(9, 9))
    position.change_branch(cut_of(2, 2))
    assert position.furthest == cut_of(9, 9)  # until it has reached its place there
    position.return_to(cut_of(6, 5))
    assert position.branch_start == cut_of(2, 2)
    assert position.furthest == cut_of(6, 5)
    assert position.is_behind(cut_of(6, 4))
    position.change_branch(())
    assert position.branch_start == cut_of(0, 0)


def test_a_change_counts_until_it_is_over() -> None:
    position = Position(1)
    assert position.change == ""
    position.changed_by_user("set var x = 1")
    position.advance(cut_of(2))
    assert position.change == "set var x = 1"
    position.change_is_over()
    assert position.change == ""


def test_each_way_by_other_means_than_a_run_is_counted() -> None:
    position = Position(1)
    position.advance(cut_of(2))
    assert position.ways == 0
    position.brought_elsewhere()
    position.brought_elsewhere()
    assert position.ways == 2


@pytest.mark.parametrize("name", ["furthest", "branch_start", "change", "ways"])
def test_nobody_else_assigns_them(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(Position(1), name, ())
