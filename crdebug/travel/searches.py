"""Finding the first moment at which something holds: `bisect`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crdebug.errors import BadInput
from crdebug.events import Event, Progress
from crdebug.ranks import RankSet
from crdebug.target.group import TargetGroup
from crdebug.timeline.predicate import Predicate
from crdebug.timeline.search import Found, Outcome, first_moment
from crdebug.travel.traveller import Traveller


@dataclass(frozen=True, slots=True)
class First:
    """What a search found. tick: after how many MPI calls of the focused rank it holds first; None
    if it never does. note: what limits the answer, or ""."""

    tick: int | None
    probes: int
    note: str


async def holds(group: TargetGroup, predicate: Predicate) -> bool | None:
    """Whether a predicate holds where the ranks stand; None where it cannot be evaluated."""
    answers = {}
    for expression in predicate.expressions:
        told = await group.evaluate(predicate.ranks, expression)
        if told.errors:
            return None
        answers[expression] = told.values
    return predicate.value(answers)


async def bisect(
    traveller: Traveller, predicate: Predicate, focus: int, tell: Callable[[Event], None]
) -> First:
    """The first tick of the focused rank after which a predicate holds, by bisection over
    checkpoints and then ticks. Leaves the job there. Raises BadInput when nothing can be asked."""
    group = traveller.job.group
    end = 2 * (traveller.frontier[focus] // 2) - 1  # the last call that returned
    starts = sorted({base.cut[focus] | 1 for base in traveller.bases()})
    coarse = [start for start in starts if 0 < start < end] + [end]
    if end < 1:
        raise BadInput("there is no history to search: no MPI call has completed")
    search = first_moment(coarse, lambda low, high: range(low, high, 2))
    try:
        place = next(search)
        while True:
            tell(Progress("bisect", f"tick {place // 2 + 1}", RankSet.of([focus])))
            await traveller.to_cut(traveller.cut_for(focus, place), focus)
            place = search.send(await holds(group, predicate))
    except StopIteration as ended:
        found: Found = ended.value
    if found.outcome is Outcome.NEVER:
        return First(None, found.probes, found.note or "")
    assert found.at is not None
    await traveller.to_cut(traveller.cut_for(focus, found.at), focus)
    return First(found.at // 2 + 1, found.probes, found.note or "")
