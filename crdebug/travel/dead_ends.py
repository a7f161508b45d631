"""Where ranks ended or crashed: they never come to their next MPI call."""

from __future__ import annotations

from crdebug.base.events import StopReason
from crdebug.base.instant import Cut, Instant
from crdebug.debugger.group import TargetGroup

_ENDS = (StopReason.EXITED, StopReason.KILLED, StopReason.ENDING)
DEADLY = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")


class DeadEnds:
    """The instants at which that happened, on the present branch of history."""

    def __init__(self) -> None:
        self._at: dict[int, Instant] = {}

    def note(self, group: TargetGroup, cut: Cut) -> None:
        """The user's own run has brought the ranks to these places."""
        for rank in group.ranks:
            stop, now = group[rank].last_stop, cut[rank]
            if stop is not None and (stop.reason in _ENDS or stop.detail in DEADLY):
                self._at[rank] = now
            elif self._at.get(rank, now) < now:
                del self._at[rank]  # it has survived

    def has(self, rank: int, now: Instant) -> bool:
        """Is this, outside MPI, where the rank ended or crashed?"""
        return now > 0 and not now.inside and self._at.get(rank) == now
