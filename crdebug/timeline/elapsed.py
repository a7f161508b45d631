"""How long a job had run when it was at a place of its history. Pure."""

from __future__ import annotations

from bisect import bisect_right

from crdebug.base.instant import Cut

_CLOSE = 1.0  # seconds; samples need not be closer to each other


class Elapsed:
    """Seconds of run by place. Time in which the job stood does not count, nor does time in which
    it repeated its past."""

    def __init__(self) -> None:
        self._places = [0]  # sums of the ranks' clocks, ascending
        self._seconds = [0.0]

    def at(self, cut: Cut) -> float:
        """Between the places that are known, in proportion to the MPI calls; after them, as for the
        last one."""
        place = sum(cut)
        after = bisect_right(self._places, place)
        if after == len(self._places):
            return self._seconds[-1]
        first, last = self._places[after - 1], self._places[after]
        part = (place - first) / (last - first)
        return self._seconds[after - 1] * (1 - part) + self._seconds[after] * part

    def ran(self, start: Cut, end: Cut, seconds: float) -> None:
        """The job ran from one cut to another one, for so long."""
        place, reached = sum(end), self.at(start) + seconds
        if place < self._places[-1]:
            return  # it has been there before
        if place == self._places[-1]:
            self._seconds[-1] = max(self._seconds[-1], reached)
            return
        reached = max(reached, self._seconds[-1])
        if len(self._places) > 1 and self._seconds[-1] - self._seconds[-2] < _CLOSE:
            del self._places[-1], self._seconds[-1]
        self._places.append(place)
        self._seconds.append(reached)
