"""Why a job's ranks wait, without stopping any of them: with a debugger or without."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, NotAvailable
from crdebug.base.settings import Settings
from crdebug.job import clocks
from crdebug.job.call_lines import CallLines, CallLinesHere
from crdebug.job.clocks import ClockView, RankClock
from crdebug.job.directory import JobDirectory, has_ended, is_alive
from crdebug.job.ranks_there import await_ranks
from crdebug.job.sight import Look, look, sight, without_past, without_record
from crdebug.job.verdict_lines import in_words
from crdebug.native.matcher.library import Library
from crdebug.native.matcher.loading import load
from crdebug.node import memory, proc
from crdebug.timeline.recorded import Recorded
from crdebug.timeline.verdict import Standing, Verdict, judge

# seconds: of waiting for ranks that may go on; of their own work in it; between two looks
_WHILE, _WORKS, _PAUSE = 1.5, 0.05, 0.02


async def why(job: str, settings: Settings) -> list[str]:
    """Who waits for whom, who can never go on, and who is waited for, in lines.

    Where it depends on whether ranks go on by themselves, it waits a moment for that. Raises
    NotAvailable for a job without a record, Refused for one that has ended.
    """
    directory = JobDirectory(job)
    record = directory.read()
    if not is_alive(record):
        raise has_ended(directory)
    if not record.layer:
        raise NotAvailable(
            f"job '{job}' does not record its MPI calls, and so what its ranks wait for",
            hint=f"'crdebug attach {job}', then 'why-blocked' asks their stacks",
        )
    library = await load(settings.compiler)
    if record.hosts:
        from crdebug.detached.over_hosts import record_there

        async with record_there(directory, record, settings) as far:

            async def refresh(logs: bool) -> None:
                await far.refresh(logs=logs)

            return await _told(
                far.clocks, library, lambda: clocks.in_directory(far.directory), far, refresh
            )
    there = await await_ranks(directory, record, Deadline(settings.launch))
    found = clocks.find(there.holds, record.layer)
    run = directory.run(record.incarnation)
    return await told(found, library, lambda: clocks.of_ranks(run))


async def told(
    found: Sequence[RankClock], library: Library, logs: Callable[[], Iterable[Path]]
) -> list[str]:
    """The same of ranks that have these clocks. logs: where they are."""

    async def is_fresh(_: bool) -> None:
        """They are looked at when they are asked."""

    places = CallLinesHere({each.rank: each.pid for each in found})
    return await _told(found, library, logs, places, is_fresh)


async def _told(
    found: Sequence[ClockView],
    library: Library,
    logs: Callable[[], Iterable[Path]],
    places: CallLines,
    refresh: Callable[[bool], Awaitable[None]],
) -> list[str]:
    """refresh: has the ranks looked at, and, if so, their logs."""
    size = _size(found)
    recorded = Recorded(library)

    def read() -> list[str]:
        """The record as it is now; what of it cannot be used."""
        try:
            damaged = recorded.read_sound(logs(), memory.available() // 2)
        except (CrdebugError, OSError) as error:
            recorded.forget()
            return [f"the record cannot be used: {error}"]
        return [*without_past(damaged)]

    async def see(
        seconds: Mapping[int, float], still: frozenset[int]
    ) -> tuple[Verdict, dict[int, Standing], dict[int, Look], list[str]]:
        await refresh(False)
        before = look(found, debugged=False)
        await refresh(True)
        problems = read()
        await refresh(False)
        after = look(found, debugged=False)
        known = recorded.logs, recorded.matching
        scene, standings = sight(before, after, *known, size, seconds, still)
        return judge(scene, standings), standings, after, problems

    verdict, standings, seen, problems = await see({}, frozenset())
    doubtful = verdict.perhaps - verdict.proved
    if doubtful:
        those = {each.rank: each for each in found if each.rank in doubtful}
        still = await _those_that_stay(those, seen, refresh)
        verdict, standings, seen, problems = await see({}, still)
    said = await in_words(verdict, standings, places, recorded.logs)
    return [*said, *(problems or without_record(seen, recorded.logs))]


def _size(found: Sequence[ClockView]) -> int:
    """Of the world, as the first rank says that can be asked."""
    for each in found:
        with contextlib.suppress(CrdebugError, OSError):
            return each.read().world
    return len(found)


async def _those_that_stay(
    ranks: Mapping[int, ClockView],
    seen: Mapping[int, Look],
    refresh: Callable[[bool], Awaitable[None]],
) -> frozenset[int]:
    """Those of the ranks that are still in the same call after they have worked for a moment (MPIs
    wait by looking again and again), or have slept all the time."""
    ticks = {rank: _worked(each) for rank, each in ranks.items()}
    least, limit = _WORKS * proc.ticks_a_second(), Deadline(_WHILE)
    while limit.left and any(_worked(each) - ticks[rank] < least for rank, each in ranks.items()):
        await asyncio.sleep(_PAUSE)
        await refresh(False)
    now = look(ranks.values(), debugged=False)
    idle = {rank for rank, each in ranks.items() if _worked(each) - ticks[rank] < least}

    def clock(looks: Mapping[int, Look], rank: int) -> object:
        found = looks[rank].clock
        return found and (found.now, found.doing)

    same = {rank for rank in ranks if clock(seen, rank) == clock(now, rank) is not None}
    # One that has not slept, and not worked, may only have had no processor.
    return frozenset(rank for rank in same if rank not in idle or ranks[rank].sleeps)


def _worked(clock: ClockView) -> int:
    try:
        return clock.worked()
    except ProcessLookupError:
        return 1 << 62  # it will not work any more
