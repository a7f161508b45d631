"""Calls that would wait for ever in another MPI. Pure.

A standard send may wait until its receive is posted, and a collective until all members have come
(MPI 4.1, 3.4, 3.5 and 6.14), so a program that needs messages to be buffered, or the root of a
broadcast to go on, is unsafe. It is found by another run of the record in which these calls wait:
where no rank can go on, some wait for each other in a ring, and it went well only because one of
these calls did not wait.

Where it could have gone another way, nothing is said: a message that a receive from anyone has
taken does not hold its sender up; and a rank that has tested, probed or received from anyone need
not have waited.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from crdebug.timeline.calls import Call
from crdebug.timeline.collectives import Shape
from crdebug.timeline.cuts import needs_of
from crdebug.timeline.matching import Matching
from crdebug.timeline.needs import NEVER
from crdebug.timeline.tables import STANDARD, UNMATCHED

# Of each rank so many calls are looked at, and so many rings are told apart; and of the pairs of
# members of all collectives no more than so many.
_CALLS, _RINGS, _PAIRS = 20_000, 1_000, 1_000_000
_EITHER = ("MPI_Test", "MPI_Waitany", "MPI_Waitsome", "MPI_Iprobe", "MPI_Improbe", "MPI_Parrived")


@dataclass(frozen=True, slots=True)
class Unsafe:
    """tick: of a send, or a collective, of `rank`.  awaited: for whom it would wait for ever."""

    rank: int
    tick: int
    awaited: int


@dataclass(slots=True)
class _Runner:
    """A rank in that run. ticks: of its calls.  free: those in which it need not wait.  at: how
    many it has completed.  sends: by the tick at which they completed, the tick of each, its
    receiver, and when the receive was posted.  together: by the ticks of collectives, the other
    members and theirs."""

    ticks: Sequence[int]
    free: Collection[int]
    sends: dict[int, list[tuple[int, int, int]]]
    together: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    at: int = 0

    @property
    def inside(self) -> int:
        """The tick of the call that it is in; NEVER after all of them."""
        return self.ticks[self.at] if self.at < len(self.ticks) else NEVER


def unsafe(matching: Matching, calls: Mapping[int, Sequence[Call]]) -> Iterator[Unsafe]:
    """calls: of all ranks, from the beginning."""
    matching.settle()
    runners = {
        rank: _Runner(
            [call.tick for call in each], _free(matching, rank, each), _sends(matching, rank)
        )
        for rank, each in ((rank, each[:_CALLS]) for rank, each in sorted(calls.items()))
    }
    _gather(matching, runners)
    if not any(runner.sends or runner.together for runner in runners.values()):
        return
    for _ in range(_RINGS):
        _run(matching, runners)
        ring = _ring(matching, runners)
        if not ring:
            return
        for rank, awaited in ring:
            runner = runners[rank]
            tick, left = runner.inside, runner.sends.get(runner.inside, [])
            held = [each for each in left if runners[each[1]].inside < each[2]]
            if held:
                left.remove(held[0])
                tick = held[0][0]
            else:
                del runner.together[runner.inside]
            yield Unsafe(rank, tick, awaited)


def _sends(matching: Matching, rank: int) -> dict[int, list[tuple[int, int, int]]]:
    found: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    sends = matching.ranks[rank].sends
    for row, mode in enumerate(sends.mode):
        peer, partner, done = sends.peer[row], sends.partner[row], sends.done[row]
        if mode != STANDARD or partner == UNMATCHED or done == NEVER or sends.cancelled[row]:
            continue
        receives = matching.ranks[peer].receives
        if not receives.wild[partner]:
            found[done].append((sends.tick[row], peer, receives.tick[partner]))
    return dict(found)


def _gather(matching: Matching, runners: Mapping[int, _Runner]) -> None:
    """Of those collectives in which not all members need all others (for that see `needs_of`)."""
    pairs = 0
    for succession in matching.successions.values():
        for number in succession.blocking:
            if succession.shape(number) in (Shape.ALL, Shape.NOBODY):
                continue
            there = succession.instance(number)
            pairs += len(there.entered) ** 2
            if pairs > _PAIRS:
                return
            if there.missing:
                continue
            for rank, tick in there.entered.items():
                others = [each for each in there.entered.items() if each[0] != rank]
                runners[rank].together[tick] = others


def _free(matching: Matching, rank: int, calls: Sequence[Call]) -> set[int]:
    """The calls that another course of events could have completed."""
    found = {call.tick for call in calls if call.wild or call.name.startswith(_EITHER)}
    receives = matching.ranks[rank].receives
    return found | {receives.done[row] for row, wild in enumerate(receives.wild) if wild}


def _run(matching: Matching, runners: Mapping[int, _Runner]) -> None:
    """Until no rank can go on."""
    waiting: defaultdict[int, set[int]] = defaultdict(set)
    ready = set(runners)
    while ready:
        rank = ready.pop()
        runner, before = runners[rank], runners[rank].at
        while runner.inside != NEVER:
            wants = _awaited(matching, runners, rank)
            if wants is None:
                runner.at += 1
            elif runner.inside in runner.free:
                runner.at = len(runner.ticks)
            else:
                waiting[wants].add(rank)
                break
        if runner.at > before:
            ready |= waiting.pop(rank, set())


def _awaited(matching: Matching, runners: Mapping[int, _Runner], rank: int) -> int | None:
    """The rank that another one waits for in its call, if it does."""
    inside = runners[rank].inside
    for _, receiver, posted in runners[rank].sends.get(inside, ()):
        if runners[receiver].inside < posted:
            return receiver
    for other, tick in needs_of(matching, rank, inside):
        if other in runners and runners[other].inside < tick:
            return other
    for other, tick in runners[rank].together.get(inside, ()):
        if runners[other].inside < tick:
            return other
    return None


def _ring(matching: Matching, runners: Mapping[int, _Runner]) -> list[tuple[int, int]]:
    """Of a ring of ranks that wait for each other, those that need not, and for whom."""
    stuck = [rank for rank, runner in runners.items() if runner.inside != NEVER]
    if not stuck:
        return []
    ring: dict[int, int] = {}
    rank = stuck[0]
    while rank not in ring:
        awaited = _awaited(matching, runners, rank)
        if awaited is None:
            return []
        ring[rank] = awaited
        rank = awaited
    found: list[tuple[int, int]] = []
    first = rank
    while not found or rank != first:
        found.append((rank, ring[rank]))
        rank = ring[rank]
    return [each for each in found if _may_wait(matching, runners, each[0])]


def _may_wait(matching: Matching, runners: Mapping[int, _Runner], rank: int) -> bool:
    """Does it wait only because of what an MPI may do?"""
    runner = runners[rank]
    if any(runners[each[1]].inside < each[2] for each in runner.sends.get(runner.inside, ())):
        return True
    needed = needs_of(matching, rank, runner.inside)
    if any(other in runners and runners[other].inside < tick for other, tick in needed):
        return False
    return runner.inside in runner.together
