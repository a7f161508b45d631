"""Plots and distributed arrays as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from crdebug.base.gdb_values import Number
from crdebug.charts.images import Image
from crdebug.charts.plots import Plot

_WIDTH, _HEIGHT = 80, 20  # without a terminal; no chart is higher than that
_LABELS = 10  # characters from one label below a chart to the next
_SCALE = 20  # characters next to the lines of a chart
_LETTERS, _POINT, _EMPTY = "abcdefgh", "o", "\u2800 "
_SHADES = ".:-=+*#%@"  # from the least value to the greatest
_NAN, _INF, _NOTHING = "?", "!", " "
_ASPECT = 2  # how much higher than wide a character is


def plotted(shown: Plot, width: int = 0) -> Iterator[str]:
    """A chart. width: of the terminal, 0 for none."""
    from plotille import Figure

    chart = Figure()
    chart.with_colors = False
    chart.origin = False
    chart.width, chart.height = max((width or _WIDTH) - _SCALE, 10), _HEIGHT
    chart.register_label_formatter(float, _label)
    chart.register_label_formatter(int, _label)
    named = len(shown.lines) > 1
    if not shown.joined and all(isinstance(x, int) for line in shown.lines for x in line.x):
        first, last = _ends(shown)
        room = max((chart.width - 1) // _LABELS, 1)
        between = -(-max(last - first, 1) // room)  # ranks from label to label
        labels = -(-max(last - first, 1) // between)
        chart.width = labels * _LABELS + 1  # the last rank is a column of its own
        chart.set_x_limits(min_=first, max_=first + between * chart.width / _LABELS)
    for line, letter in zip(shown.lines, _LETTERS, strict=False):
        joined = "linear" if shown.joined and not named else None
        marker = letter if named else (None if shown.joined else _POINT)
        if line.x:
            chart.plot(line.x, line.y, interp=joined, marker=marker, label=line.name or None)
    yield f"{shown.y} (Y) over {shown.x} (X)"
    yield from (line.rstrip().rstrip(_EMPTY) for line in chart.show().split("\n"))
    if named:
        names = (f"{m} {each.name}" for each, m in zip(shown.lines, _LETTERS, strict=False))
        yield ", ".join(names)
    if shown.apart:
        yield f"not shown: {shown.apart} points that are nan or infinite"
    for ranks, text in shown.errors:
        yield f"[{ranks}] error: {text}"


def _ends(shown: Plot) -> tuple[int, int]:
    """The first and the last rank of a plot over ranks; 0 and 0 if nothing could be drawn."""
    ranks = [int(x) for line in shown.lines for x in line.x]
    return min(ranks, default=0), max(ranks, default=0)


def _label(value: Number, chars: int, delta: Number, left: bool = False) -> str:
    """A number at an axis; plotille pads its own with zeros."""
    return f"{value:.{max(chars - 6, 2)}g}".ljust(chars) if left else f"{value:.4g}".rjust(chars)


def pictured(shown: Image, width: int = 0) -> Iterator[str]:
    """A distributed array: one or two characters per element, and lines between ranks.

    Without enough room, one character stands for several elements and shows the one furthest from
    the mean of all, so that outliers stay visible.
    """
    cells = shown.cells()
    finite = [v for row in cells for v in row if v is not None and math.isfinite(v)]
    least, greatest = min(finite, default=0), max(finite, default=0)
    middle = math.fsum(v / len(finite) for v in finite) if finite else 0.0
    seams = len(shown.columns) - 2
    room = max((width or _WIDTH) - seams, len(shown.columns) - 1)
    step = 1
    while sum(len(_steps(*pair, step)) for pair in pairwise(shown.columns)) > room:
        step += 1
    wide = _ASPECT if step == 1 and shown.width * _ASPECT <= room else 1
    down = step if wide == _ASPECT else step * _ASPECT
    down = min(down, min(b - a for a, b in pairwise(shown.rows)))
    for top, bottom in pairwise(shown.rows):
        for row in _steps(top, bottom, down):
            texts = []
            for left, right in pairwise(shown.columns):
                here = (
                    _odd((cells[r][c] for r in row for c in column), middle)
                    for column in _steps(left, right, step)
                )
                texts.append("".join(_shade(value, least, greatest) * wide for value in here))
            yield "│".join(texts)
        if bottom != shown.height:
            bars = (
                "─" * (wide * len(_steps(left, right, step)))
                for left, right in pairwise(shown.columns)
            )
            yield "┼".join(bars)
    yield f"'{_SHADES[0]}' is {least:g}, '{_SHADES[-1]}' is {greatest:g}" + _odd_ones(cells)
    if step * down > 1:
        yield f"a character stands for {down}x{step} elements"
    for ranks, text in shown.errors:
        yield f"[{ranks}] error: {text}"


def _steps(begin: int, end: int, step: int) -> list[range]:
    return [range(at, min(at + step, end)) for at in range(begin, end, step)]


def _odd(values: Iterable[Number | None], middle: float) -> Number | None:
    """The value to show for all of them: one that is not finite, else the one furthest from the
    middle."""
    there = [value for value in values if value is not None]
    if not there:
        return None
    return max(there, key=lambda v: math.inf if not math.isfinite(v) else abs(v - middle))


def _shade(value: Number | None, least: Number, greatest: Number) -> str:
    if value is None:
        return _NOTHING
    if not math.isfinite(value):
        return _NAN if math.isnan(value) else _INF
    if greatest == least:
        return _SHADES[len(_SHADES) // 2]
    # halved, as the difference of two doubles may overflow
    part = (value / 2 - least / 2) / (greatest / 2 - least / 2)
    return _SHADES[min(int(part * len(_SHADES)), len(_SHADES) - 1)]


def _odd_ones(cells: Sequence[Sequence[Number | None]]) -> str:
    there = [v for row in cells for v in row if v is not None and not math.isfinite(v)]
    nans = sum(map(math.isnan, there))
    texts = [f", '{_NAN}' is nan ({nans})"] if nans else []
    texts += [f", '{_INF}' is infinite ({len(there) - nans})"] if len(there) > nans else []
    return "".join(texts)
