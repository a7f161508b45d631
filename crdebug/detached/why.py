"""Why a job's ranks wait, without stopping any of them: with a debugger or without."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, DeadlineExpired, NotAvailable
from crdebug.base.settings import Settings
from crdebug.job import clocks
from crdebug.job.clocks import RankClock
from crdebug.job.directory import JobDirectory, has_ended, is_alive
from crdebug.job.ranks_there import await_ranks
from crdebug.job.sight import Look, look, sight, without_record
from crdebug.job.verdict_lines import in_words
from crdebug.native.matcher.library import Library
from crdebug.native.matcher.loading import load
from crdebug.node import memory, proc
from crdebug.timeline.recorded import Recorded
from crdebug.timeline.verdict import Standing, Verdict, judge

_WHILE, _WORKS = 1.5, 0.05  # seconds: of waiting for ranks that may go on; of their own work in it


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
    there = await await_ranks(directory, record, Deadline(settings.launch))
    found = clocks.find(there.holds, record.layer)
    run = directory.run(record.incarnation)
    return await told(found, library, lambda: clocks.of_ranks(run))


async def told(
    found: Sequence[RankClock], library: Library, logs: Callable[[], Iterable[Path]]
) -> list[str]:
    """The same of ranks that have these clocks. logs: where they are."""
    size = _size(found)
    recorded = Recorded(library)

    def read() -> list[str]:
        """The record as it is now; what of it cannot be used."""
        try:
            damaged = recorded.read_sound(logs(), memory.available() // 2)
        except (CrdebugError, OSError) as error:
            recorded.forget()
            return [f"the record cannot be used: {error}"]
        return [f"what it did before is not known: {error}" for error in damaged]

    def see(
        seconds: Mapping[int, float], still: frozenset[int]
    ) -> tuple[Verdict, dict[int, Standing], dict[int, Look], list[str]]:
        before, problems = look(found, debugged=False), read()
        after = look(found, debugged=False)
        known = recorded.logs, recorded.matching
        scene, standings = sight(before, after, *known, size, seconds, still)
        return judge(scene, standings), standings, after, problems

    verdict, standings, seen, problems = see({}, frozenset())
    doubtful = verdict.perhaps - verdict.proved
    if doubtful:
        pids = {each.rank: each.pid for each in found if each.rank in doubtful}
        still = await _those_that_stay(pids, seen, lambda: look(found, debugged=False))
        verdict, standings, seen, problems = see({}, still)
    pids = {each.rank: each.pid for each in found}
    said = await in_words(verdict, standings, pids, recorded.logs)
    return [*said, *(problems or without_record(seen, recorded.logs))]


def _size(found: Sequence[RankClock]) -> int:
    """Of the world, as the first rank says that can be asked."""
    for each in found:
        with contextlib.suppress(CrdebugError, OSError):
            return each.read().world
    return len(found)


async def _those_that_stay(
    pids: Mapping[int, int], seen: Mapping[int, Look], again: Callable[[], Mapping[int, Look]]
) -> frozenset[int]:
    """Those of the ranks that are still in the same call after they have worked for a moment (MPIs
    wait by looking again and again), or have slept all the time."""
    ticks = {rank: _worked(pid) for rank, pid in pids.items()}
    hertz = proc.ticks_a_second()

    def all_have_worked() -> bool:
        return all(_worked(pid) - ticks[rank] >= _WORKS * hertz for rank, pid in pids.items())

    with contextlib.suppress(DeadlineExpired):
        await Deadline(_WHILE).until(all_have_worked, "ranks to work")
    now = again()
    idle = {rank for rank, pid in pids.items() if _worked(pid) - ticks[rank] < _WORKS * hertz}

    def clock(looks: Mapping[int, Look], rank: int) -> object:
        found = looks[rank].clock
        return found and (found.now, found.doing)

    same = {rank for rank in pids if clock(seen, rank) == clock(now, rank) is not None}
    return frozenset(rank for rank in same if rank not in idle or _sleeps(pids[rank]))


def _sleeps(pid: int) -> bool:
    """One that has not slept, and not worked, may only have had no processor."""
    try:
        return all(thread.state in "SD" for thread in proc.threads(pid))
    except ProcessLookupError:
        return False


def _worked(pid: int) -> int:
    try:
        return proc.processor_time(pid)
    except ProcessLookupError:
        return 1 << 62  # it will not work any more
