"""What a running job's record shows to be wrong, without a debugger."""

from __future__ import annotations

from crdebug.acquire import source_lines
from crdebug.base.deadline import Deadline
from crdebug.base.errors import NotAvailable
from crdebug.base.settings import Settings
from crdebug.job import clocks
from crdebug.job.directory import JobDirectory, has_ended, is_alive
from crdebug.job.ranks_there import await_ranks
from crdebug.native.matcher.loading import load
from crdebug.timeline.check import Record, check
from crdebug.timeline.findings import merged, report, sites_of
from crdebug.timeline.recorded import Recorded

_LINES = 20.0  # seconds that addr2line may take for big programs


async def checked(job: str, settings: Settings) -> str:
    """As lines. Nothing is stopped for it.

    Raises NotAvailable for a job without a record, Refused for one that has ended.
    """
    directory = JobDirectory(job)
    state = directory.read()
    if not is_alive(state):
        raise has_ended(directory)
    if not state.layer:
        raise NotAvailable(
            f"job '{job}' does not record its MPI calls", hint="'crdebug run --record' does"
        )
    recorded = Recorded(await load(settings.compiler))
    there = await await_ranks(directory, state, Deadline(settings.launch))
    pids = {each.rank: each.pid for each in clocks.find(there.holds, state.layer)}
    recorded.read(clocks.of_ranks(directory.run(state.incarnation)))
    size = max((log.world for log in recorded.logs.values()), default=len(pids))
    record = Record.of(recorded.matching, recorded.logs, size)
    found = check(record)
    wanted = {each: (pids[each[0]], each[1]) for each in sites_of(found) if each[0] in pids}
    told = await source_lines.lines(wanted.values(), Deadline(_LINES))
    lines = {each: told.get(address, "") for each, address in wanted.items()}
    return report(merged(found, lambda *site: lines.get(site, "")), record.caveats())
