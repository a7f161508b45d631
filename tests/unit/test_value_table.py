"""info table: several expressions on many ranks."""

from __future__ import annotations

import pytest

from crdebug.base.answers import Answers
from crdebug.base.errors import BadInput, GdbError
from crdebug.base.expression_lists import expressions
from crdebug.base.ranks import RankSet
from crdebug.ui.value_table import value_table

pytestmark = pytest.mark.unit


def of(*values: str) -> Answers[str]:
    return Answers(dict(enumerate(values)), {})


def shown(*columns: tuple[str, Answers[str]], each: bool = False) -> list[str]:
    return "\n".join(value_table(columns, each=each)).splitlines()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("x", ["x"]),
        ("x, y[0] , step", ["x", "y[0]", "step"]),
        ("f(a, b), u[g(1, 2)]", ["f(a, b)", "u[g(1, 2)]"]),
        (r"""strcmp(s, "a,\","), ',' """, [r"""strcmp(s, "a,\",")""", "','"]),
        ("(int[2]){1, 2}, x", ["(int[2]){1, 2}", "x"]),
    ],
)
def test_commas_between_expressions(text: str, parts: list[str]) -> None:
    assert list(expressions(text)) == parts


@pytest.mark.parametrize("text", ["x,", ",x", "x,,y", "f(a, b", 'x, "y'])
def test_what_is_no_list_of_expressions(text: str) -> None:
    with pytest.raises(BadInput):
        expressions(text)


def test_equal_ranks_are_a_line_and_the_numbers_are_summed_up() -> None:
    assert shown(("x", of("1.5", "2", "2", "2.5")), ("step", of("7", "7", "7", "7"))) == [
        "ranks  x       step",
        "0      1.5     7",
        "1-2    2       7",
        "3      2.5     7",
        "min    1.5 @0  7 @0-3",
        "max    2.5 @3  7 @0-3",
        "mean   2       7",
    ]


def test_a_value_unlike_the_others_is_marked() -> None:
    lines = shown(("x", of("1", "1", "9", "1")))
    assert lines[1:3] == ["0-1,3  1", "2      9 *"]


def test_what_is_no_number_has_no_range() -> None:
    assert shown(("name", of('"a"', '"b"'))) == ["ranks  name", '0      "a"', '1      "b"']


def test_of_many_lines_those_unlike_the_others_are_shown_and_all_on_demand() -> None:
    values = [str(1000 + rank % 50) for rank in range(200)]
    values[77] = "5"
    lines = shown(("x", of(*values)))
    assert lines[1].split() == ["77", "5", "*"]
    assert lines[2].split() == ["min", "5", "@77"]
    assert "50 more different lines (--each shows all)" in lines
    assert len(shown(("x", of(*values)), each=True)) == 1 + 200 + 3


def test_a_rank_that_cannot_answer_says_why() -> None:
    column = Answers({0: "1"}, {1: GdbError('No symbol "x"', "print x", ranks=RankSet.of([1]))})
    lines = shown(("x", column), ("y", of("3", "4")))
    assert lines[2].split() == ["1", "-", "4"]
    assert lines[-1].startswith("x: [1]") and "No symbol" in lines[-1]
