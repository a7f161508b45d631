"""Several expressions on many ranks as one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crdebug.base.answers import Answers, classes
from crdebug.base.ranks import RankSet
from crdebug.base.summary import Extreme, deviating, summarise
from crdebug.ui.answers import errors
from crdebug.ui.tables import table

MANY = 20  # up to so many different lines are shown

Columns = Sequence[tuple[str, Answers[str]]]


def value_table(columns: Columns, width: int = 0, *, each: bool = False) -> Iterator[str]:
    """A line for ranks with equal values, by rank; the numbers' range and mean; then the errors.

    each: a line for every rank instead.
    """
    everybody = RankSet.of(rank for _, answers in columns for rank in answers.values)
    odd = [deviating(answers) for _, answers in columns]
    lines = [
        (rank, tuple(_cell(a, rank, unlike) for (_, a), unlike in zip(columns, odd, strict=True)))
        for rank in everybody
    ]
    merged = [(RankSet.of([r]), cells) for r, cells in lines] if each else list(classes(lines))
    merged.sort(key=lambda line: line[0].first)
    shown = merged
    if not each and len(merged) > MANY:
        shown = [line for line in merged if any(line[0].first in unlike for unlike in odd)][:MANY]
    rows = [(f"{ranks}", *cells) for ranks, cells in shown]
    rows += _summary(columns)
    yield table(("ranks", *(expression for expression, _ in columns)), rows, width)
    if len(shown) < len(merged):
        yield f"{len(merged) - len(shown)} more different lines (--each shows all)"
    for expression, answers in columns:
        yield from (f"{expression}: {line}" for line in errors(answers))


def _cell(answers: Answers[str], rank: int, unlike: RankSet) -> str:
    return answers.values.get(rank, "-") + (" *" if rank in unlike else "")


def _summary(columns: Columns) -> Iterator[tuple[str, ...]]:
    found = [summarise(answers.values) for _, answers in columns]
    if not any(each is not None and each.different > 1 for each in found):
        return
    yield "min", *(_extreme(each.least) if each else "" for each in found)
    yield "max", *(_extreme(each.greatest) if each else "" for each in found)
    yield "mean", *(f"{each.mean:g}" if each else "" for each in found)


def _extreme(extreme: Extreme) -> str:
    return f"{extreme.text} @{extreme.ranks}"
