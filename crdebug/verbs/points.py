"""Breakpoints."""

from __future__ import annotations

from collections.abc import Sequence

from crdebug.ranks import RankSet
from crdebug.target.breakpoints import Breakpoint
from crdebug.target.interface import BreakpointRequest, PointKind
from crdebug.verbs.core import Core


class Points(Core):
    """The verbs about where ranks stop."""

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
        """location: where; of a watchpoint the expression, of a catchpoint the event, as GDB reads
        them. ignore: hits on each rank that do not stop. One object, with a place on each rank,
        found also in libraries that are loaded later; it survives checkpoint and restart.

        Ranks that cannot have it are in its `problems`; raises GdbError or Refused if none can.
        """
        request = BreakpointRequest(location, condition, temporary, ignore, kind=kind)
        return await self._group.add_breakpoint(ranks, request)

    async def delete_breakpoint(self, number: int) -> None:
        """Raises BadInput for a number that is not there."""
        await self._group.delete_breakpoint(number)

    async def enable_breakpoint(self, number: int, enabled: bool = True) -> None:
        """Raises BadInput for a number that is not there."""
        await self._group.enable_breakpoint(number, enabled)

    async def set_condition(self, number: int, condition: str) -> None:
        """Stop only where it holds; "" takes it away. Raises BadInput, GdbError."""
        await self._group.set_condition(number, condition)

    async def ignore_hits(self, number: int, count: int) -> None:
        """On each rank, the next `count` hits do not stop. Raises BadInput."""
        await self._group.ignore_hits(number, count)

    def set_commands(self, number: int, lines: Sequence[str]) -> None:
        """What a console or a script runs after a stop at it. Raises BadInput."""
        self._group.table.change(number, commands=tuple(lines))

    def breakpoints(self) -> tuple[Breakpoint, ...]:
        return self._group.table.all()
