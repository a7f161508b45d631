"""The calls that the ranks of a session's job are in, where it stands."""

from __future__ import annotations

from crdebug.base.ranks import RankSet
from crdebug.job.verdict_lines import calls_in_words
from crdebug.timeline.under_way import UnderWay
from crdebug.travel.recorded_job import RecordedJob
from crdebug.travel.why import Seen, seen


async def under_way(recorded: RecordedJob) -> tuple[UnderWay, ...]:
    """Those that are not on record yet, by rank. Raises Refused if there is too little memory for
    the record."""
    found = await seen(recorded)
    return tuple(
        UnderWay(each.asked, rank in found.verdict.needs)
        for rank, each in sorted(found.standings.items())
        if each.asked is not None
    )


async def waits_in(recorded: RecordedJob, rank: int) -> str:
    """Where the rank waits: "in MPI_Recv from 0, tag 7 (exchange.c:41), since tick 3"; "" if it
    does not wait in a call that is not on record yet."""
    found = await seen(recorded)
    if rank not in found.verdict.needs:
        return ""
    (line,) = await _lines(found, RankSet.of([rank]))
    return line.removeprefix(f"{rank} waits ")


async def in_words(recorded: RecordedJob) -> list[str]:
    """A line for each class of ranks that are in such a call alike: "1 waits in MPI_Recv from 0,
    tag 7 (exchange.c:41), since tick 3"."""
    return await _lines(await seen(recorded), recorded.job.group.ranks)


async def _lines(found: Seen, ranks: RankSet) -> list[str]:
    return await calls_in_words(found.verdict, found.standings, found.places, found.logs, ranks)
