"""Merging the answers of many ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdebug.base.answers import Answers
from crdebug.base.errors import CrdebugError, GdbError, Refused
from crdebug.base.ranks import RankSet

pytestmark = pytest.mark.unit


def test_the_largest_class_first_then_by_lowest_rank() -> None:
    answers: Answers[str] = Answers({3: "b", 0: "a", 1: "b", 5: "c", 4: "a", 2: "b"}, {})
    assert answers.merged() == (
        (RankSet.of([1, 2, 3]), "b"),
        (RankSet.of([0, 4]), "a"),
        (RankSet.of([5]), "c"),
    )


@given(st.dictionaries(st.integers(0, 300), st.integers(0, 3)))
def test_every_rank_is_in_exactly_one_class(values: dict[int, int]) -> None:
    merged = Answers(values, {}).merged()
    assert sorted(rank for ranks, _ in merged for rank in ranks) == sorted(values)
    assert all(values[rank] == value for ranks, value in merged for rank in ranks)


def test_equal_problems_of_different_ranks_are_one_class() -> None:
    problem = 'No symbol "x" in current context.'
    errors: dict[int, CrdebugError] = {
        rank: GdbError(problem, "print x", ranks=RankSet.of([rank])) for rank in (0, 2, 3)
    }
    errors[1] = Refused("cannot step: the rank is running", ranks=RankSet.of([1]))
    assert Answers({}, errors).merged_errors() == (
        (RankSet.of([0, 2, 3]), problem),
        (RankSet.of([1]), "cannot step: the rank is running"),
    )
