"""Where history begins and ends in a job that has no checkpoints: with a snapshot at the end of
MPI_Init, and where all ranks are about to call MPI_Finalize.

What MPI_Init does (threads, descriptors, children, what it tells the launcher) no snapshot can take
back, so none from before it is of use. The ranks run through the user's breakpoints as always; each
is held just before it returns from MPI_Init, until all are there and there is a snapshot. They hold
inside the MPI library, where they still make progress (native/recorder/pmpi.c).

MPI_Finalize does the same the other way, and then the ranks end: no snapshot leads back from there.
So they wait in front of it until all are there, and the user decides. (A rank that is about to end
in another way is stopped anyhow, see gdbscripts/endings.py.)
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from crdebug.base.errors import NotAvailable
from crdebug.base.instant import Instant
from crdebug.job.clocks import ClockHandle
from crdebug.native.recorder.clock import Last
from crdebug.travel.recorded_job import RecordedJob

_LOOK = 0.02  # seconds
PATIENCE = 20.0  # seconds for which ranks wait for those that have not called MPI_Init
_END_OF_INIT = Instant.within(1)


class Ends:
    """Holds the ranks of a running job where its history begins, and where it ends.

    awaited: it has not begun, and a run is under way that can be stopped for it.  last: the run is
    to be stopped where it ends.
    """

    def __init__(self, recorded: RecordedJob) -> None:
        self.awaited = self.last = False
        self._recorded = recorded
        self._first: float | None = None  # when a rank was seen to be there

    @property
    def lies_ahead(self) -> bool:
        """Has no rank returned from MPI_Init yet? False if that cannot be known."""
        try:
            return all(clock.read().now <= _END_OF_INIT for clock in self._clocks())
        except (ProcessLookupError, NotAvailable):
            return False

    @property
    def given_up(self) -> bool:
        """Have ranks waited long for others, which do not come?"""
        return self._first is not None and time.monotonic() - self._first > PATIENCE

    def hold(self) -> None:
        """Before the ranks run: none is to leave MPI_Init, or to call MPI_Finalize. If all of them
        are about to, they go on."""
        go = not self.last or self.all_finalize()
        for clock in self._clocks():
            with contextlib.suppress(ProcessLookupError, NotAvailable):
                state = clock.read()
                if self.awaited and state.now <= _END_OF_INIT:
                    clock.set_stop(_END_OF_INIT)
                if go and state.last is not Last.GOES:
                    clock.wait_before_finalize(Last.GOES)
                elif go:
                    continue
                elif state.last is Last.IS_THERE and state.held:
                    clock.set_stop(state.now)
                else:
                    clock.wait_before_finalize(Last.WAITS)

    def all_there(self) -> bool:
        """Does every rank hold there?"""
        with contextlib.suppress(ProcessLookupError, NotAvailable):
            states = [clock.read() for clock in self._clocks()]
            there = [state.now == _END_OF_INIT and bool(state.held) for state in states]
            if any(there) and self._first is None:
                self._first = time.monotonic()
            return all(there)
        return False

    def all_finalize(self) -> bool:
        """Is every rank about to call MPI_Finalize?"""
        with contextlib.suppress(ProcessLookupError, NotAvailable):
            states = [clock.read() for clock in self._clocks()]
            return all(state.last is Last.IS_THERE and bool(state.held) for state in states)
        return False

    async def until_there(self, seconds: float) -> None:
        """Until a stop is due: after some seconds; or all ranks are where history ends, or begins,
        or have waited long for that."""
        end = time.monotonic() + seconds
        async with self._recorded.job.watched():
            while not (self.last and self.all_finalize()):
                if (self.all_there() or self.given_up) if self.awaited else time.monotonic() > end:
                    return
                await asyncio.sleep(_LOOK)

    def _clocks(self) -> tuple[ClockHandle, ...]:
        return self._recorded.clocks()
