"""Rank sets: the notation, and the algebra of sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdebug.base.errors import BadInput
from crdebug.base.ranks import RankSet

pytestmark = pytest.mark.unit

SETS = st.sets(st.integers(0, 200))
EVERY = RankSet.span(8)


@given(SETS)
def test_what_is_written_is_read_back(ranks: set[int]) -> None:
    made = RankSet.of(ranks)
    assert sorted(made) == sorted(ranks)
    assert len(made) == len(ranks)
    assert bool(made) == bool(ranks)
    if ranks:
        assert made.first == min(ranks)
        assert RankSet.parse(str(made), RankSet.span(201)) == made


@given(SETS, SETS)
def test_algebra(left: set[int], right: set[int]) -> None:
    one, other = RankSet.of(left), RankSet.of(right)
    assert set(one | other) == left | right
    assert set(one & other) == left & right
    assert set(one - other) == left - right


@given(SETS, st.integers(0, 250))
def test_membership(ranks: set[int], rank: int) -> None:
    assert (rank in RankSet.of(ranks)) == (rank in ranks)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("0", [0]),
        ("0,3-5", [0, 3, 4, 5]),
        (" 1 , 2 - 3 ", [1, 2, 3]),
        ("all", list(range(8))),
        (" all ", list(range(8))),
        ("3,3,3-3", [3]),
    ],
)
def test_notation(text: str, ranks: list[int]) -> None:
    assert list(RankSet.parse(text, EVERY)) == ranks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a rank set"),
        ("x", "'x' is not a rank set"),
        ("1,,2", "is not a rank set"),
        ("-1", "is not a rank set"),
        ("3-1", "counts down .write 1-3."),
        ("8", "there is no rank 8 .the job has ranks 0-7."),
        ("0-99999999999", "there is no rank 99999999999"),
    ],
)
def test_what_is_no_rank_set(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        RankSet.parse(text, EVERY)


def test_a_gap_in_the_job_is_named() -> None:
    with pytest.raises(BadInput, match="there is no rank 2"):
        RankSet.parse("1-3", RankSet.of([0, 1, 3]))


def test_runs_are_written_short() -> None:
    assert str(RankSet.of([0, 1, 2, 5, 7, 8])) == "0-2,5,7-8"
    assert str(RankSet()) == ""


def test_an_empty_set_has_no_first() -> None:
    with pytest.raises(ValueError, match="no first rank"):
        _ = RankSet().first


def test_ten_thousand_ranks_are_one_operation() -> None:
    many = RankSet.span(10_000)
    assert len(many) == 10_000
    assert str(many) == "0-9999"
    assert len(many - RankSet.of([5000])) == 9_999
