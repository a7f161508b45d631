"""Many answers in few words: ranges, and outliers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdebug.base.answers import Answers, comparable
from crdebug.base.errors import BadInput
from crdebug.base.ranks import RankSet
from crdebug.base.summary import deviating, summarise
from crdebug.ui.answers import MANY, compared, values

pytestmark = pytest.mark.unit


def of(texts: Sequence[str], *failed: int) -> Answers[str]:
    """The ranks' answers in order; some failed instead."""
    return Answers(
        {rank: text for rank, text in enumerate(texts) if rank not in failed},
        {rank: BadInput("No symbol") for rank in failed},
    )


FINITE = st.one_of(st.integers(-(10**30), 10**30), st.floats(allow_nan=False, allow_infinity=False))


@given(st.lists(FINITE, min_size=1, max_size=60), st.lists(st.sampled_from(["nan(0x8)", "-inf"])))
def test_a_summary_is_of_the_finite_and_tells_the_others_apart(
    numbers: list[int | float], odd: list[str]
) -> None:
    texts = [*map(str, numbers), *odd]
    found = summarise(dict(enumerate(texts)))
    assert found is not None
    assert found.ranks == RankSet.span(len(numbers))
    assert found.different == len(set(numbers))
    for end, pick in ((found.least, min), (found.greatest, max)):
        extreme = pick(numbers)
        assert sorted(end.ranks) == [r for r, each in enumerate(numbers) if each == extreme]
        assert end.text == texts[end.ranks.first]
    slack = 1e-9 * max(map(abs, numbers))
    assert float(min(numbers)) - slack <= found.mean <= float(max(numbers)) + slack
    assert sorted(rank for ranks, _ in found.apart for rank in ranks) == [
        *range(len(numbers), len(texts))
    ]
    for ranks, word in found.apart:
        assert all(texts[rank].startswith(word) for rank in ranks)


@pytest.mark.parametrize(
    "texts", [[], ["nan", "inf"], ["{1, 2}", "<optimized out>"], ["(int *) 0x1"]]
)
def test_without_a_finite_number_there_is_no_summary(texts: list[str]) -> None:
    assert summarise(dict(enumerate(texts))) is None


# ---- lines --------------------------------------------------------------------------------------


def test_few_values_are_listed_and_many_numbers_are_summarised() -> None:
    few = [str(rank % MANY) for rank in range(64)]
    assert len(list(values(of(few)))) == MANY
    many = [str(0.5 * rank) for rank in range(64)]
    many[17], many[3], many[5], many[9], many[20] = "-1", "93.5", "nan(0x8)", "inf", "nan(0x9)"
    assert list(values(of([*many, "<optimized out>", "{x = 1}"], 40))) == [
        "[0-4,6-8,10-19,21-39,41-63] 60 values, min -1 [17], max 93.5 [3], mean 17.5583",
        "[5,20] nan",
        "[9] inf",
        "[64] = <optimized out>",
        "[65] = {x = 1}",
        "[40] error: No symbol",
    ]


def test_each_shows_all() -> None:
    assert list(values(of(["2"] * 3, 1), each=True)) == [
        "[0] = 2",
        "[2] = 2",
        "[1] error: No symbol",
    ]


def test_many_values_that_are_no_numbers_are_cut_and_counted() -> None:
    lines = list(values(of([*["same"] * 3, *(f'"{rank}"' for rank in range(20))])))
    assert lines[0] == "[0-2] = same"
    assert len(lines) == MANY + 1
    assert lines[-1] == "[10-22] 13 other values (--each shows all)"


# ---- the odd one out ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "odd"),
    [
        (["5"] * 4, []),
        (["5"], []),
        (["5", "5", "6", "5"], [2]),
        (["{a}", "{b}", "{a}"], [1]),
        (["5", "6"], []),
        (["{a}", "{b}", "{c}"], []),
        (["5", "5", "6", "6"], []),
        (["1.01", "1.02", "0.99", "1.03", "7.5", "0.98"], [4]),
        (["1.01", "nan", "0.99", "1.03", "1.5", "0.98", "inf"], [1, 4, 6]),
        ([str(rank) for rank in range(100)], []),
        ([*(str(rank) for rank in range(99)), "1e300"], [99]),
        ([str(10**400 + rank) for rank in range(5)], []),  # beyond any double
    ],
)
def test_outliers_are_named(texts: list[str], odd: list[int]) -> None:
    assert list(deviating(of(texts))) == odd


@given(st.lists(st.sampled_from(["1", "2", "nan", "{x}", "1e9", "(int *) 0x0"]), max_size=30))
def test_the_majority_are_never_outliers(texts: list[str]) -> None:
    answers = of(texts)
    found = deviating(answers)
    assert 2 * len(found) < max(len(texts), 1)
    for ranks, _ in answers.merged():  # equal answers are treated alike
        assert ranks & found in (RankSet(), ranks)


def test_comparing_names_the_odd_one_and_shows_all() -> None:
    def told(answers: Answers[str]) -> list[str]:
        return list(compared(answers, deviating(answers)))

    assert told(of(["5", "5", "6", "5"], 0)) == [
        "2 values on 3 ranks: [2] is the odd one out",
        "  [1,3] = 5",
        "  [2] = 6",
        "  [0] error: No symbol",
    ]
    assert told(of(["5"] * 3))[0] == "all 3 ranks agree"
    assert told(of(["5", "6"]))[0] == "2 different values on 2 ranks, no outlier"
    many = [f"{1 + math.sin(rank):.3f}" for rank in range(40)]
    many[7], many[9] = "1000", "nan"
    lines = told(of(many))
    assert lines[:4] == [
        "40 values on 40 ranks: [7,9] are the odd ones out",
        "  [7] = 1000",
        "  [9] = nan",
        "of all:",
    ]
    assert lines[4].startswith("  [0-8,10-39] 39 values, min 0")


@pytest.mark.parametrize(
    ("texts", "left"),
    [
        (['0x5581 "left"', '0x5582 "left"'], ['"left"'] * 2),
        (['0x5581 "left"', "0x0"], ['"left"', "0x0"]),
        (["(double *) 0x5581", "(double *) 0x0", "0x5583"], ["0x...", "(double *) 0x0", "0x..."]),
        (["(void (*)(int)) 0x401136 <work>"] * 2, ["(void (*)(int)) 0x401136 <work>"] * 2),
        (["(int *) 0x0"] * 2, ["(int *) 0x0"] * 2),
        (["5", "97 'a'", "{p = 0x5581}"], ["5", "97 'a'", "{p = 0x5581}"]),
    ],
)
def test_strings_are_compared_without_their_addresses(texts: list[str], left: list[str]) -> None:
    assert list(comparable("p", of(texts)).values.values()) == left


@pytest.mark.parametrize(
    ("expression", "hint"), [("p", "'compare *p'"), ("a.p + 1", "'compare *(a.p + 1)'")]
)
def test_addresses_are_not_compared(expression: str, hint: str) -> None:
    with pytest.raises(BadInput, match="is an address, and each rank has its own") as refused:
        comparable(expression, of(["(double *) 0x5581", "(double *) 0x5581", "0x5583"], 1))
    assert refused.value.ranks == RankSet.of([0, 2])
    assert str(refused.value.hint).startswith(hint)
