"""Ranges of addresses, and sets of them."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Addresses from start to, not including, end."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start:x}-{self.end:x}"


def union(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same addresses as sorted spans that neither overlap nor touch."""
    merged: list[Span] = []
    for span in sorted(span for span in spans if span.start < span.end):
        if merged and span.start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return tuple(merged)


def outside(span: Span, excluded: Sequence[Span]) -> Iterator[Span]:
    """The parts of a span that are not excluded; `excluded` is a result of `union`."""
    start = span.start
    first = bisect.bisect_right(excluded, span.start, key=lambda hole: hole.end)
    for hole in itertools.islice(excluded, first, None):
        if hole.start >= span.end:
            break
        if start < hole.start:
            yield Span(start, hole.start)
        start = max(start, hole.end)
    if start < span.end:
        yield Span(start, span.end)
