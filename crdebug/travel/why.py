"""Why the ranks of a session's job wait, where the job stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from crdebug.base.errors import CrdebugError, Refused
from crdebug.base.events import Location
from crdebug.base.ranks import RankSet
from crdebug.job.sight import Look, look, sight, without_record
from crdebug.job.verdict_lines import in_words
from crdebug.timeline.log import RankLog
from crdebug.timeline.matching import Matching
from crdebug.timeline.verdict import Standing, State, Verdict, judge
from crdebug.travel.recorded_job import RecordedJob
from crdebug.travel.stood import Stood


async def why_blocked(recorded: RecordedJob, stood: Stood, ranks: RankSet) -> list[str]:
    """Who waits for whom, who can never go on, and who is waited for, in lines. ranks: only what
    these do is told; the verdict is of all.

    Raises NotAvailable if the job is not recorded.
    """
    return (await judged(recorded, stood, ranks))[0]


async def judged(recorded: RecordedJob, stood: Stood, ranks: RankSet) -> tuple[list[str], RankSet]:
    """The same, and the ranks of which it is proved that they can never go on."""
    found = seen(recorded, stood)
    standings = dict(found.standings)
    for info in recorded.job.group.info():
        each, at = standings[info.rank], info.location
        if each.state is State.COMPUTES and at is not None:
            standings[info.rank] = replace(each, place=_place(at))
    told = await in_words(found.verdict, standings, found.pids, found.logs, ranks)
    problem = (found.problem,) if found.problem else without_record(found.looks, found.logs)
    lines = [*told, *problem]
    return lines, RankSet.of(found.verdict.proved)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the ranks do. looks: at their clocks. pids: of those that can be asked. problem: why the
    record is left alone, "" if it is not."""

    verdict: Verdict
    standings: Mapping[int, Standing]
    looks: Mapping[int, Look]
    logs: Mapping[int, RankLog]
    pids: Mapping[int, int]
    problem: str = ""


def seen(recorded: RecordedJob, stood: Stood | None = None) -> Seen:
    """Look at all ranks. stood: says for how long they have been where they are. Raises Refused if
    there is too little memory for the record."""
    clocks, group = recorded.clocks(), recorded.job.group
    debugged = not group.running
    before, problem = look(clocks, debugged=debugged), ""
    logs: Mapping[int, RankLog]
    try:
        recorded.read()
        logs, matching = recorded.so_far.logs, recorded.so_far.matching
    except Refused:
        raise
    except (CrdebugError, OSError) as error:
        logs, matching = {}, Matching(recorded.library)
        problem = f"the record cannot be used: {error}"
    after = look(clocks, debugged=debugged)
    seconds = stood.seconds(clocks) if stood is not None else {}
    still = stood.still(clocks) if stood is not None else ()
    scene, standings = sight(before, after, logs, matching, len(group.ranks), seconds, still)
    pids = {clock.rank: clock.pid for clock in clocks}
    return Seen(judge(scene, standings), standings, after, logs, pids, problem)


def _place(at: Location) -> str:
    return f"{at.function} ({at.file}:{at.line})" if at.file and at.line else at.function
