"""Sends that an MPI without buffers would never complete. Pure.

MPI lets a standard send wait until its receive is posted (MPI 4.1, 3.4 and 3.5), so a program that
needs its messages to be buffered is unsafe. It is found by another run of the record in which
standard sends wait: where no rank can go on, some wait for each other in a ring, and the sends in
it went well only because of a buffer.

Where it could have gone another way, nothing is said: a message that a receive from anyone has
taken does not hold its sender up; a rank that has tested, probed or received from anyone need not
have waited; and of collectives, members wait only for those whose data they need.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from crdebug.timeline.calls import Call
from crdebug.timeline.cuts import needs_of
from crdebug.timeline.matching import Matching
from crdebug.timeline.needs import NEVER
from crdebug.timeline.tables import STANDARD, UNMATCHED

# Of each rank so many calls are looked at, and so many rings are told apart.
_CALLS, _RINGS = 20_000, 1_000
_EITHER = ("MPI_Test", "MPI_Waitany", "MPI_Waitsome", "MPI_Iprobe", "MPI_Improbe", "MPI_Parrived")


@dataclass(frozen=True, slots=True)
class Unbuffered:
    """sent: the tick of a send of `rank`.  receiver: for whose receive it would wait for ever."""

    rank: int
    sent: int
    receiver: int


@dataclass(slots=True)
class _Runner:
    """A rank in that run. ticks: of its calls.  free: those in which it need not wait.  at: how
    many it has completed.  sends: by the tick at which they completed, the tick of each, its
    receiver, and when the receive was posted."""

    ticks: Sequence[int]
    free: Collection[int]
    sends: dict[int, list[tuple[int, int, int]]]
    at: int = 0

    @property
    def inside(self) -> int:
        """The tick of the call that it is in; NEVER after all of them."""
        return self.ticks[self.at] if self.at < len(self.ticks) else NEVER


def buffered(matching: Matching, calls: Mapping[int, Sequence[Call]]) -> Iterator[Unbuffered]:
    """calls: of all ranks, from the beginning."""
    matching.settle()
    runners = {
        rank: _Runner(
            [call.tick for call in each], _free(matching, rank, each), _sends(matching, rank)
        )
        for rank, each in ((rank, each[:_CALLS]) for rank, each in sorted(calls.items()))
    }
    if not any(runner.sends for runner in runners.values()):
        return
    for _ in range(_RINGS):
        _run(matching, runners)
        ring = _ring(matching, runners)
        if not ring:
            return
        for rank, sent, receiver in ring:
            yield Unbuffered(rank, sent, receiver)
            runner = runners[rank]
            left = [each for each in runner.sends[runner.inside] if each[:2] != (sent, receiver)]
            runner.sends[runner.inside] = left


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
    return None


def _ring(matching: Matching, runners: Mapping[int, _Runner]) -> list[tuple[int, int, int]]:
    """The sends of a ring of ranks that wait for each other: rank, tick, receiver."""
    stuck = [rank for rank, runner in runners.items() if runner.inside != NEVER]
    if not stuck:
        return []
    ring = [stuck[0]]
    while True:
        wants = _awaited(matching, runners, ring[-1])
        if wants is None:  # the rank that it waited for is beyond what is looked at
            return []
        if wants in ring:
            break
        ring.append(wants)
    found = []
    for rank in ring[ring.index(wants) :]:
        runner = runners[rank]
        for sent, receiver, posted in runner.sends.get(runner.inside, ()):
            if runners[receiver].inside < posted:
                found.append((rank, sent, receiver))
                break
    return found
