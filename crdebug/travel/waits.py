"""How long the job runs between two stops of crdebug's own, so that every wait comes to its end.

A thread that waits in a system call for a limited time makes the call again after some stops, with
the whole limit (signal(7), "Interruption of system calls and library functions by stop signals",
and by a signal handler, as the waitpoint's). If all stops were closer together than the limit is
long, it would wait for ever. So the time between two stops doubles as long as a thread is in the
call in which it was at the stop before, and is what it was as soon as there is none. A limit of T
is reached within some 4 T then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from crdebug.attached.job import AttendedJob
from crdebug.base.deadline import Deadline
from crdebug.debugger.rank_commands import timed_waits
from crdebug.debugger.target import Target, TargetState

NEAR_EVERY = 2.0  # seconds of run between snapshots in memory
# Longer waits count only in the main thread. Threads that MPI has started for itself do not count
# at all (gdbscripts/timed_waits.py), but not in every MPI library are they recognised; and with
# theirs, of an hour, automatic checkpoints would become that rare.
LONGEST_BESIDE = 600.0  # seconds

Place = tuple[int, int, str]  # a call of a thread: rank, TID, and TimedWait.place


@dataclass(frozen=True, slots=True)
class Wait:
    """A call that begins anew when its thread goes on. limit: in seconds.  kept: only after a
    checkpoint; other stops leave it the time that is left."""

    place: Place
    limit: float
    kept: bool


class Pace:
    """The stops of one kind. factor: how many times longer than usual the job runs to the next."""

    def __init__(self) -> None:
        self.factor = 1
        self._known: Mapping[Place, float] = {}

    def stopped(self, limits: Mapping[Place, float], ran: float) -> None:
        """The job has stopped, `ran` seconds after it went on from the stop before; the calls at
        these places, with their limits in seconds, begin anew.

        One that should have ended meanwhile, by half its limit at least, is another call from the
        same place.
        """
        same = any(place in self._known and ran < 1.5 * limits[place] for place in limits)
        self.factor = 2 * self.factor if same else 1
        self._known = limits


class Pauses:
    """When a job that runs is to be stopped, for a snapshot or an automatic checkpoint."""

    def __init__(self, job: AttendedJob) -> None:
        self._job = job
        self._snapshots, self._checkpoints = Pace(), Pace()
        self._begun = 0.0  # when the job went on the last time; of time.monotonic()
        self._taken = 0.0  # when the last checkpoint was

    def begin(self, every: float) -> float:
        """The job goes on. Returns for how long, in seconds; 0 if it is not to be stopped. every:
        seconds of run between two checkpoints, as the user wants it; 0: none."""
        self._begun = time.monotonic()
        checkpoints = every * self._checkpoints.factor
        return min(checkpoints, NEAR_EVERY * self._snapshots.factor)

    async def stopped(self, every: float) -> bool:
        """The job has stopped for this; returns whether a checkpoint is due."""
        now = time.monotonic()
        waits = await self._look()
        begin_anew = {each.place: each.limit for each in waits if not each.kept}
        self._snapshots.stopped(begin_anew, now - self._begun)
        if now - self._taken < every * self._checkpoints.factor:
            return False
        self._checkpoints.stopped({each.place: each.limit for each in waits}, now - self._taken)
        return True

    def taken(self) -> None:
        """There is a checkpoint, or none could be had."""
        self._taken = time.monotonic()

    async def _look(self) -> list[Wait]:
        """The waits that count. A rank that has no answer has ended, which is found out anyway."""
        limit = Deadline(self._job.settings.command)

        async def one(target: Target) -> tuple[Wait, ...]:
            return tuple(
                Wait((target.rank, each.tid, each.place), each.limit, each.kept)
                for each in await timed_waits(target, limit)
                if each.leader or each.limit <= LONGEST_BESIDE
            )

        group = self._job.group
        answers = await group.ask(group.in_state(TargetState.STOPPED), one)
        return [wait for waits in answers.values.values() for wait in waits]
