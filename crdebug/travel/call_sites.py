"""MPI calls as the ranks' debuggers see them: which line called, and how to return there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import replace

from crdebug.attached.job import AttendedJob
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, Refused
from crdebug.base.events import Location, StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger.frames import to_level
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.rank_commands import call_sites
from crdebug.debugger.target import Target
from crdebug.debugger.threads import library_frames
from crdebug.job.clocks import ClockHandle
from crdebug.travel.replay import quiet

# The first thread, which calls MPI: an interrupt may have selected another one.
_THREAD = 1
_TRIES = 5  # to leave a call
# The MPI's Fortran bindings, which call the layer for the program (pmpi_fortran.c knows them too).
_BINDING = re.compile(r"/libmpi[^/]*(mpifh|usempi|fort)[^/]*$")


async def caller_level(group: TargetGroup, rank: int, layer: str) -> int:
    """The level of the frame that called MPI, of a rank that is inside the layer; else 0."""
    level, _ = await _caller(group[rank], layer, Deadline(group.settings.command))
    return level


async def _caller(target: Target, layer: str, deadline: Deadline) -> tuple[int, Location | None]:
    frames = await library_frames(target, _THREAD, deadline)
    inside = [frame.level for frame in frames if frame.library == layer]
    level = max(inside) + 1 if inside else 0
    while inside and any(
        frame.level == level and _BINDING.search(frame.library) for frame in frames
    ):
        level += 1
    found = [each.location for each in frames if each.level == level]
    return level, found[0] if found else None


async def functions(group: TargetGroup, rank: int) -> list[str]:
    """The functions that a rank is in, the innermost first."""
    deadline = Deadline(group.settings.command)
    frames = await library_frames(group[rank], _THREAD, deadline)
    return [frame.location.function for frame in frames]


async def show_callers(group: TargetGroup, ranks: RankSet, layer: str) -> None:
    """In ranks that are held inside an MPI call, select the frame that called it: users ask about
    their program, not about the inside of the call."""

    async def one(target: Target) -> None:
        deadline = Deadline(group.settings.command)
        await target.select_thread(_THREAD, deadline)
        level, location = await _caller(target, layer, deadline)
        if level and location is not None:
            await to_level(target, level, deadline)
            target.stands(location)

    for error in (await group.ask(ranks, one)).errors.values():
        raise error


async def leave_call(group: TargetGroup, rank: int, layer: str) -> None:
    """Let one rank return from its MPI call; it then stands in its own code."""
    level = await caller_level(group, rank, layer)
    if not level:
        return
    async with quiet(group):
        stop = await group.finish(RankSet.of([rank]), level - 1)
    cause = stop.cause[0]
    # GDB says "finished" only for functions that it knows something about.
    if cause.reason not in (StopReason.FINISH, StopReason.OTHER) or await caller_level(
        group, rank, layer
    ):
        problem = f"it did not leave its MPI call: {cause.reason.value} {cause.detail}"
        raise CrdebugError(problem.rstrip(), ranks=RankSet.of([rank]))


async def leave_hold(job: AttendedJob, clock: ClockHandle) -> None:
    """Take one rank from the hold before a call's return into the user's code."""
    for _ in range(_TRIES):
        now = clock.read().now
        clock.set_stop(now.exit)  # not into the next call
        await leave_call(job.group, clock.rank, job.record.layer)
        if not clock.read().now.inside:
            return
        clock.set_stop(now)
        await _elsewhere_in_the_hold(job.group, clock.rank)
    raise Refused("the rank did not leave its MPI call", ranks=RankSet.of([clock.rank]))


async def _elsewhere_in_the_hold(group: TargetGroup, rank: int) -> None:
    """Run on for a moment: at some instructions in libraries GDB cannot read the stack."""
    async with quiet(group):
        run = asyncio.create_task(group.resume(RankSet.of([rank])))
        begun = Deadline(group.settings.command)
        await begun.until(lambda: run.done() or bool(group.running), "the rank to run")
        await group.interrupt()
        await run


class Sites:
    """The source lines of the places that call MPI, asked once each."""

    def __init__(self, group: TargetGroup) -> None:
        self._group = group
        self._known: dict[tuple[int, int], Location] = {}

    async def find(self, rank: int, sites: Iterable[int]) -> dict[int, Location]:
        """By return address, where the call is."""
        wanted = [site for site in dict.fromkeys(sites) if site and (rank, site) not in self._known]
        for start in range(0, len(wanted), 200):
            some = wanted[start : start + 200]
            deadline = Deadline(self._group.settings.command)
            told = await call_sites(self._group[rank], some, deadline)
            for site, found in zip(some, told, strict=True):
                self._known[rank, site] = replace(found, address=site)
        return {site: self._known[rank, site] for site in sites if (rank, site) in self._known}

    def known(self, rank: int) -> dict[int, Location]:
        """The places that were found for the rank before."""
        return {site: place for (asked, site), place in self._known.items() if asked == rank}
