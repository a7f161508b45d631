"""The clock of a rank on another host, as it was when crdebug last asked for it."""

from __future__ import annotations

from dataclasses import dataclass

from crdebug.base.errors import NotAvailable
from crdebug.job import clocks
from crdebug.job.record_here import Is, RankSeen
from crdebug.native.recorder.clock import Clock, Request


@dataclass(slots=True)
class FarClock:
    """See clocks.ClockView. seen: the rank, then."""

    rank: int
    seen: RankSeen

    def read(self) -> Clock:
        match self.seen.status:
            case Is.THERE:
                return Clock.parse(self.seen.clock)
            case Is.ANOTHER:
                raise clocks.another_program(self.rank)
            case Is.UNREADABLE:
                raise NotAvailable(self.seen.problem)
            case _:
                raise clocks.gone(self.rank)

    def requests(self) -> tuple[Request, ...]:
        self.read()
        return clocks.in_order(self.seen.requests)

    @property
    def is_zombie(self) -> bool:
        return self.seen.zombie

    @property
    def stopped_by(self) -> str:
        return self.seen.stopped_by

    @property
    def sleeps(self) -> bool:
        return self.seen.sleeps

    def worked(self) -> int:
        return self.seen.worked
