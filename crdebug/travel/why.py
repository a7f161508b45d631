"""Why the ranks of a session's job wait, where the job stands."""

from __future__ import annotations

from dataclasses import replace

from crdebug.base.errors import CrdebugError, Refused
from crdebug.base.events import Location
from crdebug.base.ranks import RankSet
from crdebug.job.sight import look, sight, without_record
from crdebug.job.verdict_lines import in_words
from crdebug.timeline.matching import Matching
from crdebug.timeline.verdict import State, judge
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
    clocks, group = recorded.clocks(), recorded.job.group
    debugged = not group.running
    before, problem = look(clocks, debugged=debugged), ""
    try:
        recorded.read()
        logs, matching = recorded.so_far.logs, recorded.so_far.matching
    except Refused:
        raise
    except (CrdebugError, OSError) as error:
        logs, matching = {}, Matching(recorded.library)
        problem = f"the record cannot be used: {error}"
    after = look(clocks, debugged=debugged)
    size = len(group.ranks)
    seconds, still = stood.seconds(clocks), stood.still(clocks)
    scene, standings = sight(before, after, logs, matching, size, seconds, still)
    for info in group.info():
        each, at = standings[info.rank], info.location
        if each.state is State.COMPUTES and at is not None:
            standings[info.rank] = replace(each, place=_place(at))
    pids = {clock.rank: clock.pid for clock in clocks}
    verdict = judge(scene, standings)
    told = await in_words(verdict, standings, pids, logs, ranks)
    lines = [*told, *([problem] if problem else without_record(after, logs))]
    return lines, RankSet.of(verdict.proved)


def _place(at: Location) -> str:
    return f"{at.function} ({at.file}:{at.line})" if at.file and at.line else at.function
