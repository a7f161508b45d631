"""What a job's record shows to be wrong, without a debugger, also when the job has ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crdebug.acquire import source_lines
from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, NotAvailable
from crdebug.base.settings import Settings
from crdebug.job import clocks
from crdebug.job.call_lines import SECONDS, CallLines, CallLinesHere
from crdebug.job.directory import RECORDS, JobDirectory, has_ended, is_alive
from crdebug.job.ranks_there import await_ranks
from crdebug.native.matcher.library import Library
from crdebug.native.matcher.loading import load
from crdebug.node import memory, proc
from crdebug.timeline.check import Record, check
from crdebug.timeline.findings import Finding, merged, report, sites_of
from crdebug.timeline.recorded import Recorded


async def checked(job: str, settings: Settings) -> str:
    """As lines. Nothing is stopped for it.

    Raises NotAvailable for a job without a record, also if it has ended and none was kept;
    BadInput if there was no such job; Refused for one that has ended and is not forgotten yet.
    """
    directory = JobDirectory(job)
    library = await load(settings.compiler)
    try:
        state = directory.read()
    except BadInput:
        if not directory.last_record.is_dir():
            if directory.last_end is None:
                raise
            raise NotAvailable(
                f"no record is kept of job '{job}', which {directory.last_end}",
                hint=f"those of the last jobs are, up to {RECORDS >> 20} MiB in all; 'crdebug run "
                "--report' checks one of any length as the job ends",
            ) from None
        return await of_logs([*directory.last_record.iterdir()], library, over=True)
    if not state.layer:
        raise NotAvailable(
            f"job '{job}' does not record its MPI calls", hint="'crdebug run --record' does"
        )
    run = directory.run(state.incarnation)
    if not is_alive(state):
        # Whoever ended it may be about to forget it, and has moved the logs.
        for place in (clocks.logs(run), directory.last_record):
            if place.is_dir():
                return await of_logs([*place.iterdir()], library, over=True)
        raise has_ended(directory)
    if state.hosts:
        from crdebug.detached.over_hosts import record_there

        async with record_there(directory, state, settings) as far:
            return await of_logs(
                [*far.directory.iterdir()], library, places=far, ranks=len(far.clocks)
            )
    there = await await_ranks(directory, state, Deadline(settings.launch))
    pids = {each.rank: each.pid for each in clocks.find(there.holds, state.layer)}
    return await of_logs(
        [*clocks.logs(run).iterdir()], library, places=CallLinesHere(pids), ranks=len(pids)
    )


async def of_logs(
    files: Sequence[Path],
    library: Library,
    *,
    over: bool = False,
    places: CallLines | None = None,
    ranks: int = 0,
) -> str:
    """The same of logs. files: all of their directory. over: the job has ended. places: of the
    calls, while the processes are there. ranks: how many there are, if no log says it. Raises
    NotAvailable if all logs are damaged, Refused if they are too long for this machine."""
    recorded = Recorded(library)
    damaged = recorded.read_sound(files, memory.available() // 2)
    if damaged and not recorded.logs:
        raise damaged[0]
    size = max((log.world for log in recorded.logs.values()), default=ranks)
    record = Record.of(recorded.matching, recorded.logs, size, over=over)
    found = check(record)
    lines = await _lines(found, files, places)
    caveats = [*map(str, damaged), *record.caveats()]
    return report(merged(found, lambda *site: lines.get(site, "")), caveats)


async def _lines(
    found: Sequence[Finding], files: Sequence[Path], places: CallLines | None
) -> dict[tuple[int, int], str]:
    """By rank and return address."""
    sites = sites_of(found)
    if places is None:
        texts = {
            int(each.stem): each.read_bytes().decode(errors="surrogateescape")
            for each in files
            if each.suffix == ".maps" and each.stem.isdigit()
        }
        maps = {rank: proc.parse_maps(text) for rank, text in texts.items()}
        return await source_lines.lines(sites, Deadline(SECONDS), maps)
    return await places.of(sites)
