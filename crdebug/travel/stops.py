"""reverse-continue: the last stop of a rank at a breakpoint or watchpoint before where it stands.

History is gone through forward, from a state before, and the stops are counted; the last pass ends
at the last one (Boothe, "Efficient algorithms for bidirectional debugging", PLDI 2000). First from
the nearest state that can be brought back, then, if there was no stop since, from the one before.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from crdebug.deadline import Deadline
from crdebug.errors import CrdebugError, GdbError, Refused
from crdebug.events import GroupStopped, Progress, StopReason
from crdebug.ranks import RankSet
from crdebug.target.group import TargetGroup
from crdebug.timeline.messages import Cut
from crdebug.travel.bases import StartOfHistory, below
from crdebug.travel.replay import quiet
from crdebug.travel.reverse import Reverse
from crdebug.travel.traveller import Traveller

_WANTED = (StopReason.BREAKPOINT, StopReason.WATCHPOINT, StopReason.OTHER)
_STANDSTILL = 60.0  # seconds without the rank moving on


@dataclass(frozen=True, slots=True)
class _End:
    """Where a pass through a piece of history ends: an address that is reached for the n-th time,
    with that stack pointer (None: with any)."""

    pc: int
    sp: int | None
    passages: int

    @classmethod
    def of(cls, place: str) -> _End:
        """A place of the walker's (gdbscripts/walk_mi.py) that is one move."""
        _, pc, level, count = place.split(":")
        sp = None if level == "-" else int(level.rpartition(",")[2], 16)
        return cls(int(pc, 16), sp, int(count))


class Stops:
    """Goes back to stops. reverse: what goes back by steps, with which it shares the origin."""

    def __init__(self, traveller: Traveller, reverse: Reverse) -> None:
        self._traveller = traveller
        self._reverse = reverse
        self._group = traveller.job.group

    async def back(self, focus: int) -> None:
        """To the stop before. Raises StartOfHistory; the job then stands where history begins."""
        end = _End.of(await self._reverse.here(focus))
        count = await self._count(focus, end)
        if not count:
            piece = await self._piece_before(focus, self._reverse.piece)
            end = _End.of(await self._reverse.to_end(focus, piece))
            count = await self._count(focus, end)
        await self._to_stop(focus, count)

    # ---- within a piece of history ------------------------------------------------------------

    async def _count(self, focus: int, end: _End) -> int:
        """How many stops there are from the origin to a place."""
        await self._reverse.to_origin(focus)
        number = await self._insert(focus, end)
        count = 0
        try:
            while True:
                stop = await self._group.resume(RankSet.of([focus]))
                if not await self._is_there(focus, number):
                    return count
                self._check(stop)
                count += 1
        finally:
            with contextlib.suppress(GdbError):
                await self._mi(focus, f"-break-delete {number}")

    async def _to_stop(self, focus: int, count: int) -> None:
        await self._reverse.to_origin(focus)
        for _ in range(count):
            self._check(await self._group.resume(RankSet.of([focus])))

    async def _insert(self, focus: int, end: _End) -> int:
        """A breakpoint for the end, which goes when it is hit."""
        condition = "" if end.sp is None else f'-c "$rsp == {end.sp}" '
        ignore = f"-i {end.passages - 1} " if end.passages > 1 else ""
        told = await self._group[focus].mi(
            f"-break-insert -t {condition}{ignore}*{end.pc}",
            Deadline(self._group.settings.command),
        )
        return told.payload.tuple("bkpt").number("number")

    async def _is_there(self, focus: int, number: int) -> bool:
        deadline = Deadline(self._group.settings.command)
        told = (await self._group[focus].mi("-break-list", deadline)).payload
        rows = told.tuple("BreakpointTable").list("body").tuples()
        return any(row.text("number") == str(number) for row in rows)

    async def _mi(self, focus: int, command: str) -> None:
        await self._group[focus].mi(command, Deadline(self._group.settings.command))

    def _check(self, stop: GroupStopped) -> None:
        cause = stop.cause[0]
        if cause.reason is StopReason.INTERRUPT:
            raise CrdebugError("interrupted on the way", hint="'when' says where the job is")
        if cause.reason in (StopReason.EXITED, StopReason.KILLED):
            raise CrdebugError(
                f"the replay was stopped on its way: {cause.reason.value} {cause.detail}".rstrip(),
                ranks=RankSet.of([cause.rank]),
            )

    # ---- over MPI calls -----------------------------------------------------------------------

    async def _piece_before(self, focus: int, piece: int) -> int:
        """The last piece of the rank's history before this one that has a stop in it: the clock's
        value there. Raises StartOfHistory, with the job brought to the start."""
        traveller = self._traveller
        until = piece - 1
        if until > 0:
            cut = traveller.cut_for(focus, until)
            for base in below(traveller.bases(), cut):
                if base.cut[focus] >= until:
                    continue
                traveller.tell(Progress("back in time", f"looking for stops from {base.text} on"))
                try:
                    await traveller.bring_back(base)
                except Refused:  # a snapshot that does not fit any more; there are checkpoints
                    continue
                found = await self._pass(cut, focus)
                if found is not None:
                    return found
                until = base.cut[focus]
                cut = base.cut
        checkpoints = (base for base in traveller.bases() if base.number)
        first = min(checkpoints, key=lambda base: sum(base.cut), default=None)
        if first is not None and sum(first.cut) < sum(traveller.cut()):
            await traveller.bring_back(first)
        self._reverse.forget()
        raise StartOfHistory("this is the start of history: no stop before")

    async def _pass(self, cut: Cut, focus: int) -> int | None:
        """Go on to a cut; the clock at the last stop on the way, if there was one."""
        traveller = self._traveller
        self._reverse.forget()
        clocks, last = traveller.clocks(), None
        for clock in clocks:
            clock.set_stop(cut[clock.rank])
        place = cut[focus]
        async with quiet(self._group, self._group.ranks - RankSet.of([focus])):
            while True:
                if self._arrived(focus, place):
                    return last
                run = asyncio.create_task(self._group.resume(self._group.ranks))
                await self._until(run, focus, place)
                stop = await run
                if any(s.rank == focus and s.reason in _WANTED for s in stop.cause):
                    now = clocks[focus].read().now
                    last = now if now % 2 == 0 and now < place else last
                elif not self._arrived(focus, place):
                    self._check(stop)

    async def _until(self, run: asyncio.Task[GroupStopped], focus: int, place: int) -> None:
        clock = self._traveller.clocks()[focus]
        while not run.done() and not self._arrived(focus, place):
            now = clock.read().now
            await Deadline(_STANDSTILL).until(
                lambda now=now: (  # type: ignore[misc]
                    run.done() or self._arrived(focus, place) or clock.read().now != now
                ),
                "the replay to move on",
                ranks=RankSet.of([focus]),
            )
        if not run.done():
            await self._group.interrupt()

    def _arrived(self, focus: int, place: int) -> bool:
        state = self._traveller.clocks()[focus].read()
        return state.now == place and bool(state.held)


@contextlib.asynccontextmanager
async def watching(group: TargetGroup, focus: int, expression: str) -> AsyncIterator[None]:
    """While the block runs, only changes of this expression's memory stop the rank."""
    target, limit = group[focus], Deadline(group.settings.command)
    await target.mi("-crdebug-breakpoints off", limit)
    try:
        said = await target.console(f"watch -location {expression}", limit)
        number = re.search(r"atchpoint (\d+):", said)
        if number is None:
            raise GdbError(said.strip() or f"cannot watch {expression}", "watch")
        try:
            yield
        finally:
            await target.mi(f"-break-delete {number[1]}", limit)
    finally:
        await target.mi("-crdebug-breakpoints on", limit)
