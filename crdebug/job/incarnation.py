"""A job from one restart to the next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from crdebug.base.errors import NotAvailable, Refused
from crdebug.base.ranks import RankSet
from crdebug.job.directory import JobDirectory, JobRecord, is_alive
from crdebug.job.holds import Hold, find_hold
from crdebug.job.starter_events import starter_events
from crdebug.node import proc


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The job's files, its processes, and the holds on its ranks.

    holds: of the ranks that have not ended; none before they were looked up.
    """

    directory: JobDirectory
    record: JobRecord
    holds: tuple[Hold, ...] = ()

    @property
    def run(self) -> Path:
        """This incarnation's own directory."""
        return self.directory.run(self.record.incarnation)

    @property
    def ranks(self) -> RankSet:
        """The ranks that have not ended."""
        return RankSet.of(hold.rank for hold in self.holds)

    @property
    def ended(self) -> RankSet:
        """The ranks that have ended."""
        return RankSet.span(starter_events(self.run / "events").ranks or 0) - self.ranks

    @property
    def alive(self) -> bool:
        return is_alive(self.record)

    def with_holds_now(self) -> Incarnation:
        """The same, with holds looked up again: a process that became another program (execve(2))
        has its shim elsewhere. Raises Refused if such a program has not begun yet."""
        found = [(hold.rank, self.hold_now(hold)) for hold in self.holds]
        missing = RankSet.of(rank for rank, hold in found if hold is None)
        if missing:
            raise Refused(
                "it has become another program, which has not begun yet",
                ranks=missing,
                hint="let it run on, to its main or further",
            )
        return replace(self, holds=tuple(hold for _, hold in found if hold is not None))

    def hold_now(self, hold: Hold) -> Hold | None:
        """The same for one rank; None if the program has not begun yet."""
        if not proc.is_alive(hold.pid) or not hold.is_elsewhere():
            return hold
        try:
            entry = replace(hold.entry, executable=proc.executable(hold.pid))
            return find_hold(entry, self.record.shim, adopted=self.record.adopted)
        except NotAvailable:
            return None
        except ProcessLookupError:  # it is ending, as others find out
            return hold
