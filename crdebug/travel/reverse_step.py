"""Reverse execution of one rank: back by lines and instructions, over as many MPI calls as needed.

Between two MPI calls a rank runs alone, so that piece of its history can be run again and again
without the others: from the origin, a snapshot at the return of the call before. If snapshots were
taken in the middle of a long piece, the search begins at the last one that the rank has passed, and
goes on at those before it as long as the target is not found. The stepper in the rank's GDB
searches (gdbscripts/stepper/commands.py). The target may lie before the origin; then the search
goes on in the piece before, at whose end the rank stands at the entry of the next call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

from crdebug.base.deadline import FOR_EVER, Deadline
from crdebug.base.errors import CrdebugError, GdbError, Refused, StoreError
from crdebug.base.events import Progress, RankStopped, StopReason
from crdebug.base.instant import Cut, Instant
from crdebug.base.ranks import RankSet
from crdebug.debugger import stepper
from crdebug.debugger.connections import places_of
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.python_replay import leave_python
from crdebug.debugger.target import Target
from crdebug.gdbscripts.wire import ErrorKind, Reach, place_text
from crdebug.job import half_back
from crdebug.job.output_cuts import Written
from crdebug.native.recorder import clock as layout
from crdebug.node import proc
from crdebug.travel.arrival import Arrival
from crdebug.travel.dead_ends import DEADLY
from crdebug.travel.restore_points import Base, StartOfHistory
from crdebug.travel.seek import Traveller

T = TypeVar("T")

_ALONE = "alone"
_LOOK = 0.2  # seconds between two looks whether the user has cancelled
_LONG = Deadline(FOR_EVER)  # for walks, see Reverse._walked


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where the stepper starts from.

    name: of the snapshot.
    now: where the rank is after it, at all the places that can be reached from it.
    output: how much the job had written there.
    ways: those of Position when it was made.
    others: by which stops the other ranks stand. Once one has run, the origin's memory that ranks
    share, and the job's output there, are of the past.
    within: the snapshot in the middle of the piece at whose place it is; "" where the piece begins.
    """

    focus: int
    name: str
    incarnation: int
    now: Instant
    output: Written
    ways: int
    others: tuple[RankStopped | None, ...]
    within: str = ""


@dataclass(frozen=True, slots=True)
class Reached:
    """A place in a piece of history that has an origin.

    place: as the stepper knows it.  arrival: at the origin.  signalled: the rank stood before the
    signal whose handler begins there.
    """

    place: str
    arrival: Arrival
    signalled: bool = False


class Reverse:
    """Takes the focused rank back, and the others with it if it goes over MPI calls."""

    def __init__(self, traveller: Traveller) -> None:
        self._traveller = traveller
        self._group: TargetGroup = traveller.job.group
        self._origin: _Origin | None = None
        self._ready: WeakSet[Target] = WeakSet()  # GDBs that have the stepper

    def forget(self) -> None:
        """Give up the origin: the job has gone elsewhere by other means, or memory was changed."""
        self._origin = None

    def moved(self, cut: Cut) -> None:
        """Ranks have gone forward: the origin is still good if only its rank has, and has made no
        MPI call."""
        origin = self._origin
        if origin is None:
            return
        stops = zip(self._stops_of_others(origin.focus), origin.others, strict=True)
        if cut[origin.focus] != origin.now or any(now is not before for now, before in stops):
            self._origin = None

    async def back(self, kind: str, focus: int) -> Arrival:
        """One reverse command."""
        now = self._traveller.recorded.cut()[focus]
        arrival, frame = Arrival(), ""
        try:
            if self._in_mpi(focus, now):  # which the user did not write: go to where it is called
                arrival = await self._to_entry(focus, now.entry)
                if kind not in ("step", "next"):
                    kind, frame = "finish", await self._call_frame(focus)
            else:
                arrival = await self._have_origin(focus, now)
            while not isinstance(found := await self._walk(focus, kind, frame), str):
                if self._within:
                    arrival = await self._set_origin_earlier(focus)
                    continue
                assert found is not None
                kind, frame = found.kind, found.frame
                arrival = await self._earlier(focus)
        except StartOfHistory as start:
            return arrival.at_start(start.problem)
        await self._once(focus, found)
        await self._arrive(focus)
        return arrival

    def _in_mpi(self, focus: int, now: Instant) -> bool:
        """Is the rank inside an MPI call, or held where it is about to enter one?"""
        return now.inside or bool(self._traveller.recorded.clock(focus).read().held)

    # ---- for going back to stops ------------------------------------------------------------

    @property
    def piece(self) -> Instant:
        """Which piece of history the origin is of: where the rank is in it, between two calls."""
        assert self._origin is not None
        return self._origin.now

    async def here(self, focus: int) -> Reached:
        """The place where the rank stands. Makes an origin for it, if there is none."""
        now = self._traveller.recorded.cut()[focus]
        if self._in_mpi(focus, now):
            return await self.to_end(focus, now.entry)
        arrival = await self._have_origin(focus, now, whole=True)
        found = await self._from_origin(
            focus, lambda rank: stepper.here(rank, self._walk_origin(), _LONG)
        )
        return Reached(found.place, arrival, found.signalled)

    async def to_end(self, focus: int, piece: Instant) -> Reached:
        """Go to the end of a piece, where the rank is about to enter its next call."""
        arrival = await self._to_entry(focus, piece)
        return Reached(place_text([Reach(self._hold(focus))]), arrival)

    async def to_origin(self, focus: int) -> None:
        """Go to the beginning of the piece, with the watchpoints' values as they were there."""
        await self._go(focus, stepper.AT_ORIGIN)
        await self._take_back_output()
        await stepper.refresh_watchpoints(self._group[focus], self._limit)

    async def _take_back_output(self) -> bool:
        """Take back the output that the rank has written on its ways from the origin; was there
        any?"""
        assert self._origin is not None
        await self._traveller.near.drained()
        job = self._traveller.job
        if job.written().sizes == self._origin.output.sizes:
            return False
        await job.rewind_output(self._origin.output)
        return True

    async def _once(self, focus: int, place: str) -> None:
        """Only one of the ways that were gone to find a place may show in the output."""
        if await self._take_back_output():
            await self._go(focus, place)

    # ---- the pieces of history --------------------------------------------------------------

    async def _have_origin(self, focus: int, now: Instant, *, whole: bool = False) -> Arrival:
        """Ensure that this process has an origin from which the current stop can be reached by
        running forward. whole: one where the piece begins."""
        await leave_python(self._group[focus], self._limit)
        origin = self._origin
        if (
            origin is not None
            and (origin.focus, origin.now) == (focus, now)
            and not (whole and origin.within)
            and origin.ways == self._traveller.position.ways
            and origin.incarnation == self._traveller.job.record.incarnation
            and (origin.name == _ALONE or self._traveller.near.has(origin.name))
        ):
            # as the stepper will set it: the memory must be the same
            self._traveller.recorded.clock(focus).set_stop(now)
            if self._before_crash(focus):
                return await self._meet(focus, await self.recall(focus))
            return Arrival()
        near = [] if whole or not now else self._traveller.near.before_here()
        return await self._to_here_again(focus, now, near)

    async def _to_here_again(self, focus: int, now: Instant, near: Sequence[Base]) -> Arrival:
        """Set another origin, and go from there to where the rank stands. near: see
        `_set_origin_within`."""
        state, arrival = await self.recall(focus), Arrival()
        if not await self._set_origin_within(focus, now, near):
            arrival = await self._set_origin(focus, now)
        return arrival.then(await self._meet(focus, state))

    def _before_crash(self, focus: int) -> bool:
        """Is the rank about to get a signal that may end it? From there nothing can be walked."""
        stop = self._group[focus].last_stop
        return stop is not None and stop.reason is StopReason.SIGNAL and stop.detail in DEADLY

    async def recall(self, focus: int) -> str:
        """A description by which the rank's place is recognised."""
        await leave_python(self._group[focus], self._limit)
        return await stepper.recall(await self._with_stepper(focus), self._limit)

    async def to_state(self, focus: int, now: Instant, state: str) -> Arrival:
        """To a place that was recalled, at an instant of the rank."""
        if now.inside:  # MPI, where no two runs are alike
            arrival = await self._traveller.to_cut(self._traveller.cut_for(focus, now), focus)
            return arrival.then(Arrival(("inside the MPI call, just before it returns",)))
        arrival = await self._set_origin(focus, now)
        return arrival.then(await self._meet(focus, state))

    async def _meet(self, focus: int, state: str) -> Arrival:
        """From the origin to a place that was recalled."""
        met = await self._walked(
            focus, lambda rank: stepper.meet(rank, self._walk_origin(), state, _LONG)
        )
        await self._once(focus, met.place)
        if met.exact:
            return Arrival()
        return Arrival(("approximate: no exact match for this place (registers or stack differ)",))

    async def _set_origin(self, focus: int, now: Instant) -> Arrival:
        """An origin for the piece in which the rank is at `now`, between two calls."""
        traveller, arrival = self._traveller, Arrival()
        if now:
            cut = traveller.cut_for(focus, now.in_last_call)
            try:
                arrival = await traveller.to_cut(cut, focus)
            except StartOfHistory:
                await self._start(focus, now)
        else:
            await self._start(focus, now)
        kept = await traveller.near.keep(traveller.recorded.cut())
        name = kept.kept if kept is not None else await self._keep_alone(focus)
        self._begin_at(name, focus, now)
        return arrival

    def _begin_at(self, name: str, focus: int, now: Instant, within: str = "") -> None:
        """The job stands at the origin, where this snapshot was kept."""
        job, ways = self._traveller.job, self._traveller.position.ways
        incarnation, output = job.record.incarnation, job.written()
        others = self._stops_of_others(focus)
        self._origin = _Origin(focus, name, incarnation, now, output, ways, others, within)

    def _stops_of_others(self, focus: int) -> tuple[RankStopped | None, ...]:
        """The last stops of the other ranks; each run ends with another one."""
        others = self._group.ranks - RankSet.of([focus])
        return tuple(self._group[rank].last_stop for rank in others)

    async def _set_origin_within(self, focus: int, now: Instant, near: Sequence[Base]) -> bool:
        """An origin in the middle of the piece: at the first of these snapshots that is in it, and
        can be put back. Returns whether there is one."""
        traveller = self._traveller
        for base in near:
            if base.cut[focus] != now:
                continue
            try:
                await traveller.bring_back(base)
            except (Refused, StoreError):  # it does not fit any more; there may be others
                continue
            # as far forward as they can have been, as from an origin where the piece begins
            await traveller.others_to(traveller.cut_for(focus, now), focus)
            kept: Base | None = base
            if traveller.recorded.cut() != base.cut:
                kept = await traveller.near.keep(traveller.recorded.cut(), further=True)
            if kept is not None:
                self._begin_at(kept.kept, focus, now, base.kept)
                return True
        return False

    async def _set_origin_earlier(self, focus: int) -> Arrival:
        """Replace an origin in the middle of the piece by an earlier one; the rank comes back to
        where it stands."""
        origin = self._origin
        assert origin is not None
        near = self._traveller.near.before(origin.within)
        return await self._to_here_again(focus, origin.now, near)

    async def _keep_alone(self, focus: int) -> str:
        """A snapshot of this rank only: enough for its own piece of history."""
        target = self._group[focus]
        (place,) = places_of([target])
        channels = (await place.host.channels(place.pids)).get(focus, ())
        if any(each.descriptor == 0 and each.unread for each in channels):
            raise Refused(
                "it has unread input, which cannot be read twice",
                ranks=RankSet.of([focus]),
                hint="'goto tick N' goes back over MPI calls, 'restart N' to a checkpoint",
            )
        await target.keep(_ALONE, (), Deadline(self._group.settings.command))
        return _ALONE

    async def _start(self, focus: int, now: Instant) -> None:
        """The earliest state there is, if it lies in this piece."""
        problem: CrdebugError = _start_of_history(focus)
        for base in [each for each in self._traveller.bases() if each.cut[focus] == now]:
            try:
                await self._traveller.bring_back(base)
                return
            except (Refused, StoreError) as error:  # it does not fit any more; there may be others
                problem = error
        raise problem

    async def _earlier(self, focus: int) -> Arrival:
        """Go to the end of the piece before: the rank is about to enter its call. Raises
        StartOfHistory."""
        assert self._origin is not None
        now, start = self._origin.now, self._traveller.position.branch_start[focus]
        if not now.tick or now == start:
            await self._go(focus, stepper.AT_ORIGIN)
            raise _start_of_history(focus)
        # A line with a whole loop in it may have thousands of pieces: show that this moves on.
        self._traveller.tell(Progress("back in time", f"before tick {now.tick} of rank {focus}"))
        return await self._to_entry(focus, now.back(1))

    async def _to_entry(self, focus: int, now: Instant) -> Arrival:
        arrival = await self._set_origin(focus, now)
        await self._go(focus, place_text([Reach(self._hold(focus))]))
        return arrival

    # ---- the stepper -------------------------------------------------------------------------

    async def _walk(self, focus: int, kind: str, frame: str) -> str | stepper.Earlier | None:
        """The place before the present one, or what to look for before the origin. None: the rank
        stands at the origin, and the piece begins earlier. Raises StartOfHistory."""
        try:
            return await self._from_origin(
                focus,
                lambda rank: stepper.reverse(rank, self._walk_origin(), kind, frame, _LONG),
            )
        except StartOfHistory:
            if not self._within:
                raise
            return None

    @property
    def _within(self) -> bool:
        return self._origin is not None and bool(self._origin.within)

    async def _from_origin(self, focus: int, walk: Callable[[Target], Awaitable[T]]) -> T:
        """A walk from where the rank stands. Raises StartOfHistory."""
        try:
            return await self._walked(focus, walk)
        except GdbError as error:
            # The start is the only origin where a user can stand.
            if error.kind == ErrorKind.AT_ORIGIN:
                raise _start_of_history(focus) from None
            raise

    async def _go(self, focus: int, place: str) -> None:
        await self._walked(focus, lambda rank: stepper.go(rank, self._walk_origin(), place, _LONG))

    def _walk_origin(self) -> stepper.WalkOrigin:
        """The origin, and all that lets the rank go from there to the entry of its next call, no
        further."""
        assert self._origin is not None
        focus, now = self._origin.focus, self._origin.now
        clock = self._traveller.recorded.clock(focus)
        return stepper.WalkOrigin(
            self._origin.name,
            clock.address + layout.STOP_OFFSET,
            now,
            clock.hold,
            self._traveller.dead_ends.has(focus, now),
        )

    async def _with_stepper(self, focus: int) -> Target:
        target = self._group[focus]
        if target not in self._ready:
            library = Path(self._traveller.job.record.starter).with_name("stepper.so")
            await stepper.load(target, library, self._limit)
            self._ready.add(target)
        return target

    async def _walked(self, focus: int, walk: Callable[[Target], Awaitable[T]]) -> T:
        assert self._origin is not None
        self._traveller.job.go_on()
        self._traveller.near.came_from(self._origin.name)
        half_back.begin_steps(self._traveller.job.run_directory)
        target = await self._with_stepper(focus)
        walking = asyncio.ensure_future(walk(target))
        job, limit = self._traveller.job, self._limit
        used: int | None = -1
        try:
            while not (await asyncio.wait({walking}, timeout=_LOOK))[0]:
                if job.broken_off:
                    target.break_in()  # it may have come too early for this command
                if limit.left:
                    continue
                # The stepper watches the rank all the time, and knows when to give up.
                before, used = used, _worked(target)
                if used is not None and used == before:
                    raise limit.expired("the stepper in gdb", ranks=RankSet.of([focus]))
                self._traveller.tell(Progress("back in time", f"rank {focus} computes"))
                limit = self._limit
            return await walking
        except GdbError:
            job.go_on()  # if the user has broken it off, that is the reason
            raise
        finally:
            walking.cancel()

    @property
    def _limit(self) -> Deadline:
        return Deadline(self._group.settings.command)

    def _hold(self, focus: int) -> int:
        return self._traveller.recorded.clock(focus).hold

    async def _call_frame(self, focus: int) -> str:
        """The frame of the MPI function that the rank is in."""
        layer = self._traveller.job.record.layer
        return await stepper.call_frame(await self._with_stepper(focus), layer, self._limit)

    async def _arrive(self, focus: int) -> None:
        """The rank is no longer where GDB last stopped it: report its place."""
        target = self._group[focus]
        target.stands(await target.location(self._limit))


def _worked(target: Target) -> int | None:
    """The processor time of its GDB; None if that is on another host, whose agent says whether it
    is there."""
    return proc.processor_time(target.gdb_pid) if target.node is None else None


def _start_of_history(focus: int) -> StartOfHistory:
    return StartOfHistory("this is the start of history", ranks=RankSet.of([focus]))
