"""Where a job's ranks are in their history, and how much of it is recorded.

The ranks' clocks say where they are, the logs what they did. Nothing here moves the job.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from crdebug.attached.job import AttendedJob
from crdebug.base.errors import NotAvailable, Refused
from crdebug.base.instant import BEGINNING, Cut, Instant, beginning
from crdebug.base.ranks import RankSet
from crdebug.job import clocks
from crdebug.job.call_lines import CallLines, CallLinesHere
from crdebug.job.clocks import ClockHandle, RankClock
from crdebug.job.holds import Hold
from crdebug.native.matcher.library import Library
from crdebug.native.recorder.clock import Clock
from crdebug.native.recorder.clock import Refused as Reason
from crdebug.node import memory
from crdebug.timeline.kept import load
from crdebug.timeline.log import RankLog
from crdebug.timeline.matching import Matching
from crdebug.timeline.recorded import Recorded

_TOO_LONG = "'restart' goes back to a checkpoint without it"  # what to do about such a record


class RecordedJob:
    """The job of a session, as its clocks and logs show it. library: reads the logs."""

    def __init__(self, job: AttendedJob, library: Library) -> None:
        self.job = job
        self.library = library
        self.so_far = Recorded(library)  # what was read; see `read`
        self._clocks: tuple[RankClock, ...] = ()
        self._last: dict[int, Instant] = {}  # of ranks on other hosts: where they were seen last
        self._holds: tuple[Hold, ...] = ()  # the ranks that these are of

    def forget(self) -> None:
        """The logs are others now: read them anew."""
        self.so_far = Recorded(self.library)

    # ---- where the ranks are --------------------------------------------------------------------

    async def refresh(self, *, logs: bool = True, requests: bool = False) -> None:
        """See how the ranks of a job over hosts are now; those of others are looked at when they
        are asked for. For the arguments see FarRecord.refresh. Raises StoreError."""
        if self.job.far is not None:
            await self.job.far.refresh(logs=logs, requests=requests)

    def call_lines(self) -> CallLines:
        """Asks the ranks that are there for the lines of their calls."""
        if self.job.far is not None:
            return self.job.far
        self._require_record()
        return CallLinesHere({clock.rank: clock.pid for clock in self.clocks_here()})

    def _require_record(self) -> None:
        if not self.job.record.layer:
            raise NotAvailable(
                "this job's MPI calls are not recorded: there is no way back but to a checkpoint",
                hint="start it with 'crdebug run --record'",
            )

    def clocks(self) -> tuple[ClockHandle, ...]:
        """The ranks' clocks, by rank; for those of a job over hosts see FarRecord. Raises
        NotAvailable if the job is not recorded."""
        self._require_record()
        return self.job.far.clocks if self.job.far is not None else self.clocks_here()

    def clocks_here(self) -> tuple[RankClock, ...]:
        """Those of a job on this host."""
        record = self.job.record
        if self._holds is not self.job.holds:
            self._clocks = clocks.find(self.job.holds, record.layer)
            self._holds = self.job.holds
        return self._clocks

    def clock(self, rank: int) -> ClockHandle:
        """Raises Refused if the rank had ended before the session began."""
        for clock in self.clocks():
            if clock.rank == rank:
                return clock
        raise Refused(
            "it has ended",
            ranks=RankSet.of([rank]),
            hint="'restart N' goes to a checkpoint from before that",
        )

    def cut(self) -> Cut:
        """Where the ranks are now; for a rank that has ended, where it was last."""
        views = {view.rank: view for view in self.clocks()}
        return tuple(
            self._now(views[rank]) if rank in views else self._at_its_end(rank)
            for rank in self.job.group.ranks
        )

    def _now(self, clock: ClockHandle) -> Instant:
        try:
            now = self._last[clock.rank] = clock.read().now
        except ProcessLookupError:
            return self._at_its_end(clock.rank)
        except NotAvailable:
            if self.job.far is None:
                raise
            return self._last.get(clock.rank, BEGINNING)  # its host is lost
        return now

    def states(self) -> Iterator[tuple[int, Clock]]:
        """The ranks that are there, and can be asked, with their clocks."""
        for view in self.clocks():
            try:
                yield view.rank, view.read()
            except ProcessLookupError:
                continue
            except NotAvailable:
                if self.job.far is None:
                    raise

    def _at_its_end(self, rank: int) -> Instant:
        log = self.looked_at().get(rank)  # anew: it may have run since the last look
        return log.tail_now if log is not None else BEGINNING

    @property
    def in_epochs(self) -> RankSet:
        """The ranks that are inside an epoch of one-sided communication."""
        return RankSet.of(rank for rank, state in self.states() if state.open_epochs)

    # ---- reading the logs -----------------------------------------------------------------------

    def read(self, seconds: float = math.inf) -> bool:
        """Read new records for at most this long; is there more? Half of the free memory is left
        to others.

        Raises Refused if everything is to be read, and there is too little memory for it.
        """
        room = memory.available() // 2
        more = self.so_far.read(self._log_files(), seconds, room)
        if more and seconds == math.inf:
            raise self.so_far.too_long(room, _TOO_LONG)
        return more

    def read_sound(self) -> Sequence[NotAvailable]:
        """Read all that is new, but leave out the logs that are damaged, until the next time: their
        errors.

        Raises NotAvailable for what is damaged and is no rank's own, Refused as `read` does.
        """
        return self.so_far.read_sound(self._log_files(), memory.available() // 2, _TOO_LONG)

    def _log_files(self) -> Iterator[Path]:
        return clocks.in_directory(self.job.logs)

    def looked_at(self) -> Mapping[int, RankLog]:
        """The logs. Only their lengths are sure to be up to date."""
        self.so_far.look(self._log_files())
        return self.so_far.logs

    def logs(self) -> Mapping[int, RankLog]:
        """The logs, with everything that is new in them."""
        self.read()
        return self.so_far.logs

    def matching(self) -> Matching:
        """All recorded calls, matched, with everything that is new."""
        self.read()
        return self.so_far.matching

    # ---- where the record begins and ends -------------------------------------------------------

    @property
    def beginning(self) -> Cut:
        """Where the record begins: what was before has been given up."""
        kept = load(self.job.logs) if self.job.record.layer else None
        return kept.cut if kept else beginning(len(self.job.group.ranks))

    def tails(self) -> Cut:
        """Where each rank's record ends: after the call that it is in, if that is recorded."""
        ends, logs = [], self.looked_at()
        for rank, now in enumerate(self.cut()):
            log = logs.get(rank)
            end = log.tail_now if log is not None else BEGINNING
            last = end if log is not None and log.refused else end.before_return
            ends.append(max(end, now) if now <= last else end)
        return tuple(ends)

    def last_places(self) -> list[Instant]:
        """The last place to which each rank can be brought: inside the call that is under way where
        its record ends. A rank that went on without a record comes only to the end of its record.
        """
        tails, ended = self.tails(), self.ended
        return [end if rank in ended else end.before_return for rank, end in enumerate(tails)]

    @property
    def ended(self) -> list[int]:
        """The ranks whose record has ended, while they went on."""
        return [rank for rank, log in self.so_far.logs.items() if log.refused]

    def unrecorded(self) -> dict[int, Reason]:
        """The ranks that are not recorded where they are, or were last, and why."""
        found = {rank: state.refused for rank, state in self.states()}
        if len(found) < len(self.job.group.ranks):  # some have ended: their logs say it
            logs = self.looked_at()
            found = {rank: log.refused for rank, log in logs.items()} | found
        return {rank: why for rank, why in sorted(found.items()) if why}

    def require(self, cut: Cut) -> None:
        """Raises Refused if a place is after the end of its rank's record."""
        for rank, (place, last) in enumerate(zip(cut, self.last_places(), strict=True)):
            if place > last:
                raise self.not_recorded(rank)

    def not_recorded(self, rank: int) -> Refused:
        """The error for a place after the end of a rank's record."""
        end = self.tails()[rank]
        log = self.so_far.logs.get(rank)
        why = self.unrecorded().get(rank) or (log.refused if log is not None else None)
        return Refused(
            "it is not recorded any more there" + (f": {why.sentence}" if why else ""),
            ranks=RankSet.of([rank]),
            hint=f"the record ends at tick {end.tick}: 'goto tick {end.tick} on {rank}'"
            if end
            else "there is no way back but to a checkpoint",
        )
