"""The calls that the ranks of a session's job are in, where it stands."""

from __future__ import annotations

from crdebug.base.ranks import RankSet
from crdebug.job.verdict_lines import calls_in_words
from crdebug.timeline.under_way import UnderWay
from crdebug.travel.recorded_job import RecordedJob
from crdebug.travel.why import seen


def under_way(recorded: RecordedJob) -> tuple[UnderWay, ...]:
    """Those that are not on record yet, by rank. Raises Refused if there is too little memory for
    the record."""
    found = seen(recorded)
    return tuple(
        UnderWay(each.asked, rank in found.verdict.needs)
        for rank, each in sorted(found.standings.items())
        if each.asked is not None
    )


async def waits_in(recorded: RecordedJob, rank: int) -> str:
    """Where the rank waits: "in MPI_Recv from 0, tag 7 (exchange.c:41), since tick 3"; "" if it
    does not wait in a call that is not on record yet."""
    for line in await in_words(recorded, RankSet.of([rank])):
        who, waits, where = line.partition(" waits ")
        if who == str(rank) and waits:
            return where
    return ""


async def in_words(recorded: RecordedJob, ranks: RankSet) -> list[str]:
    """A line for each class of these ranks that are in such a call alike: "1 waits in MPI_Recv from
    0, tag 7 (exchange.c:41), since tick 3"."""
    found = seen(recorded)
    return await calls_in_words(found.verdict, found.standings, found.pids, found.logs, ranks)
