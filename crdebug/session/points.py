"""Breakpoints and displays, and how they outlast a session."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from crdebug.base.answers import Answers
from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, CrdebugError
from crdebug.base.events import Event, JobSays
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger import python_lines, traces
from crdebug.debugger.breakpoints import Breakpoint, StoredBreakpoint
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.question import asked
from crdebug.debugger.rank_commands import in_memory, symbol_at
from crdebug.debugger.target import BreakpointRequest, PointKind, Target
from crdebug.debugger.traces import Traced
from crdebug.session.core import Core
from crdebug.session.source_lines import with_code, with_file

_WATCHES = (PointKind.WATCH, PointKind.RWATCH, PointKind.AWATCH)


@dataclass(frozen=True, slots=True)
class Display:
    """An expression that is shown after every stop. format: "/x" and the like."""

    number: int
    expression: str
    format: str
    ranks: RankSet


class _KeptDisplay(msgspec.Struct, frozen=True):
    number: int
    expression: str
    format: str
    ranks: tuple[int, ...]


class _KeptAll(msgspec.Struct, frozen=True):
    points: tuple[StoredBreakpoint, ...] = ()
    displays: tuple[_KeptDisplay, ...] = ()


class Points(Core):
    """The verbs for breakpoints and displays. Ranks that run independently are stopped briefly if
    GDB needs that.

    displays: the expressions that a console shows after every stop.
    """

    def __init__(
        self,
        group: TargetGroup,
        name: str,
        settings: Settings,
        subscriber: Callable[[Event], None] | None,
    ) -> None:
        super().__init__(group, name, settings, subscriber)
        self.displays: list[Display] = []
        self._last_display = 0

    # ---- displays -----------------------------------------------------------------------------

    def display(self, ranks: RankSet, expression: str, format: str = "") -> Display:
        """Show an expression after every stop."""
        self._last_display += 1
        made = Display(self._last_display, expression, format, ranks)
        self.displays.append(made)
        self._keep_points()
        return made

    def undisplay(self, numbers: Collection[int]) -> None:
        """Stop showing these."""
        self.displays[:] = [each for each in self.displays if each.number not in numbers]
        self._keep_points()

    # ---- for the next session -----------------------------------------------------------------

    def _keep_points(self) -> None:
        """Write all breakpoints and displays into the job's directory, for the next session."""
        job = self._attended
        if job is None or not job.directory.exists():
            return
        displays = tuple(
            _KeptDisplay(each.number, each.expression, each.format, tuple(each.ranks))
            for each in self.displays
        )
        data = msgspec.json.encode(_KeptAll(self._group.table.kept(), displays))
        unfinished = job.directory.points.with_suffix(".new")
        with contextlib.suppress(OSError):  # not a reason to abandon a job
            unfinished.write_bytes(data)
            unfinished.rename(job.directory.points)

    async def _bring_points_back(self) -> None:
        """Set the points of the last session again; report those that cannot be set."""
        job = self._attended
        kept = _KeptAll()
        if job is not None:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                kept = msgspec.json.decode(job.directory.points.read_bytes(), type=_KeptAll)
        there, lost = [], []
        for each in kept.points:
            name = f"{each.kind.word} {each.number}"
            if await self._set_again(each):
                there.append(name)
            else:
                lost.append(f"{name} ({each.location})")
        for shown in kept.displays:
            ranks = RankSet.of(shown.ranks) & self.ranks
            self.displays.append(Display(shown.number, shown.expression, shown.format, ranks))
            self._last_display = max(self._last_display, shown.number)
            there.append(f"display {shown.number}")
        told = [f"set again: {', '.join(there)}"] if there else []
        told += [f"dropped: {', '.join(lost)}"] if lost else []
        if told:
            self._tell(JobSays("; ".join(told)))

    async def _set_again(self, kept: StoredBreakpoint) -> bool:
        ranks = RankSet.of(kept.ranks) & self.ranks
        if kept.kind in _WATCHES:
            answers = await self._group.ask(ranks, lambda each: self._is_global(each, kept))
            ranks = RankSet.of(rank for rank, yes in answers.values.items() if yes)
        return await self._group.put_breakpoint(kept, ranks)

    async def _is_global(self, target: Target, kept: StoredBreakpoint) -> bool:
        """Does the watched memory have the same address whatever frame the rank is in?"""
        expression = re.sub(r"^-l(ocation)?\s+", "", kept.location)
        limit = Deadline(self.settings.command)
        try:
            address = (await in_memory(target, expression, limit)).address
            said = await symbol_at(target, address, limit)
        except CrdebugError:
            return False
        return re.search(r"in section \.(data|bss)", said) is not None

    # ---- breakpoints --------------------------------------------------------------------------

    async def add_breakpoint(
        self,
        ranks: RankSet,
        location: str,
        *,
        condition: str = "",
        temporary: bool = False,
        ignore: int = 0,
        kind: PointKind = PointKind.BREAK,
    ) -> Breakpoint:
        """Set a breakpoint, watchpoint or catchpoint: one object, with a place on each rank, also
        in libraries that are loaded later; it survives checkpoint and restart.

        location: as GDB reads it, or FILE.py:LINE of Python, where the condition is Python's, too;
        the expression of a watchpoint, the event of a catchpoint.
        ignore: the number of hits on each rank that do not stop.
        Ranks that cannot have it are in its `problems`; raises GdbError or Refused if none can.
        """
        async with self._control.pause(ranks):
            if kind in (PointKind.BREAK, PointKind.TRACE):
                place, comma, values = location.partition(",")
                location = await with_file(self._group, ranks, place) + comma + values
                location = self._in_python(location, condition, kind)
            request = BreakpointRequest(location, condition, temporary, ignore, kind=kind)
            made = await self._group.add_breakpoint(ranks, request)
        self._keep_points()
        return made

    def _in_python(self, location: str, condition: str, kind: PointKind) -> str:
        """The location with a line that has code, if it is one of Python. Raises BadInput."""
        place = python_lines.place(location.partition(",")[0])
        if place is None:
            return location
        if kind is PointKind.TRACE:
            raise BadInput(
                "trace points are not for lines of Python",
                hint="'break' with 'commands' can print there",
            )
        python_lines.require_expression(condition)
        job = self._attended
        there = [Path(job.record.directory)] if job is not None else []
        return f"{place.file}:{with_code(place.file, place.line, [Path.cwd(), *there])}"

    async def traced(self, number: int) -> Answers[Traced]:
        """What a trace point has noted on its ranks. Raises BadInput if there is none."""
        point = self._group.table.get(number)
        if point.kind is not PointKind.TRACE:
            raise BadInput(f"{point.kind.word} {number} is no trace point", hint="'trace' sets one")
        limit = Deadline(self.settings.command)
        question = asked(traces.traced, point.location, point.condition, limit)
        return await self._group.look(point.ranks, question)

    async def delete_breakpoint(self, number: int) -> None:
        """Raises BadInput if there is no such number."""
        async with self._control.pause(self.ranks):
            await self._group.delete_breakpoint(number)
        self._keep_points()

    async def enable_breakpoint(self, number: int, enabled: bool = True) -> None:
        """Raises BadInput if there is no such number."""
        async with self._control.pause(self.ranks):
            await self._group.enable_breakpoint(number, enabled)
        self._keep_points()

    async def set_condition(self, number: int, condition: str) -> None:
        """Stop only if the condition is true; "" removes it. Raises BadInput, GdbError."""
        async with self._control.pause(self.ranks):
            await self._group.set_condition(number, condition)
        self._keep_points()

    async def ignore_hits(self, number: int, count: int) -> None:
        """Make the next `count` hits on each rank not stop it. Raises BadInput."""
        async with self._control.pause(self.ranks):
            await self._group.ignore_hits(number, count)
        self._keep_points()

    def set_commands(self, number: int, lines: Sequence[str]) -> None:
        """Set the lines that a console or a script runs after a stop at it. Raises BadInput."""
        self._group.table.change(number, commands=tuple(lines))
        self._keep_points()

    def breakpoints(self) -> tuple[Breakpoint, ...]:
        return self._group.table.all()
