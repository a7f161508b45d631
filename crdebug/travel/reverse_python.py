"""reverse-step, reverse-next and reverse-finish from a line of Python, by lines of Python.

As for stops (reverse_continue.py), history is run forward from an earlier state. But the rank
itself counts the lines (crdebug/native/shim/python.c), and only a second pass stops, at the last of
them: which lines count depends on how deep their functions are on Python's stack.
"""

from __future__ import annotations

from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused
from crdebug.base.instant import Cut, Instant
from crdebug.base.ranks import RankSet
from crdebug.debugger import own_breakpoints
from crdebug.debugger.frames import to_level
from crdebug.debugger.python_lines import is_in_python
from crdebug.debugger.python_replay import (
    ANY_DEPTH,
    LinesSeen,
    count_lines,
    counted_place,
    lines_seen,
)
from crdebug.gdbscripts.wire import PYTHON_STEPS
from crdebug.travel.arrival import Arrival
from crdebug.travel.replay import quiet
from crdebug.travel.restore_points import StartOfHistory
from crdebug.travel.reverse_continue import End, Stops
from crdebug.travel.reverse_step import Reverse
from crdebug.travel.seek import Traveller


class Lines:
    """Goes back by lines of Python."""

    def __init__(self, traveller: Traveller, reverse: Reverse, stops: Stops) -> None:
        self._traveller = traveller
        self._reverse = reverse
        self._stops = stops
        self._group = traveller.job.group

    def are_meant(self, kind: str, focus: int) -> bool:
        """Does a reverse command of this kind go by lines of Python, from where the rank stands?"""
        return kind in PYTHON_STEPS and is_in_python(self._group[focus].last_stop)

    async def back(self, kind: str, focus: int) -> Arrival:
        """To the line before; or to the start of history. kind: "step", "next" or "finish".

        Raises Refused from the outermost function, if it is to be left.
        """
        depth = (await lines_seen(self._group[focus], self._limit)).depth
        deepest = {"step": ANY_DEPTH, "next": depth, "finish": depth - 1}[kind]
        if not deepest:
            raise Refused("no Python function has called this one", ranks=RankSet.of([focus]))
        arrival = Arrival()
        async with quiet(self._group, RankSet.of([focus])):
            try:
                here = await self._reverse.here(focus)
                arrival, end = here.arrival, End.of(here.place)
                own = int(kind != "finish")  # the line before which the rank stands
                while (found := (await self._count(focus, end, deepest)) - own) <= 0:
                    before = await self._piece_before(focus, self._reverse.piece, deepest)
                    reached = await self._reverse.to_end(focus, before)
                    arrival, end, own = reached.arrival, End.of(reached.place), 0
                await self._to_line(focus, found, deepest)
            except StartOfHistory as start:
                arrival = arrival.at_start(start.problem)
            finally:  # also of an interrupted way
                await count_lines(self._group[focus], 0, self._limit)
        return arrival

    async def _count(self, focus: int, end: End, deepest: int) -> int:
        """The lines from the origin to a place."""
        await count_lines(self._group[focus], deepest, self._limit)
        await self._stops.hits(focus, end)
        return (await self._counted(focus)).counted

    async def _to_line(self, focus: int, number: int, deepest: int) -> None:
        """From the origin to the line of this number."""
        target = self._group[focus]
        await count_lines(target, deepest, self._limit, wanted=number)
        place = await counted_place(target, self._limit)
        there = await own_breakpoints.insert_at(target, place, self._limit)
        try:
            await self._stops.again(focus, 1)
        finally:
            await own_breakpoints.delete_left(target, there, self._limit)
        self._reverse.forget()  # the rank has come here in another way than from the origin
        await to_level(target, 0, self._limit)
        target.stands(await target.location(self._limit))

    async def _piece_before(self, focus: int, piece: Instant, deepest: int) -> Instant:
        """Which piece of the rank's history before this one has the last line that counts. Raises
        StartOfHistory, with the job brought to the start."""

        async def look(cut: Cut) -> Instant | None:
            await count_lines(self._group[focus], deepest, self._limit)
            await self._stops.pass_to(cut, focus)
            found = await self._counted(focus)
            return found.now.entry if found.counted else None  # of a call that has called Python

        return await self._stops.search_before(focus, piece, "line", look)

    async def _counted(self, focus: int) -> LinesSeen:
        """And count no more."""
        found = await lines_seen(self._group[focus], self._limit)
        await count_lines(self._group[focus], 0, self._limit)
        return found

    @property
    def _limit(self) -> Deadline:
        return Deadline(self._group.settings.command)
