"""How long the job runs between two stops of crdebug's own, so that every wait comes to its end.

A thread that waits in a system call for a limited time makes the call again after some stops, with
the whole limit (signal(7), "Interruption of system calls and library functions by stop signals",
and by a signal handler, as the waitpoint's). If all stops were closer together than the limit is
long, it would wait for ever. So the time between two stops doubles while a thread is in the call in
which it was at the stop before, and is as before once there is no such thread. A limit of T is
reached within some 4 T then.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from crdebug.attached.job import AttendedJob
from crdebug.base.deadline import Deadline
from crdebug.debugger.rank_commands import timed_waits
from crdebug.debugger.target import Target, TargetState
from crdebug.node import proc
from crdebug.travel.snapshot_cost import LEAST, WRITING, Costs

# Everything that is due within this many times the interval is done in one stop.
_TOGETHER = 1.1
# Longer waits count only in the main thread. Threads that MPI has started for itself do not count
# at all (gdbscripts/timed_waits.py), but they are not recognised in every MPI library; with their
# waits of an hour, automatic checkpoints would become that rare.
LONGEST_BESIDE = 600.0  # seconds

Place = tuple[int, int, str]  # a call of a thread: rank, TID, and TimedWait.place


@dataclass(frozen=True, slots=True)
class Wait:
    """A call that begins anew when its thread goes on. limit: in seconds. kept: only after a
    checkpoint; after other stops it waits only for the time that is left."""

    place: Place
    limit: float
    kept: bool


class Due(NamedTuple):
    """What a stop is for."""

    snapshot: bool
    checkpoint: bool


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
    """Says when a running job is to be stopped for a snapshot or an automatic checkpoint, and
    counts how long it stood for that."""

    def __init__(self, job: AttendedJob) -> None:
        self.costs = Costs()
        self._job = job
        self._snapshots, self._checkpoints = Pace(), Pace()
        self._ran_since = 0.0  # of time.monotonic(), as all of these
        self._stands_since: float | None = None  # by a stop of ours, unless it is counted already
        self._pays = self.costs.snapshots  # for that stop
        self._due = Due(False, False)
        self._saved = 0  # bytes of memory of the ranks at the last checkpoint

    def goes_on(self) -> None:
        """Ranks go on, for whatever reason."""
        self._ran_since = time.monotonic()
        self._count(self._ran_since)
        self._stands_since = None

    def stands(self) -> None:
        """They have stopped again."""
        self.costs.ran(time.monotonic() - self._ran_since)

    def over(self) -> None:
        """They do not go on: it is the user's turn."""
        self._stands_since = None

    def begin(self, every: float) -> float:
        """The job is about to go on. Returns for how long, in seconds. every: seconds of run
        between two checkpoints at least, as the user wants it."""
        self._count(time.monotonic())
        return max(self._plan(every, 0.0), LEAST)

    def more(self, every: float) -> float:
        """While the job runs, and something is due: the seconds until it is, if its cost is known
        better now; 0 for at once."""
        after = self._plan(every, time.monotonic() - self._ran_since)
        return max(after, LEAST) if after > 0 else 0.0

    @property
    def only_a_snapshot(self) -> bool:
        """Is it a snapshot that is due next, and nothing else?"""
        return self._due.snapshot and not self._due.checkpoint

    def _plan(self, every: float, ran: float) -> float:
        """Say what is due next, and in how many seconds. ran: since the job last went on."""
        costs = self.costs
        costs.checkpoints.foreseen = WRITING * max(self._memory() - self._saved, 0)
        snapshot = costs.snapshot_interval(every) * self._snapshots.factor
        checkpoint = costs.checkpoint_interval(every) * self._checkpoints.factor
        snapshot -= costs.snapshots.since + ran
        checkpoint -= costs.checkpoints.since + ran
        after = min(snapshot, checkpoint)
        another = checkpoint <= _TOGETHER * max(after, LEAST)
        # A checkpoint ends frozen snapshots: another one is taken with it, if any are wanted.
        one = snapshot <= _TOGETHER * max(after, LEAST) or (another and costs.budget > 0)
        self._due = Due(one, another)
        return after

    async def stopped(self, since: float, every: float) -> Due:
        """The job has been stopped for whatever is due; returns that. since: the moment of the
        interrupt."""
        self._stands_since = since
        waits = await self._look()
        begin_anew = {each.place: each.limit for each in waits if not each.kept}
        self._snapshots.stopped(begin_anew, since - self._ran_since)
        costs, due = self.costs, self._due
        self._pays = costs.snapshots if due.snapshot else costs.checkpoints
        if due.checkpoint:
            limits = {each.place: each.limit for each in waits}
            self._checkpoints.stopped(limits, costs.checkpoints.since)
            costs.checkpoints.stopped(costs.part_of_checkpoints)
        if due.snapshot:
            costs.snapshots.stopped(costs.part_of_snapshots(every))
        return due

    def taken(self, seconds: float) -> None:
        """After this many seconds there is a checkpoint, or it is clear that there will be none."""
        self._saved = self._memory()
        if self._stands_since is None:
            self.costs.checkpoints.expect(seconds)  # nothing was running
            return
        self.costs.checkpoints.cost(seconds)
        self._stands_since += seconds

    def _memory(self) -> int:
        """The bytes of private memory of all ranks."""
        total = 0
        for hold in self._job.holds:
            with contextlib.suppress(ProcessLookupError):
                total += proc.private_memory(hold.pid)
        return total

    def _count(self, now: float) -> None:
        """Count the cost of the present stop by now."""
        if self._stands_since is not None:
            self._pays.cost(now - self._stands_since)
            self._stands_since = now

    async def _look(self) -> list[Wait]:
        """The waits that count. A rank that does not answer has ended, which others find out."""
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
