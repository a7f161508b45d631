"""Summarise many different answers: their range, and the outliers. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from crdebug.base.answers import Answers, classes
from crdebug.base.gdb_values import Number, number
from crdebug.base.ranks import RankSet

# A modified z-score above this makes a value an outlier, as Iglewicz and Hoaglin recommend (How to
# Detect and Handle Outliers, ASQC 1993).
_FAR = 3.5
_LONGEST = 300  # characters; digits beyond are more than a double can hold
_SIGMA = 0.6745  # the median absolute deviation of a normal distribution, in standard deviations


@dataclass(frozen=True, slots=True)
class Extreme:
    """The least or the greatest value, as the debugger printed it, and the ranks that have it."""

    text: str
    ranks: RankSet


@dataclass(frozen=True, slots=True)
class Summary:
    """Numbers of several ranks.

    ranks: those with a finite number.
    different: the number of distinct numbers.
    mean: of the ranks' finite numbers.
    apart: ``nan``, ``inf`` and ``-inf``, and the ranks that have them.
    """

    ranks: RankSet
    different: int
    least: Extreme
    greatest: Extreme
    mean: float
    apart: tuple[tuple[RankSet, str], ...]


def plain(text: str) -> Number | None:
    """An answer as a number; None if it is not one, or is a pointer, whose mean would say
    nothing."""
    if text.lstrip().startswith("(") or len(text) > _LONGEST:
        return None
    return number(text)


def summarise(values: Mapping[int, str]) -> Summary | None:
    """Summarise the numbers among these values (by rank); None if none is finite."""
    finite: dict[int, Number] = {}
    odd: list[tuple[int, str]] = []
    for rank, text in values.items():
        found = plain(text)
        if found is None:
            continue
        if math.isfinite(found):
            finite[rank] = found
        else:
            odd.append((rank, f"{found:g}"))
    if not finite:
        return None
    return Summary(
        ranks=RankSet.of(finite),
        different=len(set(finite.values())),
        least=_extreme(values, finite, min(finite.values())),
        greatest=_extreme(values, finite, max(finite.values())),
        mean=_mean(finite),
        apart=classes(odd),
    )


def _extreme(values: Mapping[int, str], finite: Mapping[int, Number], value: Number) -> Extreme:
    ranks = RankSet.of(rank for rank, each in finite.items() if each == value)
    return Extreme(values[ranks.first], ranks)


def _mean(finite: Mapping[int, Number]) -> float:
    # the sum may be larger than the largest double, the mean is not
    _, shift = math.frexp(max(map(abs, finite.values())))
    mean = math.fsum(math.ldexp(value, -shift) for value in finite.values()) / len(finite)
    return math.ldexp(mean, shift)


def deviating(answers: Answers[str]) -> RankSet:
    """The ranks whose answer is unlike the others'.

    If more than half of the ranks agree, all others. If not, and most answers are numbers, those
    that are far from the median (Iglewicz and Hoaglin 1993), nan or infinite. Empty if there is no
    majority to differ from.
    """
    merged = answers.merged()
    if len(merged) < 2:
        return RankSet()
    most = merged[0][0]
    everybody = RankSet.of(answers.values)
    if 2 * len(most) > len(everybody):
        return everybody - most
    numbers = {rank: plain(text) for rank, text in answers.values.items()}
    finite = {r: float(v) for r, v in numbers.items() if v is not None and math.isfinite(v)}
    if 2 * len(finite) <= len(everybody):
        return RankSet()
    middle = median(finite.values())
    spread = median(abs(value - middle) for value in finite.values())
    near = RankSet.of(r for r, v in finite.items() if _SIGMA * abs(v - middle) <= _FAR * spread)
    return everybody - near if 2 * len(near) > len(everybody) else RankSet()
