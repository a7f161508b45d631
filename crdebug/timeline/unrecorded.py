"""Calls that are under way and receives that are not complete: the records leave them open.

A rank's call is recorded when it returns. When all ranks stand, each may be inside one call that is
not on record, and others may already have its messages.
"""

from __future__ import annotations

from collections.abc import Iterator

from crdebug.timeline.matching import Matching
from crdebug.timeline.needs import NEVER
from crdebug.timeline.tables import CERTAIN


def tail(matching: Matching, rank: int) -> int:
    """The tick of the last call of which there is a record; a later one may be under way."""
    state = matching.ranks.get(rank)
    return 0 if state is None else state.last


def open_until(matching: Matching, rank: int) -> int:
    """The tick of the last call that posted a wild receive that has not completed, or 0."""
    state = matching.ranks[rank]
    return max((state.receives.tick[index] for index in state.open), default=0)


def unanswered(
    matching: Matching, absent: int, *, many: bool = False
) -> Iterator[tuple[int, int, bool]]:
    """Completions that need a call of `absent` that is not on record: waiter, tick, and whether
    they certainly need it.

    many: more calls than the one that it is in are missing on record.

    A call is recorded when it returns, so the call that a rank is in may be what others have
    already received, or what received from them, or the collective that they have left. Sends may
    also have gone to a wild receive whose message is not recorded.
    """
    if absent in matching.ranks and matching.ranks[absent].blind:
        return
    for sender, receiver, row in matching.unmatched_sends():
        if receiver == absent != sender:
            sends = matching.ranks[sender].sends
            if sends.done[row] != NEVER and sends.waits(row, matching.eager):
                yield sender, sends.done[row], False
    for receiver, row in received_unsent(matching, absent):
        yield receiver, matching.ranks[receiver].receives.done[row], True
    for sender, receiver, tick in matching.unmatched_probes():
        if sender == absent != receiver:
            yield receiver, tick, True
    for waiter, tick, why in matching.unposted(absent):
        yield waiter, tick, why in CERTAIN
    for succession in matching.successions.values():
        number, members = len(succession.entered.get(absent, ())), succession.members
        if members and absent not in members:
            continue
        for waiter, ticks in succession.completed.items():
            if waiter == absent:
                continue
            for at in range(number, len(ticks) if many else min(number + 1, len(ticks))):
                certain = ticks[at] != NEVER and succession.needs(at, waiter, absent)
                if certain or (matching.trees and ticks[at] != NEVER):
                    yield waiter, ticks[at], certain
                if certain:
                    break


def received_unsent(matching: Matching, sender: int) -> Iterator[tuple[int, int]]:
    """Receivers, and their receives, that got messages without a send on record."""
    if matching.ranks[sender].blind:
        return
    for source, receiver, row in matching.unmatched_receives():
        if source == sender != receiver and matching.ranks[receiver].receives.done[row] != NEVER:
            yield receiver, row
