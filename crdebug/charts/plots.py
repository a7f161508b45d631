"""The charts of `plot`: lines of numbers. Pure but for `save_plot`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

from crdebug.base.answers import classes
from crdebug.base.errors import BadInput
from crdebug.base.gdb_values import Number
from crdebug.base.ranks import RankSet
from crdebug.charts.files import figure, save
from crdebug.debugger.arrays import Numbers

LINES = 8  # arrays that are drawn as lines of their own


@dataclass(frozen=True, slots=True)
class Line:
    """Points. name: whose they are; empty if they are all that is shown."""

    name: str
    x: tuple[Number, ...]
    y: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines with what is at the axes.

    joined: neighbours belong together, as in an array; else the points are of different ranks.
    apart: how many points are nan or infinite, and so not on any line.
    errors: the ranks that could not answer, and why.
    """

    x: str
    y: str
    lines: tuple[Line, ...]
    joined: bool
    apart: int = 0
    errors: tuple[tuple[RankSet, str], ...] = ()


def plot(
    expression: str,
    values: Mapping[int, Numbers],
    over: tuple[str, Mapping[int, Numbers]] | None = None,
    errors: tuple[tuple[RankSet, str], ...] = (),
) -> Plot:
    """The plot of an expression's values by rank.

    A number on each rank: a point for each, over the rank. An array on each: a line for each, over
    the index; equal ones as one line. More than LINES of them: their minimum, mean and maximum.
    over: another expression, and its values, to be used instead of rank or index.
    Raises BadInput where lengths do not fit.
    """
    if not values:
        raise BadInput(f"'{expression}' has no value to plot")
    scalar = {not each.shape for each in values.values()}
    if len(scalar) > 1:
        raise BadInput(f"'{expression}' is a number on some ranks, and an array on others")
    joined = not scalar.pop()
    along = _along(expression, values, over, joined)
    x = over[0] if over else ("index" if joined else "rank")
    if not joined:
        points = sorted((along[rank][0], values[rank].values[0]) for rank in values)
        lines = [Line("", tuple(p[0] for p in points), tuple(p[1] for p in points))]
    else:
        merged = classes((r, (tuple(along[r]), tuple(values[r].values))) for r in sorted(values))
        lines = [Line(f"[{ranks}]", *points) for ranks, points in merged]
        if len(lines) > LINES:
            lines = _bounds(expression, lines, [len(ranks) for ranks, _ in merged])
    drawn = tuple(map(_finite, lines))
    apart = sum(len(b.x) - len(a.x) for a, b in zip(drawn, lines, strict=True))
    return Plot(x, expression, drawn, joined, apart, errors)


def _along(
    expression: str,
    values: Mapping[int, Numbers],
    over: tuple[str, Mapping[int, Numbers]] | None,
    joined: bool,
) -> Mapping[int, Sequence[Number]]:
    if over is None:
        return {rank: range(len(v.values)) if joined else (rank,) for rank, v in values.items()}
    for rank, value in values.items():
        length = len(over[1][rank].values)
        if length != len(value.values):
            raise BadInput(
                f"'{expression}' has {len(value.values)} values and '{over[0]}' has {length}",
                ranks=RankSet.of([rank]),
            )
    return {rank: each.values for rank, each in over[1].items()}


def _bounds(expression: str, lines: Sequence[Line], weights: Sequence[int]) -> list[Line]:
    """The minimum, mean and maximum of many lines at each place."""
    x = lines[0].x
    if any(line.x != x for line in lines):
        hint = f"plot it on {LINES} ranks, or define a set of them"
        raise BadInput(f"'{expression}' has another length or place on each rank", hint=hint)
    columns = list(zip(*(line.y for line in lines), strict=True))
    total = sum(weights)
    mean = [sum(w * v / total for w, v in zip(weights, column, strict=True)) for column in columns]
    return [
        Line(
            "max",
            x,
            tuple(m if math.isnan(m) else max(c) for c, m in zip(columns, mean, strict=True)),
        ),
        Line("mean", x, tuple(mean)),
        Line(
            "min",
            x,
            tuple(m if math.isnan(m) else min(c) for c, m in zip(columns, mean, strict=True)),
        ),
    ]


def _finite(line: Line) -> Line:
    kept = [math.isfinite(x) and math.isfinite(y) for x, y in zip(line.x, line.y, strict=True)]
    return Line(line.name, tuple(compress(line.x, kept)), tuple(compress(line.y, kept)))


def save_plot(shown: Plot, file: str | Path) -> Path:
    """Write it as PNG or SVG, by the file's name. Raises NotAvailable, BadInput."""
    picture = figure(8.0, 5.0)
    axes = picture.add_subplot()
    style = "-" if shown.joined else "o"
    for line in shown.lines:
        axes.plot(line.x, line.y, style, label=line.name or None, linewidth=1, markersize=4)
    axes.set_xlabel(shown.x, parse_math=False)
    axes.set_ylabel(shown.y, parse_math=False)
    if any(line.name for line in shown.lines):
        axes.legend()
    if shown.apart:
        axes.set_title(f"{shown.apart} points are nan or infinite", fontsize="small")
    return save(picture, file)
