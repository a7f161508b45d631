"""Which snapshots in memory stay, and whether there is room for another one. Pure.

A frozen snapshot holds what the ranks, or the snapshots after it, have changed since; so its size
is known only when the next one is taken (`KeptInfo.changed`), and must be estimated until then. A
copied one holds at once everything that differs from the one before. When one is given up, another
one may still need its pages: unless it is known how many it held alone, the other one counts as
needing all of them. So the figures here may be too large, but not too small.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

from crdebug.timeline.thinning import Dated, thin

MOST = 24  # snapshots
PART = 0.25  # of the memory that is free without them, for all of them together
_TIGHT = 0.5  # of that
_REMEMBERED = 3  # the changes of this many serve to estimate those of the next one


@dataclass(slots=True)
class Held:
    """A snapshot. at: seconds of run before it.  whole: all that it can come to hold, in bytes.
    bytes: what it holds and none before does; for a frozen one, what had changed when the next one
    was taken. copied: it is no frozen one.  stays: nothing replaces it."""

    name: str
    at: float
    whole: int
    bytes: int = 0
    copied: bool = False
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do before another snapshot is taken. drop: those that go, by name.  short: some of
    them because there is too little memory.  fits: is there room then?  tight: is it worth while to
    find out exactly what they hold? bound: what all of them may hold, in bytes; next: what that
    one, and what is yet to change, may come to."""

    drop: tuple[str, ...]
    short: bool
    fits: bool
    tight: bool
    bound: int
    next: int


class Holdings:
    """The snapshots of a job, in the order in which they were taken."""

    def __init__(self) -> None:
        self._held: list[Held] = []
        self._changes: deque[int] = deque(maxlen=_REMEMBERED)
        self._copies = False  # were the last ones copied?

    @property
    def bytes(self) -> int:
        """Their size in bytes, as far as it is known."""
        return sum(each.bytes for each in self._held)

    def __contains__(self, name: str) -> bool:
        return any(each.name == name for each in self._held)

    def names(self) -> list[str]:
        return [each.name for each in self._held]

    def taken(
        self, name: str, at: float, whole: int, changed: int, copied: bool, stays: bool = False
    ) -> None:
        """There is another one. changed: what it shares with none before it, in bytes."""
        if copied:
            if self._held and not self._held[-1].copied:
                self._held[-1].bytes = self._held[-1].whole
            self._held.append(Held(name, at, whole, changed, copied, stays))
        else:
            if self._held:
                self._held[-1].bytes = changed
                self._changes.append(changed)
            self._held.append(Held(name, at, whole, stays=stays))
        self._copies = copied

    def forget(self, name: str, alone: int = 0) -> None:
        """alone: bytes that it, a frozen one, is known to hold alone."""
        at = self.names().index(name)
        gone = self._held.pop(at)
        heir = at if gone.copied else at - 1
        if 0 <= heir < len(self._held):
            other = self._held[heir]
            kept = gone.bytes - (0 if gone.copied else alone)
            other.bytes = min(max(other.bytes + kept, 0), max(other.whole, gone.whole))

    def look(self, alone: Mapping[str, int]) -> None:
        """What each of them holds alone has been looked up, in bytes: of the first one that is all
        that it holds."""
        if self._held and not self._held[0].copied:
            first = self._held[0]
            first.bytes = alone.get(first.name, first.bytes)
            if len(self._held) == 1:
                self._changes.append(first.bytes)

    def plan(self, now: float, whole: int, free: int) -> Plan:
        """now: seconds of run.  whole: the ranks' memory; free: that of the machine; in bytes."""
        left = deepcopy(self)
        bound = int(PART * (free + self.bytes))
        drops = [each.name for each in thin(left._apart(now), now, MOST - 1)]
        for name in drops:
            left.forget(name)
        short = False
        while left._passing() and left.bytes + left._expected(whole) > bound:
            worst = [each.name for each in thin(left._apart(now), now, len(left._passing()) - 1)]
            for name in worst or left._passing()[:1]:  # of one that lies ahead, thin says nothing
                left.forget(name)
                drops.append(name)
            short = True
        tight = self.bytes + self._expected(whole) > _TIGHT * bound
        expected = left._expected(whole)
        fits = left.bytes + expected <= bound
        return Plan(tuple(drops), short, fits, tight, bound, expected)

    def _passing(self) -> list[str]:
        return [each.name for each in self._held if not each.stays]

    def _apart(self, now: float) -> list[Dated]:
        """As checkpoints are thinned, each of them counts one; with the one that is to come."""
        held = [Dated(each.name, each.at, 1, not each.stays) for each in self._held]
        return [*held, Dated("", now, 0, False)]

    def _expected(self, whole: int) -> int:
        """What the next one may add until another one is taken, and the last one until now."""
        if self._copies:
            return whole
        change = min(max(self._changes, default=whole), whole)
        return 2 * change - min(self._held[-1].bytes, change) if self._held else change
