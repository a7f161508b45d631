"""The record of a long run: its oldest part is given up for new calls.

Each rank's log is a ring. When one of them gets half full, the record of all is made to begin at a
later checkpoint, one that leaves no more than a quarter; older automatic checkpoints are given up.
A checkpoint of the user's holds the record: everything after it stays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from crdebug.attached.job import AttendedJob
from crdebug.base.errors import CrdebugError, Refused
from crdebug.base.events import Event, JobSays
from crdebug.base.instant import Cut
from crdebug.job import beginning
from crdebug.timeline.kept import begins_at, keep
from crdebug.travel.restore_points import Base, is_before
from crdebug.travel.seek import Traveller

_FULL, _LEFT, _HELD = (
    0.5,
    0.25,
    0.75,
)  # parts of a ring: see above; and when the user hears that a checkpoint holds it


class Room:
    """In the logs of one job. tell: gets what the user should know of it."""

    def __init__(
        self, job: AttendedJob, traveller: Traveller, tell: Callable[[Event], None]
    ) -> None:
        self._job = job
        self._traveller = traveller
        self._tell = tell
        self._told: set[str] = set()

    def make(self) -> None:
        """Make room if there is too little; the job stands. A problem is reported, and hinders
        nothing."""
        try:
            self._make()
        except (CrdebugError, OSError) as error:
            self._say(str(error), f"nothing of the record of MPI calls was given up: {error}")

    def _make(self) -> None:
        beginning.finish(self._job.run_directory)
        full = self._fullness()
        if full < _FULL:
            return
        with contextlib.suppress(Refused):  # if memory is short, read as much as there is room for
            self._traveller.recorded.read()
        for base in self._wanted():
            recorded = self._traveller.recorded.so_far
            kept = keep(recorded.matching, recorded.logs, base.cut)
            if kept is not None:
                beginning.begin_at(self._job.run_directory, kept)
                self._forget(base)
                self._say(
                    "given up",
                    "the record of MPI calls is full: from now on its oldest part is given up, and "
                    "'when' says where the record begins (a checkpoint of yours keeps what comes "
                    "after it)",
                )
                return
        holding = self._holding()
        if full >= _HELD and holding:
            self._say(
                "held",
                f"the record of MPI calls is {full:.0%} full, and checkpoint {holding[0].name} "
                f"keeps what comes after it: it will end ('delete {holding[0].name}' gives up the "
                "oldest part instead)",
            )

    def _wanted(self) -> list[Base]:
        """The checkpoints with which the record can begin, the best first: the oldest that leaves
        enough room, or the one that leaves the most."""
        recorded, holding = self._traveller.recorded, self._holding()
        begin, here = recorded.beginning, recorded.cut()
        fit = [
            base
            for base in self._checkpoints()
            if base.cut != begin
            and min(base.cut).tick  # after MPI_Init
            and is_before(base.cut, here)
            and all(is_before(base.cut, held.cut) for held in holding)
        ]
        roomy = [base for base in fit if self._fullness(base.cut) <= _LEFT]
        return roomy + [base for base in reversed(fit) if base not in roomy]

    def _fullness(self, cut: Cut = ()) -> float:
        """The part of the fullest ring that is in use, or would be if the record began at a cut."""
        found = [0.0]
        for rank, log in self._traveller.recorded.looked_at().items():
            first = begins_at(log, cut[rank]) if cut else log.first
            found.append((log.records - first) / log.capacity if first is not None else 1.0)
        return max(found)

    def _checkpoints(self) -> list[Base]:
        """The oldest first."""
        found = [base for base in self._traveller.bases() if base.number]
        return sorted(found, key=lambda base: sum(base.cut))

    def _holding(self) -> list[Base]:
        return [base for base in self._checkpoints() if not base.history]

    def _forget(self, first: Base) -> None:
        """Delete the automatic checkpoints from which no way leads on any more."""
        directory = self._job.directory
        branch = self._job.record.branch
        gone = [
            base
            for base in self._traveller.checkpoints()
            if base.history and base.branch == branch and not is_before(first.cut, base.cut)
        ]
        with directory.lock("remove automatic checkpoints"):
            for base in gone:
                directory.history.delete(base.number)

    def _say(self, what: str, text: str) -> None:
        """Once."""
        if what not in self._told:
            self._told.add(what)
            self._tell(JobSays(text))
