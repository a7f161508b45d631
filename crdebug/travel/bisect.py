"""Finding the first moment at which something holds: `bisect`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from crdebug.base.errors import BadInput
from crdebug.base.events import Event, Progress
from crdebug.base.instant import Instant
from crdebug.base.ranks import RankSet
from crdebug.debugger.group import TargetGroup
from crdebug.timeline.predicate import Predicate
from crdebug.timeline.search import Found, Outcome, first_moment
from crdebug.travel.arrival import joined
from crdebug.travel.branching import Branching
from crdebug.travel.seek import Traveller


@dataclass(frozen=True, slots=True)
class First:
    """The result of a search.

    tick: the number of MPI calls of the focused rank after which it first holds; None if it does
        not hold at the end.
    note: further remarks for the user, or "".
    at_start: it holds where the branch begins.
    """

    tick: int | None
    probes: int
    note: str
    at_start: bool = False


async def holds(group: TargetGroup, predicate: Predicate) -> bool | None:
    """Does a predicate hold where the ranks stand? None if it cannot be evaluated there."""
    answers = {}
    for expression in predicate.expressions:
        told = await group.evaluate(predicate.ranks, expression)
        if told.errors:
            return None
        answers[expression] = told.values
    return predicate.value(answers)


async def bisect(
    branching: Branching,
    traveller: Traveller,
    predicate: Predicate,
    focus: int,
    tell: Callable[[Event], None],
) -> First:
    """The first tick of the focused rank after which a predicate holds: on this branch or, if it
    holds where that begins, on the one that it left. Leaves the job there. Raises BadInput when
    nothing can be asked."""
    found, position = await _on_branch(traveller, predicate, focus, tell), traveller.position
    while found.at_start and (start := position.branch_start[focus].tick):
        assert found.tick is not None
        place, first = Instant.within(start), Instant.within(found.tick)
        branch, furthest = branching.current, position.furthest
        await branching.make_way(traveller.cut_for(focus, place))
        earlier = await _on_branch(traveller, predicate, focus, tell)
        looks = found.probes + earlier.probes
        if earlier.tick is not None:
            found = replace(earlier, probes=looks)
            continue
        await branching.to(branch, branching.branches.get(branch).cut)
        position.return_to(furthest)
        arrival = await traveller.to_cut(traveller.cut_for(focus, first), focus)
        note = joined(f"branch {branch} begins before that call", arrival.text)
        return First(found.tick, looks, note)
    return found


async def _on_branch(
    traveller: Traveller, predicate: Predicate, focus: int, tell: Callable[[Event], None]
) -> First:
    """The first tick on this branch, of the focused rank, after which a predicate holds, by
    bisection over checkpoints and then ticks. Leaves the job there. Raises BadInput when nothing
    can be asked."""
    group = traveller.job.group
    last = min(traveller.position.furthest[focus], traveller.recorded.tails()[focus])
    end = last.tick  # of the last call that returned
    starts = sorted({base.cut[focus].before_return.entered for base in traveller.bases()})
    coarse = [start for start in starts if start < end] + [end]
    if end < 1:
        raise BadInput("there is no history to search: no MPI call has completed")
    search = first_moment(coarse, range)
    try:
        tick = next(search)
        while True:
            tell(Progress("bisect", f"tick {tick}", RankSet.of([focus])))
            await traveller.to_cut(traveller.cut_for(focus, Instant.within(tick)), focus)
            tick = search.send(await holds(group, predicate))
    except StopIteration as ended:
        found: Found = ended.value
    if found.outcome is Outcome.NEVER:
        return First(None, found.probes, found.failures or "")
    assert found.at is not None
    arrival = await traveller.to_cut(traveller.cut_for(focus, Instant.within(found.at)), focus)
    at_start = found.outcome is Outcome.AT_START
    return First(found.at, found.probes, joined(found.note, arrival.text), at_start)
