"""Breakpoints."""

from __future__ import annotations

from crdebug.ranks import RankSet
from crdebug.target.breakpoints import Breakpoint
from crdebug.target.interface import BreakpointRequest
from crdebug.verbs.core import Core


class Points(Core):
    """The verbs about where ranks stop."""

    async def add_breakpoint(
        self, ranks: RankSet, location: str, *, condition: str = "", temporary: bool = False
    ) -> Breakpoint:
        request = BreakpointRequest(location, condition, temporary)
        return await self._group.add_breakpoint(ranks, request)

    async def delete_breakpoint(self, number: int) -> None:
        """Raises BadInput for a number that is not there."""
        await self._group.delete_breakpoint(number)

    def breakpoints(self) -> tuple[Breakpoint, ...]:
        return self._group.table.all()
