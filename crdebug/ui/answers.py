"""The answers of many ranks as lines."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TypeVar

from crdebug.base.answers import Answers, classes
from crdebug.base.errors import Ended
from crdebug.base.ranks import RankSet
from crdebug.base.summary import Summary, plain, summarise

T = TypeVar("T", bound=Hashable)

MANY = 8  # up to so many different values are listed one by one


def errors(answers: Answers[T]) -> Iterator[str]:
    """Errors in the debugger's own words, by ranks; and the ranks that have ended."""
    for ranks, text in answers.merged_errors():
        error = "" if isinstance(answers.errors[ranks.first], Ended) else "error: "
        yield f"[{ranks}] {error}{text}"


def values(answers: Answers[str], *, each: bool = False) -> Iterator[str]:
    """One line for equal values, the most frequent first; one line with the range for many numbers.
    Errors follow. each: a line for every rank instead."""
    if each:
        yield from (f"[{rank}] = {text}" for rank, text in sorted(answers.values.items()))
    else:
        yield from _merged(answers)
    yield from errors(answers)


def _merged(answers: Answers[str]) -> Iterator[str]:
    merged = answers.merged()
    if len(merged) <= MANY:
        yield from (f"[{ranks}] = {text}" for ranks, text in merged)
        return
    numbers = summarise(answers.values)
    if numbers is not None and numbers.different > MANY:
        yield from summary(numbers)
        rest = {rank: text for rank, text in answers.values.items() if plain(text) is None}
        merged = classes(rest.items())
    yield from (f"[{ranks}] = {text}" for ranks, text in merged[:MANY])
    left = merged[MANY:]
    if left:
        others = RankSet.of(rank for ranks, _ in left for rank in ranks)
        yield f"[{others}] {len(left)} other values (--each shows all)"


def summary(numbers: Summary) -> Iterator[str]:
    """The range of the numbers, and the ranks at its ends."""
    least, greatest = numbers.least, numbers.greatest
    yield (
        f"[{numbers.ranks}] {numbers.different} values, min {least.text} [{least.ranks}], "
        f"max {greatest.text} [{greatest.ranks}], mean {numbers.mean:g}"
    )
    yield from (f"[{ranks}] {word}" for ranks, word in numbers.apart)


def compared(answers: Answers[str], deviating: RankSet) -> Iterator[str]:
    """The outliers, then all values."""
    count = len(answers.values)
    different = len(answers.merged())
    if different == 1:
        yield "1 rank answered" if count == 1 else f"all {count} ranks agree"
    elif not deviating:
        yield f"{different} different values on {count} ranks, no outlier"
    else:
        is_odd = "is the odd one out" if len(deviating) == 1 else "are the odd ones out"
        yield f"{different} values on {count} ranks: [{deviating}] {is_odd}"
        if different > MANY:
            chosen = answers.among(deviating)
            yield from (f"  {line}" for line in values(Answers(chosen.values, {})))
            yield "of all:"
    yield from (f"  {line}" for line in values(answers))
