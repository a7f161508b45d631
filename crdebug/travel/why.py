"""Why the ranks of a session's job wait, where the job stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from crdebug.base.errors import CrdebugError, Refused
from crdebug.base.events import Location
from crdebug.base.ranks import RankSet
from crdebug.job.call_lines import CallLines
from crdebug.job.sight import Look, look, sight, without_past, without_record
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
    found = await seen(recorded, stood)
    standings = dict(found.standings)
    for info in recorded.job.group.info():
        each, at = standings[info.rank], info.location
        if each.state is State.COMPUTES and at is not None:
            standings[info.rank] = replace(each, place=_place(at))
    told = await in_words(found.verdict, standings, found.places, found.logs, ranks)
    lines = [*told, *(found.problems or without_record(found.looks, found.logs))]
    return lines, RankSet.of(found.verdict.proved)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the ranks do. looks: at their clocks. places: of their calls. problems: what of the
    record cannot be used."""

    verdict: Verdict
    standings: Mapping[int, Standing]
    looks: Mapping[int, Look]
    logs: Mapping[int, RankLog]
    places: CallLines
    problems: tuple[str, ...] = ()


async def seen(recorded: RecordedJob, stood: Stood | None = None) -> Seen:
    """Look at all ranks. stood: says for how long they have been where they are. Raises Refused if
    there is too little memory for the record."""
    group = recorded.job.group
    debugged = not group.running
    await recorded.refresh(logs=False)
    before = look(recorded.clocks(), debugged=debugged)
    logs: Mapping[int, RankLog]
    try:
        await recorded.refresh()
        problems = tuple(without_past(recorded.read_sound()))
        logs, matching = recorded.so_far.logs, recorded.so_far.matching
    except Refused:
        raise
    except (CrdebugError, OSError) as error:
        logs, matching = {}, Matching(recorded.library)
        problems = (f"the record cannot be used: {error}",)
    await recorded.refresh(logs=False)
    views = recorded.clocks()
    after = look(views, debugged=debugged)
    seconds = stood.seconds(views) if stood is not None else {}
    still = stood.still(views) if stood is not None else ()
    scene, standings = sight(before, after, logs, matching, len(group.ranks), seconds, still)
    places = recorded.call_lines()
    return Seen(judge(scene, standings), standings, after, logs, places, problems)


def _place(at: Location) -> str:
    return f"{at.function} ({at.file}:{at.line})" if at.file and at.line else at.function
