"""What the records leave open: calls that are under way, and receives that are not complete.

A rank's call is recorded when it returns. When all ranks stand, each may be inside one call that is
not on record, and others may have what came from it.
"""

from __future__ import annotations

from collections.abc import Iterator

from crdebug.timeline.matching import Matching
from crdebug.timeline.needs import NEVER


def tail(matching: Matching, rank: int) -> int:
    """The tick of the last call of which there is a record; a later one may be under way."""
    state = matching.ranks.get(rank)
    if state is None or not state.calls:
        return 0
    return state.calls[-1].tick + state.calls[-1].repeats - 1


def open_until(matching: Matching, rank: int) -> int:
    """The tick of the last call that posted a wild receive that has not completed, or 0."""
    state = matching.ranks[rank]
    return max((state.receives.tick[index] for index in state.open), default=0)


def unanswered(matching: Matching, absent: int) -> Iterator[tuple[int, int, bool]]:
    """Completions of which a rank's part is not on record: waiter, tick, certainly its call.

    A call is recorded when it returns, so the call that a rank is in may be what others have
    already received, or what received from them, or the collective that they have left. Sends
    may also have gone to a wild receive of which it is not recorded what it got.
    """
    if absent in matching.ranks and matching.ranks[absent].blind:
        return
    for (sender, receiver, _, _), rows in matching.sent.items():
        if receiver == absent != sender:
            sends = matching.ranks[sender].sends
            for row in rows:
                if sends.done[row] != NEVER and sends.waits(row, matching.eager):
                    yield sender, sends.done[row], False
    for receiver, row in received_unsent(matching, absent):
        yield receiver, matching.ranks[receiver].receives.done[row], True
    for (sender, receiver, _, _), probes in matching.looking.items():
        if sender == absent != receiver:
            for _before, tick in probes:
                yield receiver, tick, True
    for succession in matching.successions.values():
        number = len(succession.entered.get(absent, ()))
        if succession.members and absent not in succession.members:
            continue
        for waiter, ticks in succession.completed.items():
            if waiter != absent and number < len(ticks) and ticks[number] != NEVER:
                certain = succession.needs(number, waiter, absent)
                if certain or matching.trees:
                    yield waiter, ticks[number], certain


def received_unsent(matching: Matching, sender: int) -> Iterator[tuple[int, int]]:
    """Receivers, and their receives, that got messages of which there is no send on record."""
    if matching.ranks[sender].blind:
        return
    for (source, receiver, _, _), rows in matching.posted.items():
        if source == sender != receiver:
            receives = matching.ranks[receiver].receives
            for row in rows:
                if receives.done[row] != NEVER:
                    yield receiver, row
