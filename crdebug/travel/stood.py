"""For how long ranks have been where they are, of the time in which the job ran."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import NamedTuple

from crdebug.base.errors import CrdebugError, NotAvailable
from crdebug.base.instant import Instant
from crdebug.job.clocks import ClockView
from crdebug.node import proc

_LONG, _WORK = 1.0, 0.05  # seconds: of run, and of the rank's own work in it


class _Place(NamedTuple):
    """now: the rank's clock. since: seconds of run, when it was seen there first. worked: its
    processor time then, in clock ticks."""

    now: Instant
    since: float
    worked: int


class Stood:
    """Looks at the clocks now and then while the job runs."""

    def __init__(self) -> None:
        self._places: dict[int, _Place] = {}
        self._ran = 0.0  # seconds of run, up to the present one
        self._began: float | None = None

    def goes_on(self) -> None:
        """The job begins to run."""
        self._began = time.monotonic()

    def stands(self, clocks: Iterable[ClockView]) -> None:
        """It has stopped."""
        with contextlib.suppress(CrdebugError):  # of a rank that has become another program
            self.look(clocks)
        self._ran, self._began = self._so_far, None

    @property
    def _so_far(self) -> float:
        return self._ran + (0.0 if self._began is None else time.monotonic() - self._began)

    def look(self, clocks: Iterable[ClockView]) -> None:
        """To be called a few times a second."""
        for clock in clocks:
            with contextlib.suppress(OSError, NotAvailable):
                now = clock.read().now
                known = self._places.get(clock.rank)
                if known is None or known.now != now:
                    worked = clock.worked()
                    self._places[clock.rank] = _Place(now, self._so_far, worked)

    def seconds(self, clocks: Iterable[ClockView]) -> dict[int, float]:
        """By rank, for how long it has been where it is."""
        return {rank: self._so_far - place.since for rank, place in self._same(clocks).items()}

    @property
    def quiet(self) -> tuple[float, float]:
        """For how long no rank has come further, in seconds of run, and since when, as it was seen
        by the last `look`."""
        last = max((place.since for place in self._places.values()), default=self._so_far)
        return self._so_far - last, last

    def still(self, clocks: Iterable[ClockView]) -> frozenset[int]:
        """The ranks that have been where they are for long, and have worked there: an MPI that
        waits looks again and again, so they have had time to go on."""
        least = _WORK * proc.ticks_a_second()
        found = {clock.rank: clock for clock in clocks}
        return frozenset(
            rank
            for rank, place in self._same(found.values()).items()
            if self._so_far - place.since >= _LONG and found[rank].worked() - place.worked >= least
        )

    def _same(self, clocks: Iterable[ClockView]) -> dict[int, _Place]:
        """The ranks that are where they were seen."""
        found = {}
        for clock in clocks:
            with contextlib.suppress(OSError, NotAvailable):
                place = self._places.get(clock.rank)
                if place is not None and clock.read().now == place.now:
                    found[clock.rank] = place
        return found
