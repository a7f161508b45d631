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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from crdebug.timeline.calls import Call, entered_by, entered_last
from crdebug.timeline.collectives import Shape
from crdebug.timeline.matching import Matching
from crdebug.timeline.needs import NEVER
from crdebug.timeline.tables import CERTAIN, STANDARD, UNMATCHED, Why

# Of each rank so many ticks are looked at, and so many rings are told apart.
_TICKS, _RINGS = 20_000, 1_000
_EITHER = ("MPI_Test", "MPI_Waitany", "MPI_Waitsome", "MPI_Iprobe", "MPI_Improbe", "MPI_Parrived")


@dataclass(frozen=True, slots=True)
class Unsafe:
    """tick: of a send, or a collective, of `rank`.  awaited: for whom it would wait for ever.
    there: the tick of the call that has `awaited` wait."""

    rank: int
    tick: int
    awaited: int
    there: int


@dataclass(slots=True)
class _Gathering:
    """A collective of one member, which calls it at `tick`. absent: for all of them, who has not
    come to it, and at which tick it does.  in_any: the member needs them all in any MPI."""

    tick: int
    absent: list[tuple[int, int]]
    in_any: bool


@dataclass(slots=True)
class _Runner:
    """A rank in that run. By the ticks of the calls in which it may have to wait:

    sends: the tick of a send, its receiver, and when the receive was posted.  needs: ranks and what
    they must have entered, in any MPI.  together: a collective.
    wild: the calls in which it has received from anyone.  ticks: of all of these.  at: how many it
    has completed.
    """

    calls: Sequence[Call]
    sends: defaultdict[int, list[tuple[int, int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    needs: defaultdict[int, list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    together: defaultdict[int, list[_Gathering]] = field(default_factory=lambda: defaultdict(list))
    wild: set[int] = field(default_factory=set)
    ticks: Sequence[int] = ()
    at: int = 0

    @property
    def inside(self) -> int:
        """The tick of the call that it is in; NEVER after all of them."""
        return self.ticks[self.at] if self.at < len(self.ticks) else NEVER

    @property
    def call(self) -> Call:
        """The call that it is in, or its last one."""
        call = entered_last(self.calls, self.inside)
        assert call is not None, "who waits is in a call"
        return call

    @property
    def has_a_choice(self) -> bool:
        """Could another course of events have completed the call?"""
        call = self.call
        return self.inside in self.wild or call.wild > 0 or call.name.startswith(_EITHER)


_Runners = Mapping[int, _Runner]


def unsafe(matching: Matching, calls: Mapping[int, Sequence[Call]]) -> Iterator[Unsafe]:
    """calls: of all ranks, from the beginning."""
    matching.settle()
    runners = {
        rank: _Runner(each[: entered_by(each, _TICKS)]) for rank, each in sorted(calls.items())
    }
    for rank, runner in runners.items():
        _messages(matching, rank, runner)
    _collectives(matching, runners)
    for runner in runners.values():
        runner.ticks = sorted({*runner.sends, *runner.needs, *runner.together})
    for _ in range(_RINGS):
        _run(runners)
        ring = _ring(runners)
        if not ring:
            return
        for rank, awaited in ring:
            there = _posted(runners[awaited])
            yield Unsafe(rank, _let_go(runners, rank), awaited, there)


def _messages(matching: Matching, rank: int, runner: _Runner) -> None:
    state = matching.ranks[rank]
    sends, receives = state.sends, state.receives
    for row in range(sends.tick.first_at(_TICKS)):
        peer, partner, done = sends.peer[row], sends.partner[row], sends.done[row]
        if sends.mode[row] == STANDARD and partner != UNMATCHED and done < _TICKS:
            taken = matching.ranks[peer].receives
            if not taken.wild[partner] and not sends.cancelled[row]:
                runner.sends[done].append((sends.tick[row], peer, taken.tick[partner]))
    for row in range(receives.tick.first_at(_TICKS)):
        peer, partner, done = receives.peer[row], receives.partner[row], receives.done[row]
        if partner != UNMATCHED and done < _TICKS:
            runner.needs[done].append((peer, matching.ranks[peer].sends.tick[partner]))
            if receives.wild[row]:
                runner.wild.add(done)
    for other, why, needs in matching.waiting.get(rank, ()):
        if why in CERTAIN and why is not Why.RECEIVED:
            for key, done in zip(needs.keys, needs.values, strict=True):
                if done < _TICKS:
                    runner.needs[done].append((other, key))


def _collectives(matching: Matching, runners: _Runners) -> None:
    for name, succession in matching.successions.items():
        columns, ends, members = succession.entered, succession.completed, {*succession.members}
        for number in range(max(map(len, columns.values()), default=0)):
            shape, root = succession.shape(number), succession.roots[number]
            came = {rank: each[number] for rank, each in columns.items() if number < len(each)}
            if max(came.values()) >= _TICKS:
                break
            between_groups = "|" in name and shape is not Shape.ALL
            if shape is Shape.NOBODY or members - came.keys() or between_groups:
                continue
            absent = [*came.items()]
            for rank, tick in came.items():
                done = ends[rank][number]
                if done >= _TICKS:
                    continue
                if shape is Shape.FROM_ROOT and root != rank and root in came:
                    runners[rank].needs[done].append((root, came[root]))
                in_any = shape is Shape.ALL or (shape is Shape.TO_ROOT and rank == root)
                runners[rank].together[done].append(_Gathering(tick, absent, in_any))


def _run(runners: _Runners) -> None:
    """Until no rank can go on."""
    waiting: defaultdict[int, set[int]] = defaultdict(set)
    ready = set(runners)
    while ready:
        rank = ready.pop()
        runner, before = runners[rank], runners[rank].at
        while runner.inside != NEVER:
            wants = _awaited(runners, rank)
            if wants is None:
                runner.at += 1
            elif runner.has_a_choice:
                runner.at = len(runner.ticks)
            else:
                waiting[wants].add(rank)
                break
        if runner.at > before:
            ready |= waiting.pop(rank, set())


def _held(runners: _Runners, rank: int) -> tuple[int, int, int] | None:
    """The send that it waits for, if it does."""
    runner = runners[rank]
    sends = runner.sends.get(runner.inside, ())
    return next((each for each in sends if runners[each[1]].inside < each[2]), None)


def _needed(runners: _Runners, rank: int) -> int | None:
    """For whom it waits in any MPI."""
    runner = runners[rank]
    needs = runner.needs.get(runner.inside, ())
    return next((each for each, tick in needs if runners[each].inside < tick), None)


def _awaited(runners: _Runners, rank: int) -> int | None:
    """The rank that another one waits for in its call, if it does."""
    held = _held(runners, rank)
    if held is not None:
        return held[1]
    needed = _needed(runners, rank)
    if needed is not None:
        return needed
    gathering = _gathering(runners, rank)
    return gathering.absent[-1][0] if gathering is not None else None


def _gathering(runners: _Runners, rank: int) -> _Gathering | None:
    """The collective that others have not come to, if it is in one."""
    runner = runners[rank]
    for each in runner.together.get(runner.inside, ()):
        while each.absent and runners[each.absent[-1][0]].inside >= each.absent[-1][1]:
            each.absent.pop()
        if each.absent:
            return each
    return None


def _ring(runners: _Runners) -> list[tuple[int, int]]:
    """Of a ring of ranks that wait for each other, those that need not, and for whom."""
    rank = next((rank for rank, runner in runners.items() if runner.inside != NEVER), None)
    ring: dict[int, int] = {}
    while rank is not None and rank not in ring:
        awaited = _awaited(runners, rank)
        if awaited is None:
            return []
        ring[rank] = awaited
        rank = awaited
    found: list[tuple[int, int]] = []
    first = rank
    while rank is not None and (not found or rank != first):
        found.append((rank, ring[rank]))
        rank = ring[rank]
    return [each for each in found if _may_wait(runners, each[0])]


def _posted(runner: _Runner) -> int:
    """The tick of the call that it waits in, or, if that completes one request, of the call that
    posted it."""
    call = runner.call
    return call.completes[0] if len(call.completes) == 1 else call.tick


def _may_wait(runners: _Runners, rank: int) -> bool:
    """Does it wait only because of what an MPI may do?"""
    if _held(runners, rank) is not None:
        return True
    gathering = _gathering(runners, rank)
    return _needed(runners, rank) is None and gathering is not None and not gathering.in_any


def _let_go(runners: _Runners, rank: int) -> int:
    """From here on it does not wait in this call. Returns the tick of the send or collective."""
    runner, held = runners[rank], _held(runners, rank)
    if held is not None:
        runner.sends[runner.inside].remove(held)
        return held[0]
    gathering = _gathering(runners, rank)
    assert gathering is not None, "who may wait is in a send or a collective"
    runner.together[runner.inside].remove(gathering)
    return gathering.tick
