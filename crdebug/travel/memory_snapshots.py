"""Snapshots of the job in memory: states nearby that can be brought back.

When a snapshot is put back, the ranks write their later output again as they run on, so the job's
output is cut to its length at the snapshot. Output comes through the launcher, which is not put
back: a snapshot is taken only while nothing is on its way through the launcher, or in a rank's
standard input. So the ranks cannot have read anything since then but what was sent since then.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from crdebug.attached.job import AttendedJob
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, Refused
from crdebug.base.events import Event, JobSays
from crdebug.base.instant import Cut
from crdebug.base.ranks import RankSet
from crdebug.base.units import bytes_text
from crdebug.debugger.connections import Place, places_of
from crdebug.debugger.job_snapshot import Snapshots
from crdebug.debugger.rank_host import HostRoom, Rest
from crdebug.job import clocks, half_back, over_hosts
from crdebug.job.output_cuts import Written
from crdebug.node import process_tree
from crdebug.node.rest import at_rest
from crdebug.timeline.elapsed import Elapsed
from crdebug.travel.restore_points import Base
from crdebug.travel.snapshot_room import Holdings

_PATIENCE = 2.0  # seconds for the launcher to pass on what the ranks have written
_LOOK = 0.005


@dataclass(frozen=True, slots=True)
class _Kept:
    """output: how much the job had written.  input: and was sent.  at: seconds of run before.

    way: the snapshots from which the job had come there by going forward, by name, the last one at
    the end.  further: taken on the way, where the ranks happened to be.  stays: a branch of history
    begins with it."""

    base: Base
    output: Written
    input: int
    at: float
    copied: bool
    way: tuple[str, ...] = ()
    further: bool = False
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot, for the user. age: in seconds of run; below 0, it lies ahead. alone: bytes that
    only it holds; None while that cannot be asked. copied: it is no frozen clone of the ranks."""

    cut: Cut
    age: float
    alone: int | None
    copied: bool


@dataclass(frozen=True, slots=True)
class Stock:
    """All snapshots, and their cost. kept: the oldest first. held, bound: the bytes that all hold,
    and may hold; bound 0: not known yet. why_not: the last one could not be taken, or "".

    run: in seconds.  budget, snapshots, checkpoints: the cost that stops may have, and the cost of
    each kind so far, as parts of the run. interval: seconds of run between two snapshots now.
    """

    kept: tuple[Snapshot, ...]
    held: int
    bound: int
    why_not: str
    run: float
    budget: float
    snapshots: float
    checkpoints: float
    interval: float


class Near:
    """The snapshots of one job. leaving: the ranks that leave their call when they go on, see Base.
    tell: gets what the user should know of them.

    elapsed: how long the job had run, by place.  changed: bytes of the rank that had changed most
    from one snapshot to the last one.  took: seconds, the last one.  bound: the bytes that all of
    them may hold, as of the last attempt to take one.
    """

    def __init__(
        self,
        job: AttendedJob,
        leaving: Callable[[], frozenset[int]],
        tell: Callable[[Event], None],
    ) -> None:
        self.elapsed = Elapsed()
        self.changed = self.bound = 0
        self.took = 0.0
        self.why_not = ""  # why the last one could not be kept, for people
        self._job = job
        self._leaving = leaving
        self._tell = tell
        self._told: set[str] = set()
        self._snapshots = Snapshots(job.group, _logs_of(job))
        self._kept: list[_Kept] = []
        self._holdings = Holdings()
        self._count = 0
        self._way: tuple[str, ...] = ()  # to where the job is, see _Kept

    def bases(self) -> list[Base]:
        incarnation = self._job.record.incarnation
        found = [each.base for each in self._kept if each.base.incarnation == incarnation]
        return [base for base in found if self._snapshots.has(base.kept)]

    def has(self, name: str) -> bool:
        """Is there a snapshot of that name, of this incarnation?"""
        return any(base.kept == name for base in self.bases())

    def before_here(self) -> list[Base]:
        """The snapshots from which the job has come here by going forward, the last one first."""
        return self._on(self._way)

    def before(self, name: str) -> list[Base]:
        """The same for the place of a snapshot, without that snapshot."""
        return next((self._on(each.way) for each in self._kept if each.base.kept == name), [])

    def _on(self, way: tuple[str, ...]) -> list[Base]:
        branch = self._job.record.branch
        known = {base.kept: base for base in self.bases() if base.branch == branch}
        return [known[name] for name in reversed(way) if name in known]

    def age(self, cut: Cut) -> float:
        """How many seconds the job has run since the last snapshot on its way to where it is."""
        on_the_way = {base.kept for base in self.before_here()}
        at = max(
            (each.at for each in self._kept if each.base.kept in on_the_way), default=-math.inf
        )
        return self.elapsed.at(cut) - at

    def came_from(self, name: str) -> None:
        """A rank was taken back to a snapshot by other means, and went on from there."""
        ways = (each.way for each in self._kept if each.base.kept == name)
        self._way = next(((*way, name) for way in ways), ())

    async def keep(self, cut: Cut, *, further: bool = False, stays: bool = False) -> Base | None:
        """Keep the stopped job as it is; None if that is impossible, for the reason `why_not`.

        further: it may have gone on since a snapshot at the same clocks, between two MPI calls.
        stays: history, or its branch, begins here, where there is no checkpoint.
        """
        for each in self._kept if not further else ():
            known = each.base
            here = known in self.bases() and not each.further
            if here and (known.cut, known.branch) == (cut, self._job.record.branch):
                return known
        await self._forget_others()
        self.changed = 0
        self._count += 1
        record = self._job.record
        name = f"s{self._count}"
        base = Base(
            cut,
            kept=name,
            order=self._count,
            incarnation=record.incarnation,
            branch=record.branch,
            leaving=self._leaving(),
        )
        try:
            rooms = await self._rooms()
            others = await self.drained()
            now = self.elapsed.at(cut)
            await self._make_room(now, rooms)
            begun = time.monotonic()
            taken = await self._snapshots.keep(base.kept, self._deadline(), others)
            self.took = time.monotonic() - begun
        except CrdebugError as error:
            self.why_not = error.clause()
            return None
        self.why_not = ""
        self.changed = taken.changed_most if self._kept and taken.frozen else 0
        sizes = self._job.written(), self._job.input_size()
        copied = not taken.frozen
        self._kept.append(_Kept(base, *sizes, now, copied, self._way, further, stays))
        self._way = (*(each.kept for each in reversed(self.before_here())), name)
        self._holdings.taken(name, now, taken.bytes, taken.changed, copied, stays)
        return base

    async def look(self, cut: Cut) -> tuple[Snapshot, ...]:
        """The snapshots of the present incarnation, the oldest first. cut: where the job is now."""
        alone: dict[str, int] = {}
        with contextlib.suppress(CrdebugError):  # ranks run, or have ended
            alone = await self._snapshots.sizes(self._deadline())
        now, here = self.elapsed.at(cut), self.bases()
        return tuple(
            Snapshot(each.base.cut, now - each.at, alone.get(each.base.kept), each.copied)
            for each in sorted(self._kept, key=lambda each: each.at)
            if each.base in here
        )

    async def copied(self) -> int:
        """The bytes that the rank with the most changes has copied so far because of the last
        snapshot. Ranks may run."""
        last = self._kept[-1] if self._kept else None
        if last is None or last.copied:
            return 0
        with contextlib.suppress(CrdebugError, OSError):
            return await self._snapshots.most_alone(last.base.kept, self._deadline())
        return 0

    @property
    def held(self) -> int:
        """The bytes that all of them hold, as far as it is known."""
        return self._holdings.bytes

    async def _make_room(self, now: float, rooms: Sequence[HostRoom]) -> None:
        """Make room for another one. now: seconds of run. Raises Refused if there is too little
        memory."""
        holdings = self._holdings
        whole = sum(room.private for room in rooms)
        # Of several hosts the fullest one counts, as if all were like it.
        free = min(room.available * whole // max(room.private, 1) for room in rooms)
        plan = holdings.plan(now, whole, free)
        alone: dict[str, int] = {}
        if plan.drop and plan.tight:
            alone = await self._snapshots.sizes(self._deadline())
            holdings.look(alone)
            plan = holdings.plan(now, whole, free)
        self.bound = plan.bound
        for name in plan.drop:
            gone = next(each for each in self._kept if each.base.kept == name)
            await self._forget(gone, alone.get(name, 0))
            alone = {}  # for the others these numbers have changed now
        may = f"snapshots may take {bytes_text(plan.bound)}, a quarter of the memory that is free"
        if not plan.fits:
            problem = f"{may}, and the next one may come to {bytes_text(plan.next)}"
            self._say("none", f"{problem}: none is taken, and ways back begin where there is one")
            raise Refused(problem)
        if plan.short:
            self._say("few", f"{may}: fewer of them stay, and ways back may take longer")

    def _say(self, what: str, text: str) -> None:
        """Once."""
        if what not in self._told:
            self._told.add(what)
            self._tell(JobSays(text))

    async def put_back(self, base: Base) -> None:
        """Raises Refused if the processes have changed in more than their memory."""
        kept = next((each for each in self._kept if each.base == base), None)
        if kept is None:
            raise Refused("that snapshot was given up")
        try:
            if kept.input != self._job.input_size():
                raise Refused("the job was sent input since that snapshot, and may have read it")
            await self._rooms()
            await self.drained()
            await self._snapshots.put_back(
                base.kept, self._deadline(), lambda: self._half_back(kept)
            )
            self.came_from(base.kept)
        except CrdebugError as error:
            if not (kept.stays and isinstance(error, Refused)):  # that changed nothing
                await self._forget(kept)
            raise

    def begins_with(self, base: Base) -> bool:
        """Does a branch of history begin with this snapshot?"""
        return any(each.base == base and each.stays for each in self._kept)

    @contextlib.asynccontextmanager
    async def _half_back(self, kept: _Kept) -> AsyncIterator[None]:
        """Around the time in which the ranks and the output are not all of one moment."""
        half_back.begin(self._job.run_directory)
        yield
        await self._job.rewind_output(kept.output)
        half_back.done(self._job.run_directory)

    async def _rooms(self) -> tuple[HostRoom, ...]:
        """How much memory each host has. Raises Refused if a rank's main thread has ended: it
        serves to read and write the memory, and only a checkpoint brings it back."""
        rooms = await self._snapshots.rooms()
        gone = RankSet.of(rank for room in rooms for rank in room.leaderless)
        if gone:
            raise Refused("its main thread has ended (pthread_exit)", ranks=gone)
        return rooms

    async def forget_branch(self, name: str) -> None:
        """Forget the snapshots of a branch of history that is given up."""
        for kept in [each for each in self._kept if each.base.branch == name]:
            await self._forget(kept)

    async def _forget_others(self) -> None:
        """Forget snapshots of processes that are gone."""
        incarnation = self._job.record.incarnation
        for kept in list(self._kept):
            if kept.base.incarnation != incarnation or not self._snapshots.has(kept.base.kept):
                await self._forget(kept)

    async def _forget(self, kept: _Kept, alone: int = 0) -> None:
        """alone: bytes that it is known to hold alone."""
        self._kept.remove(kept)
        self._holdings.forget(kept.base.kept, alone)
        await self._snapshots.forget(kept.base.kept, self._deadline())

    async def drained(self) -> Mapping[str, Collection[int]]:
        """Wait until the launcher, and its daemons on other hosts, are idle: the ranks' output is
        where it belongs. Returns the job's processes that are no ranks, by host ("": this one)."""
        group = self._job.group
        places = places_of(group[rank] for rank in group.ranks)
        ranks = {pid for place in places if not place.name for pid in place.pids.values()}
        others = [pid for pid in process_tree.of_job(self._job.record.pid) if pid not in ranks]
        away = [place for place in places if place.name]
        limit = Deadline(_PATIENCE)
        while True:
            before = await self._resting(away)
            try:
                await limit.until(lambda: at_rest(others), "the launcher to be idle")
            except ProcessLookupError:
                raise Refused("the job is ending") from None
            # What a daemon has sent the launcher has: it sends nothing more if it has slept since.
            asleep = all(each.asleep is not None for each in before)
            if not away or (asleep and before == await self._resting(away)):
                break
            if not limit.left:
                raise limit.expired("the launcher's daemons to be idle")
            await asyncio.sleep(_LOOK)
        found = zip(away, before, strict=True)
        return {"": others} | {place.name: each.pids for place, each in found}

    async def _resting(self, away: Sequence[Place]) -> list[Rest]:
        mark = self._job.record.mark
        return list(await asyncio.gather(*(each.host.rest(mark, each.pids) for each in away)))

    def _deadline(self) -> Deadline:
        return Deadline(self._job.settings.command)


def _logs_of(job: AttendedJob) -> str | None:
    """How the paths of its record begin, if it has no container."""
    if job.record.hosts:
        return f"{over_hosts.logs_of(job.record.mark)}/"
    return f"{clocks.logs(job.run_directory)}/" if job.has_no_checkpoints else None
