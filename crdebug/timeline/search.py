"""Finding the first moment at which something holds, with few looks.

A look is expensive: the job has to be taken there. So the search is a generator: it yields where to
look next, is sent what was seen, and returns what it found. The result is certain only if something
that holds once holds from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import Enum

# At a place: it holds, it does not hold, or it cannot be evaluated, which counts as not.
Seen = bool | None


class Outcome(Enum):
    FOUND = "found"
    AT_START = "it is true at the start already"
    NEVER = "it is false at the end"


@dataclass(frozen=True, slots=True)
class Found:
    """The end of a search.

    at: the first place where it holds, as far as was looked; None if it does not at the end.
    before: the last place before `at` where it did not hold; None at the start.
    probes: places that were looked at.  unknown: those of them where it could not be evaluated.
    """

    outcome: Outcome
    at: int | None
    before: int | None
    probes: int
    unknown: tuple[int, ...] = ()

    @property
    def note(self) -> str | None:
        """What the user should know about this result, apart from the place."""
        outcome = None if self.outcome is Outcome.FOUND else self.outcome.value
        return "; ".join(filter(None, (outcome, self.failures))) or None

    @property
    def failures(self) -> str | None:
        """How often it could not be evaluated, if it ever could not."""
        count = len(self.unknown)
        return f"it could not be evaluated at {count} of {self.probes} places" if count else None


def first_moment(
    coarse: Sequence[int], *finer: Callable[[int, int], Sequence[int]]
) -> Generator[int, Seen, Found]:
    """Search for the first place at which something holds, by bisection.

    coarse: places that are cheap to reach, ascending, the start and the end among them; the
    checkpoints.  finer: for each further level, the ascending places strictly between two; those
    that are not are left out.  Places are ticks of the focused rank, or any numbers.
    """
    if not coarse:
        raise ValueError("a search needs a start")
    unknown: list[int] = []
    seen: dict[int, bool] = {}

    def look(place: int) -> Generator[int, Seen, bool]:
        if place not in seen:
            answer = yield place
            if answer is None:
                unknown.append(place)
            seen[place] = bool(answer)
        return seen[place]

    def ended(outcome: Outcome, at: int | None, before: int | None) -> Found:
        return Found(outcome, at, before, len(seen), tuple(unknown))

    start, end = coarse[0], coarse[-1]
    if (yield from look(start)):
        return ended(Outcome.AT_START, start, None)
    if not (yield from look(end)):
        return ended(Outcome.NEVER, None, end)
    levels: list[Callable[[int, int], Sequence[int]]] = [lambda _low, _high: coarse, *finer]
    low, high = start, end
    for level in levels:
        places = level(low, high)
        # the places strictly between, found by bisection too: they may be millions
        first, last = _after(places, low), _after(places, high - 1)
        while first < last:
            middle = (first + last) // 2
            if (yield from look(places[middle])):
                high, last = places[middle], middle
            else:
                low, first = places[middle], middle + 1
    return ended(Outcome.FOUND, high, low)


def _after(places: Sequence[int], place: int) -> int:
    """Index of the first place that is greater."""
    low, high = 0, len(places)
    while low < high:
        middle = (low + high) // 2
        if places[middle] > place:
            high = middle
        else:
            low = middle + 1
    return low
