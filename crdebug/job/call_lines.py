"""The source lines of calls, by rank and return address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from crdebug.acquire import source_lines
from crdebug.base.deadline import Deadline

SECONDS = 20.0  # that addr2line may take for big programs


class CallLines(Protocol):
    """Of ranks that may be asked for them, wherever they are."""

    def knows(self, rank: int) -> bool:
        """May this rank be asked?"""
        ...

    async def of(self, sites: Iterable[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """By rank and return address, the line of the call: "heat.c:88". Those that are not known
        are left out."""
        ...


class CallLinesHere:
    """Of ranks on this host. pids: by rank."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._pids = pids

    def knows(self, rank: int) -> bool:
        return rank in self._pids

    async def of(self, sites: Iterable[tuple[int, int]]) -> dict[tuple[int, int], str]:
        wanted = {each: (self._pids[each[0]], each[1]) for each in sites if self.knows(each[0])}
        told = await source_lines.lines(wanted.values(), Deadline(SECONDS))
        return {each: told[address] for each, address in wanted.items() if address in told}
