"""The clock of a rank on another host, as it was when crdebug last heard of it.

What crdebug sets takes effect there in the order of its messages, and here at once. Each write has
a number; whatever tells how the clock is says which of them it knows of, and later ones count on
top. What was seen earlier may be heard later, and does not count then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

from crdebug.base.errors import NotAvailable
from crdebug.job import clocks
from crdebug.job.clocks import SetsClock
from crdebug.job.record_here import Is, RankSeen
from crdebug.native.recorder.clock import Clock, Request

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class ClockLook:
    """A look at clocks, on their host. number: of all looks there, in their order.
    written: the last write that was done before."""

    number: int = 0
    written: int = 0


@dataclass(frozen=True, slots=True)
class ClockWrite:
    """To do on the rank's host: these bytes at this offset of its clock; with `look_at`, a place
    and its size, see SetsClock.look_at instead. number: of all, in their order."""

    number: int
    rank: int
    offset: int = 0
    data: bytes = b""
    look_at: tuple[int, int] | None = None


class FarClock(SetsClock):
    """See clocks.ClockHandle. seen: the rank, then.  send: has a write done."""

    def __init__(
        self,
        rank: int,
        seen: RankSeen,
        send: Callable[[ClockWrite], None] = lambda write: None,
    ) -> None:
        self.rank = rank
        self.seen = seen
        self._send = send
        self._pending: list[ClockWrite] = []
        self._look = 0  # the number of the last one

    def was_seen(self, seen: RankSeen, look: ClockLook) -> None:
        """It was so at this look."""
        if look.number < self._look:
            return
        self._look = look.number
        self._pending = [each for each in self._pending if each.number > look.written]
        self.seen = seen
        for each in self._pending:
            self._apply(each)

    def has_another_agent(self) -> None:
        """That one knows of no writes and looks, and nobody knows which writes took effect."""
        self._pending.clear()
        self._look = 0

    def stands(self, clock: bytes, look: ClockLook) -> None:
        """Its debugger has stopped it, and that was its clock."""
        self.was_seen(replace(self.seen, status=Is.THERE, clock=clock), look)

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
    def address(self) -> int:
        return self.seen.address

    @property
    def hold(self) -> int:
        return self.seen.hold

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

    @property
    def reads_input(self) -> bool:
        return self.seen.reads_input

    def _write(self, offset: int, data: bytes) -> None:
        self.read()
        self._do(ClockWrite(next(_numbers), self.rank, offset, data))

    def look_at(self, address: int, size: int) -> None:
        self.read()
        self._do(ClockWrite(next(_numbers), self.rank, look_at=(address, size)))

    def _do(self, write: ClockWrite) -> None:
        self._pending.append(write)
        self._apply(write)
        self._send(write)

    def _apply(self, write: ClockWrite) -> None:
        end = write.offset + len(write.data)
        if len(self.seen.clock) >= end:
            known = self.seen.clock
            self.seen = replace(self.seen, clock=known[: write.offset] + write.data + known[end:])
