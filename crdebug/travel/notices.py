"""What the user should know of the record without asking."""

from __future__ import annotations

from collections.abc import Callable

from crdebug.base.events import Event, JobSays
from crdebug.base.ranks import RankSet
from crdebug.native.recorder.clock import Refused as Reason
from crdebug.travel.recorded_job import RecordedJob


class Notices:
    """tell: gets them, once each."""

    def __init__(self, recorded: RecordedJob, tell: Callable[[Event], None]) -> None:
        self._recorded = recorded
        self._tell = tell
        self._unrecorded: dict[int, Reason] = {}  # as the user was told

    def of_the_unrecorded(self) -> None:
        """Report ranks whose record has ended, now: users would only notice when they go back."""
        before, self._unrecorded = self._unrecorded, self._recorded.unrecorded()
        new = [rank for rank in self._unrecorded if rank not in before]
        for why in dict.fromkeys(self._unrecorded[rank] for rank in new):
            ranks = RankSet.of(rank for rank in new if self._unrecorded[rank] is why)
            tails = self._recorded.tails()
            tick = min(tails[rank] for rank in ranks).tick
            self._tell(
                JobSays(
                    f"{ranks.words}: MPI calls are not recorded any more since tick {tick}: "
                    f"{why.sentence}; there is a way back only to what was recorded before"
                )
            )

    def of_open_epochs(self) -> None:
        """Warn, before a checkpoint, of ranks inside an epoch of one-sided communication: no record
        has the accesses that are on their way, and nobody can say whether they come again as they
        came (Besta and Hoefler 2014, the rules "Gsync" and "Locks")."""
        if ranks := self._recorded.in_epochs:
            self._tell(
                JobSays(
                    f"{ranks.words}: an epoch of one-sided communication is open: accesses may be "
                    "on their way, and what is repeated from this checkpoint may differ (but not "
                    "after MPI_Win_fence, flush, unlock, complete, wait)"
                )
            )
