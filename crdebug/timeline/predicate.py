"""Conditions over several ranks, for `bisect` and `last`.

    sum(x) > 3      max(x) - min(x) < 1e-9      all(x == y)      any(p->n == 0)
    count(x < 0) == 2      rank 3: p != 0      ranks 0-3: mean(x) > 1 and not any(done)

An aggregate (sum, min, max, mean, count, all, any) contains an expression of the program's
language. Each rank's debugger evaluates it; here only its brackets and quotes are looked at. The
rest is ours: numbers, + - * / %, comparisons, and/or/not (or && || !).
`rank N:` before an expression without aggregates asks that rank; before one with, only these ranks
count.

    predicate   := [("rank" | "ranks") SET ":"] (or | EXPRESSION)
    or          := and (("or" | "||") and)*
    and         := not (("and" | "&&") not)*
    not         := ("not" | "!") not | comparison
    comparison  := sum [("==" | "!=" | "<=" | ">=" | "<" | ">") sum]
    sum         := product (("+" | "-") product)*
    product     := sign (("*" | "/" | "%") sign)*
    sign        := ("-" | "+") sign | number | AGGREGATE "(" EXPRESSION ")" | "(" or ")"
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from crdebug.base.errors import BadInput
from crdebug.base.gdb_values import Number, closing, not_a_number, number
from crdebug.base.ranks import RankSet

Answers = Mapping[str, Mapping[int, str]]  # expression → rank → what its debugger answered
_Value = Callable[[Answers], Number]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition that was read. expressions: what to ask the debuggers of `ranks`."""

    text: str
    ranks: RankSet
    expressions: tuple[str, ...]
    _value: _Value

    def value(self, answers: Answers) -> bool:
        """Whether it holds. Raises BadInput where an answer is missing, or is not a number."""
        return bool(self._value(answers))


def parse(text: str, every: RankSet) -> Predicate:
    """Read a predicate; every: the ranks that exist. Raises BadInput, which names the column."""
    ranks, start = every, 0
    prefix = re.match(r"\s*ranks?\s+([^:()]*):(?!:)", text)
    if prefix is not None:
        ranks, start = RankSet.parse(prefix[1], every), prefix.end()
    body = text[start:]
    if not body.strip():
        raise _error(text, len(text), "a condition is missing")
    if prefix is not None and _AGGREGATE.search(body) is None:
        _balanced(text, start, len(text))
        expression = body.strip()
        return Predicate(text, ranks, (expression,), _Aggregate("all", expression, ranks))
    reader = _Reader(text, start, ranks)
    value = reader.alternatives()
    reader.end()
    if not reader.expressions:
        hint = "write any(...), all(...) or 'rank 0: ...'"
        raise BadInput(f"'{text.strip()}' does not say of which ranks", hint=hint)
    return Predicate(text, ranks, tuple(dict.fromkeys(reader.expressions)), value)


_AGGREGATE = re.compile(r"(?<![\w.>:$])(sum|min|max|mean|count|all|any)\s*\(")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<sign>==|!=|<=|>=|&&|\|\||[-+*/%<>!()]))"
)
_SIGNS = {"&&": "and", "||": "or", "!": "not"}

_COMPARE: dict[str, Callable[[Number, Number], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


def _error(text: str, column: int, problem: str) -> BadInput:
    """column: from 0; the message counts from 1."""
    shown = f"\n  {text}\n  {' ' * column}^" if "\n" not in text else ""
    return BadInput(f"column {column + 1}: {problem}{shown}")


def _balanced(text: str, start: int, end: int) -> None:
    """Raises BadInput if brackets or quotes do not pair between two columns."""
    wrapped = f"({text[start:end]})"
    if closing(wrapped, 0) != len(wrapped) - 1:
        raise _error(text, start, "brackets or quotes that do not pair")


@dataclass(frozen=True, slots=True)
class _Aggregate:
    """One value from those of all ranks."""

    name: str
    expression: str
    ranks: RankSet

    def __call__(self, answers: Answers) -> Number:
        values = [self._of(rank, answers) for rank in self.ranks]
        match self.name:
            case "all":
                return all(values)
            case "any":
                return any(values)
            case "count":
                return sum(map(bool, values))
            case "sum":
                return math.fsum(values) if _has_float(values) else sum(values)
            case "mean":
                return math.fsum(values) / len(values)
        if any(value != value for value in values):  # Python's min and max depend on the order
            return math.nan
        return min(values) if self.name == "min" else max(values)

    def _of(self, rank: int, answers: Answers) -> Number:
        answer = answers.get(self.expression, {}).get(rank)
        if answer is None:
            raise BadInput(f"'{self.expression}' was not evaluated", ranks=RankSet.of([rank]))
        found = number(answer)
        if found is None:
            hint = "an aggregate needs a number, a pointer or a truth value of each rank"
            raise not_a_number(self.expression, answer, rank, hint)
        return found


def _has_float(values: Sequence[Number]) -> bool:
    # fsum refuses to add infinities of both signs, which is nan
    infinite = any(isinstance(value, float) and math.isinf(value) for value in values)
    return not infinite and any(isinstance(value, float) for value in values)


class _Reader:
    """Recursive descent over the text around the aggregates."""

    def __init__(self, text: str, start: int, ranks: RankSet) -> None:
        self._text, self._at, self._ranks = text, start, ranks
        self.expressions: list[str] = []

    def _peek(self) -> tuple[str, str, int]:
        """Kind, text and column of the next token, without taking it; kind "" at the end."""
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            rest = self._text[self._at :]
            return "", "", self._at + len(rest) - len(rest.lstrip())
        kind = match.lastgroup or ""
        return kind, _SIGNS.get(match[kind], match[kind]), match.start(kind)

    def _take(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return _SIGNS.get(match[match.lastgroup or 0], match[match.lastgroup or 0])

    def _next_is(self, *signs: str) -> bool:
        return self._peek()[1] in signs

    def end(self) -> None:
        _, word, column = self._peek()
        if column < len(self._text):
            what = word or self._text[column]
            raise _error(self._text, column, f"'{what}' is not expected here")

    def alternatives(self) -> _Value:
        value = self._all_of()
        while self._next_is("or"):
            self._take()
            value = _either(value, self._all_of())
        return value

    def _all_of(self) -> _Value:
        value = self._negation()
        while self._next_is("and"):
            self._take()
            value = _both(value, self._negation())
        return value

    def _negation(self) -> _Value:
        if self._next_is("not"):
            self._take()
            inner = self._negation()
            return lambda answers: not inner(answers)
        left = self._sum()
        if self._next_is(*_COMPARE):
            compare, right = _COMPARE[self._take()], self._sum()
            if self._next_is(*_COMPARE):
                column = self._peek()[2]
                raise _error(self._text, column, "comparisons do not chain; join them with 'and'")
            return lambda answers: compare(left(answers), right(answers))
        return left

    def _sum(self) -> _Value:
        value = self._product()
        while self._next_is("+", "-"):
            value = _arithmetic(self._take(), value, self._product())
        return value

    def _product(self) -> _Value:
        value = self._sign()
        while self._next_is("*", "/", "%"):
            value = _arithmetic(self._take(), value, self._sign())
        return value

    def _sign(self) -> _Value:
        kind, word, column = self._peek()
        if word in ("-", "+"):
            self._take()
            inner = self._sign()
            return (lambda answers: -inner(answers)) if word == "-" else inner
        if kind == "number":
            self._take()
            constant = float(word) if re.search(r"[.eE]", word) else int(word)
            return lambda _answers: constant
        if word == "(":
            self._take()
            value = self.alternatives()
            if not self._next_is(")"):
                raise _error(self._text, self._peek()[2], "')' is missing")
            self._take()
            return value
        match = _AGGREGATE.match(self._text, column)
        if match is not None:
            return self._aggregate(match)
        if kind == "word" and word != "not":
            problem = f"'{word}' is a program variable; wrap it: any({word} ...)"
            raise _error(self._text, column, problem)
        raise _error(self._text, column, "a number, an aggregate or '(' is expected here")

    def _aggregate(self, match: re.Match[str]) -> _Value:
        opening = match.end() - 1
        end = closing(self._text, opening)
        if end is None:
            raise _error(self._text, opening, "this '(' is not closed")
        expression = self._text[opening + 1 : end].strip()
        if not expression:
            raise _error(self._text, opening + 1, f"an expression is missing: {match[1]}(x)")
        self._at = end + 1
        self.expressions.append(expression)
        return _Aggregate(match[1], expression, self._ranks)


def _either(left: _Value, right: _Value) -> _Value:
    return lambda answers: bool(left(answers)) or bool(right(answers))


def _both(left: _Value, right: _Value) -> _Value:
    return lambda answers: bool(left(answers)) and bool(right(answers))


def _arithmetic(sign: str, left: _Value, right: _Value) -> _Value:
    apply = {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "/": operator.truediv,
        "%": operator.mod,
    }[sign]

    def value(answers: Answers) -> Number:
        try:
            found: Number = apply(left(answers), right(answers))
        except ZeroDivisionError:
            raise BadInput("the condition divides by zero") from None
        return found

    return value
