"""Conditions over ranks: the questions to the debuggers, and the use of their answers."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from crdebug.base.errors import BadInput
from crdebug.base.gdb_values import number
from crdebug.base.ranks import RankSet
from crdebug.timeline.predicate import parse

EVERY = RankSet.span(4)


def holds(text: str, **answers: str | list[str]) -> bool:
    """The value with one answer for all ranks, or one each; `x` is any expression."""
    predicate = parse(text, EVERY)
    told: dict[str, Mapping[int, str]] = {}
    for expression in predicate.expressions:
        given = answers.get(expression, answers.get("x", "0"))
        each = given if isinstance(given, list) else [given] * 4
        told[expression] = {rank: each[rank] for rank in predicate.ranks}
    return predicate.value(told)


ONE_TO_FOUR = ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sum(x) > 9", True),
        ("sum(x) > 10", False),
        ("sum(x) == 10", True),
        ("min(x) == 1 and max(x) == 4", True),
        ("max(x) - min(x) < 1e-9", False),
        ("max(x)-min(x) == 3", True),
        ("mean(x) == 2.5", True),
        ("count(x) == 4", True),
        ("all(x)", True),
        ("not all(x)", False),
        ("! all(x) || any(x)", True),
        ("!all(x) && any(x)", False),
        ("any(x) and not any(x) or all(x)", True),
        ("any(x) or all(x) and not all(x)", True),
        ("(any(x) or all(x)) and not all(x)", False),
        ("2 + 3 * sum(x) == 32", True),
        ("(2 + 3) * sum(x) == 50", True),
        ("-sum(x) + 20 == 2 * 5", True),
        ("10 - 3 - 2 == sum(x) / 2", True),
        ("sum(x) % 4 == 2", True),
        ("sum(x) != .1e2", False),
        ("sum(x) <= 10", True),
        ("sum(x) >= 11", False),
        ("not sum(x) == 3", True),
        ("sum(x)", True),
        ("sum(x) - 10", False),
        ("rank 2: x", True),
        ("rank 1-2: sum(x) == 5", True),
        ("ranks 0,3: sum(x) == 5", True),
        ("ranks all: max(x) == 4", True),
    ],
)
def test_the_value_of_a_condition(text: str, expected: bool) -> None:
    assert holds(text, x=ONE_TO_FOUR) is expected


@pytest.mark.parametrize(
    ("text", "ranks", "expressions"),
    [
        ("all(x==y)", "0-3", ("x==y",)),
        ("any(p->n == 0)", "0-3", ("p->n == 0",)),
        ("count(x<0) == 2", "0-3", ("x<0",)),
        ("rank 3: p != 0", "3", ("p != 0",)),
        ("rank 3: ns::f(a, b) != 0", "3", ("ns::f(a, b) != 0",)),
        ("ranks 1-2: max(a[f(1)]) - min( b ) > 0", "1-2", ("a[f(1)]", "b")),
        ("sum(x) > 3 or sum(x) < 1", "0-3", ("x",)),
        ('any(strcmp(s, ")") == 0)', "0-3", ('strcmp(s, ")") == 0',)),
        ("any(c == ')')", "0-3", ("c == ')'",)),
        (r"any(c == '\'')", "0-3", (r"c == '\''",)),
        ("any(grid%cells(i, j) < 0.d0)", "0-3", ("grid%cells(i, j) < 0.d0",)),
        ("all({1,2}[0] == v[0])", "0-3", ("{1,2}[0] == v[0]",)),
        ("max( sum(q) ) > 0", "0-3", ("sum(q)",)),  # the program's own function
        ("rank 0: a.sum(3) > 0", "0", ("a.sum(3) > 0",)),
    ],
)
def test_what_the_debuggers_are_asked(text: str, ranks: str, expressions: tuple[str, ...]) -> None:
    predicate = parse(text, EVERY)
    assert (str(predicate.ranks), predicate.expressions) == (ranks, expressions)


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("sum(x) >", 9, "expected"),
        ("sum(x > 3", 4, "not closed"),
        ("sum(x]) > 3", 4, "not closed"),
        ("sum('x) > 3", 4, "not closed"),
        ("sum() > 3", 5, "an expression is missing: sum(x)"),
        ("x > 3", 1, "'x' is a program variable"),
        ("sum(x) > y", 10, "'y' is a program variable"),
        ("sum(x) > 3)", 11, "')' is not expected"),
        ("(sum(x) > 3", 12, "')' is missing"),
        ("1 < sum(x) < 3", 12, "do not chain"),
        ("sum(x) 3", 8, "'3' is not expected"),
        ("sum(x) $ 3", 8, "'$' is not expected"),
        ("sum(x) > 3abc", 10, "expected"),
        ("sum(x) > 3 and", 15, "expected"),
        ("rank 1:", 8, "missing"),
        ("", 1, "missing"),
        ("rank 1: (p != 0", 8, "do not pair"),
    ],
)
def test_errors_name_the_column(text: str, column: int, problem: str) -> None:
    with pytest.raises(BadInput) as error:
        parse(text, EVERY)
    assert f"column {column}:" in str(error.value)
    assert problem in str(error.value)


def test_a_condition_must_name_its_ranks() -> None:
    with pytest.raises(BadInput, match="does not say of which ranks"):
        parse("3 > 2", EVERY)
    with pytest.raises(BadInput, match="no rank 7"):
        parse("rank 7: x", EVERY)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("1.5", 1.5),
        ("-3", -3),
        ("97 'a'", 97),
        ("39 '\\''", 39),
        ("0 '\\000'", 0),
        ("-1 '\\377'", -1),
        ("65 L'A'", 65),
        ("(int *) 0x0", 0),
        ("(void (*)(int)) 0x401136 <main>", 0x401136),
        ('0x4006d4 "hello (there"', 0x4006D4),
        ('(const char *) 0x4006d4 ")"', 0x4006D4),
        ("true", 1),
        ("false", 0),
        (".TRUE.", 1),
        (".FALSE.", 0),
        ("1e-09", 1e-9),
        ("6.0221e+23", 6.0221e23),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("@0x7ffc0de4: 5", 5),
        ("(int &) @0x7ffc0de4: 5", 5),
        ("18446744073709551615", 2**64 - 1),
        ("{1, 2}", None),
        ("{...}", None),
        ("RED", None),
        ("<optimized out>", None),
        ('"text"', None),
        ("1 + 2i", None),
        ("(1,2)", None),
        ("", None),
        ("void", None),
    ],
)
def test_a_debuggers_answer_as_a_number(answer: str, expected: float | None) -> None:
    found = number(answer)
    assert found == expected
    assert type(found) is type(expected)


def test_what_is_not_a_number_is_not_less_and_not_greater() -> None:
    assert math.isnan(number("-nan(0x8000000000000)") or 0)
    for order in (["nan(0x1)", "1", "2", "3"], ["1", "2", "3", "-nan(0x1)"]):
        for name in ("min", "max", "sum", "mean"):
            assert not holds(f"{name}(x) > 0", x=order)
            assert not holds(f"{name}(x) <= 0", x=order)
    assert holds("sum(x) > 0", x=["inf", "1", "2", "3"])
    assert not holds("sum(x) > 0", x=["inf", "-inf", "2.5", "3"])  # nan


def test_large_integers_are_exact() -> None:
    assert holds("sum(x) == 9007199254740997", x=["9007199254740993", "1", "1", "2"])
    assert holds("max(x) > min(x)", x=["9007199254740993", *["9007199254740992"] * 3])


def test_an_answer_that_is_no_number_names_the_rank() -> None:
    with pytest.raises(BadInput, match=r"rank 2: 'v' is \{1, 2\}, not a number"):
        holds("sum(v) > 3", v=["1", "2", "{1, 2}", "3"])
    with pytest.raises(BadInput, match="rank 0: 'v' was not evaluated"):
        parse("sum(v) > 3", EVERY).value({"v": {1: "3"}})
    with pytest.raises(BadInput, match="divides by zero"):
        holds("1 / sum(x) > 3", x="0")
