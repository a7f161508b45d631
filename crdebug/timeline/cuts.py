"""Cuts: positions of the whole job that it can be brought to by execution.

A cut is an instant of each rank. It is consistent if no receive that has completed at
it matches a send that has not been entered (Chandy and Lamport 1985; here the records prove it).
It is reachable if in addition no call has completed that needs a rank to go beyond its place: all
ranks are stopped at the cut, so everything that a rank waited for must be before it.

All rules have the form "P's call of tick t completes only if Q has entered its call of tick u". If
two cuts keep such rules, so does the one with the later instant of each rank; so there is a
greatest cut below a frontier with the focused rank at a given place, and lowering instants until
nothing is violated finds it. A rule too many costs little: a rank is held inside a call that it
could have left. A rule too few is a position that is never reached; so where MPI libraries differ,
the rule is kept unless the run itself has disproved it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from crdebug.base.errors import BadInput, Refused
from crdebug.base.instant import BEGINNING, Cut, Instant
from crdebug.base.ranks import RankSet
from crdebug.timeline.calls import Call
from crdebug.timeline.collectives import Instance
from crdebug.timeline.matching import Matching
from crdebug.timeline.messages import Message, collective_of, message
from crdebug.timeline.needs import NEVER
from crdebug.timeline.tables import CERTAIN
from crdebug.timeline.unrecorded import open_until, received_unsent, tail, unanswered


def is_consistent(matching: Matching, cut: Cut) -> Message | None:
    """None, or a message that was received in the cut and is sent after it."""
    for sender, receiver, received in matching.received():
        least = received.least(cut[sender].entered + 1, NEVER)
        if least <= cut[receiver].tick:
            slot = received.values.index(least)
            sends = matching.ranks[sender].sends
            while received.keys[slot] <= cut[sender].entered:
                slot = received.values.index(least, slot + 1)
            for index in sends.at(received.keys[slot]):
                if sends.peer[index] == receiver and sends.slot[index] == slot:
                    return message(matching, sender, index)
    for sender in matching.ranks:
        sent = tail(matching, sender) + 1  # the only call that can be under way, and not on record
        if cut[sender].entered < sent:
            for receiver, row in received_unsent(matching, sender):
                receives = matching.ranks[receiver].receives
                if receives.done[row] <= cut[receiver].tick:
                    comm, posted = matching.comm_name(receives.comm[row]), receives.tick[row]
                    found = Message(sender, sent, receiver, comm, receives.tag[row], 0)
                    return replace(found, posted=posted, received=receives.done[row])
    return None


def past(
    matching: Matching, focus: int, now: Instant, *, size: int, ended: Collection[int] = ()
) -> Cut:
    """The least instants of all ranks that the focused rank's place implies, by causality.

    A call that the focused rank is inside counts as completed if it ever was: the rank is held just
    before it returns.
    """
    matching.settle()
    cut = [BEGINNING] * size
    cut[focus] = now
    under_way = [
        (waiter, tick, other, tail(matching, other) + 1)
        for other in matching.ranks
        for waiter, tick, certain in unanswered(matching, other, many=other in ended)
        if certain
    ]
    changed = {focus}
    while changed:
        rank = changed.pop()
        done = cut[rank].entered if rank == focus else cut[rank].tick
        needed = [*needs_of(matching, rank, done)]
        needed += [need[2:] for need in under_way if need[0] == rank and need[1] <= done]
        for other, tick in needed:
            if other != rank and cut[other] < (needs := Instant.within(tick)):
                cut[other] = needs
                changed.add(other)
    return tuple(cut)


def needs_of(matching: Matching, rank: int, done: int) -> Iterator[tuple[int, int]]:
    """Ranks, and the calls of theirs that they had entered for certain before this rank completed
    its calls up to `done`."""
    for other, why, needs in matching.waiting.get(rank, ()):
        if why in CERTAIN and other != rank:
            tick = needs.needed_by(done)
            if tick:
                yield other, tick
    for succession in matching.successions.values():
        yield from succession.past(rank, done)


def latest_cut(
    matching: Matching, focus: int, now: Instant, frontier: Cut, ended: Collection[int] = ()
) -> Cut:
    """The greatest reachable cut <= frontier in which the focused rank stands at `now`.

    ended: ranks whose record ends at the frontier, though they went on. Whatever others have from
    their later calls is beyond the cut. Raises BadInput if the frontier does not reach that far,
    Refused if the focused rank has, or may have needed, something from such a later call.
    """
    if not 0 <= now <= frontier[focus]:
        raise BadInput(
            f"rank {focus} has not been at half tick {now}",
            hint=f"its history ends at half tick {frontier[focus]}",
        )
    # The instants that the focus implies are below the frontier, unless it disproves a rule.
    implied = past(matching, focus, now, size=len(frontier), ended=ended)
    if any(implied[rank] > frontier[rank] for rank in ended):
        raise _beyond(focus, frontier, ended)
    below = [min(least, most) for least, most in zip(implied, frontier, strict=True)]
    floors = [least.tick for least in below]
    floors[focus] = now.entered
    cut = [*frontier]
    cut[focus] = now
    changed = {focus, *ended}
    cut_short = {
        *ended
    }  # and who is further back because of them: no run disproves a rule for these
    while changed:
        absent = changed.pop()
        first, last = cut[absent].entered + 1, frontier[absent].entered
        last += absent in ended  # there is more, which is not on record
        if first > last:
            continue
        known = [-1] * len(cut) if absent in cut_short else floors
        short = absent in ended
        for waiter, tick in _held_up(matching, absent, first, last, known, ended=short):
            if tick <= floors[waiter]:
                raise _beyond(focus, frontier, ended)
            limit = max(Instant.within(tick), below[waiter])
            if waiter != focus and cut[waiter] > limit:
                cut[waiter] = limit
                changed.add(waiter)
                if absent in cut_short:
                    cut_short.add(waiter)
    return tuple(cut)


def _beyond(focus: int, frontier: Cut, ended: Collection[int]) -> Refused:
    ends = ", ".join(f"that of rank {rank} at tick {frontier[rank].tick}" for rank in ended)
    return Refused(
        f"to get there, rank {focus} needs calls that others made after their records ended",
        ranks=RankSet.of(ended),
        hint=f"go further back; records end: {ends}",
    )


def _held_up(
    matching: Matching, absent: int, first: int, last: int, floors: Sequence[int], *, ended: bool
) -> Iterator[tuple[int, int]]:
    """Ranks, and the calls that they cannot complete while `absent` has not entered its call of
    tick `first`.

    Rules about calls after `last` do not count: the frontier keeps or disproves them.
    """
    for waiter, _why, needs in matching.awaited.get(absent, ()):
        if waiter != absent:
            tick = needs.least(first, last, floors[waiter])
            if tick != NEVER:
                yield waiter, tick
    for succession in matching.successions.values():
        yield from succession.held_up(absent, first, last, floors, trees=matching.trees)
    if last > tail(matching, absent) or first <= open_until(matching, absent):
        for waiter, tick, _certain in unanswered(matching, absent, many=ended):
            if tick > floors[waiter]:
                yield waiter, tick


def with_last(matching: Matching, instance: Instance, size: int) -> Instance:
    """The collective, with the rank that entered it last if causality orders the arrivals.

    All others had entered before that rank did: its earlier calls imply their entries.
    """
    for rank, tick in instance.entered.items():
        before = past(matching, rank, Instant.before(tick), size=size)
        if all(
            before[other] >= Instant.within(entry)
            for other, entry in instance.entered.items()
            if other != rank
        ):
            return replace(instance, last=rank)
    return instance


def last_arriver(matching: Matching, call: Call, size: int) -> int | None:
    """The rank that was last to enter the call's collective; None if causality does not order the
    arrivals."""
    instance = collective_of(matching, call)
    return (
        None if instance is None or instance.missing else with_last(matching, instance, size).last
    )
