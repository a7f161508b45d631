"""Notice that no rank of a job without a debugger comes further, and tell why."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.base.events import Event
from crdebug.base.settings import Settings
from crdebug.detached.why import why
from crdebug.job import clocks
from crdebug.job.clocks import RankClock
from crdebug.job.directory import JobDirectory, is_alive
from crdebug.job.ranks_there import await_ranks
from crdebug.job.verdict_lines import standstill
from crdebug.travel.stood import Stood

_LOOKS = 8  # in the time after which a standstill is told
_LEAST = 0.25  # seconds between two of them


async def watch(job: str, settings: Settings, tell: Callable[[Event], None]) -> None:
    """For ever; to be cancelled. A job that does not record its MPI calls is not watched.

    A standstill is told once, until a rank has come further.
    """
    patience, told, stood = settings.patience, -1.0, Stood()
    stood.goes_on()
    while patience:
        await asyncio.sleep(max(patience / _LOOKS, _LEAST))
        with contextlib.suppress(CrdebugError, OSError):  # it is restarted, or ends
            found = await _clocks(job, settings)
            stood.look(found)
            quiet, since = stood.quiet
            if found and quiet >= patience and since != told:
                told = since
                if any(clock.read().now.inside for clock in found):
                    tell(standstill(patience, await why(job, settings)))


async def _clocks(job: str, settings: Settings) -> tuple[RankClock, ...]:
    directory = JobDirectory(job)
    record = directory.read()
    if not record.layer or not is_alive(record):
        return ()
    there = await await_ranks(directory, record, Deadline(settings.launch))
    return tuple(clocks.find(there.holds, record.layer))
