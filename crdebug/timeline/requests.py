"""Requests and communicators that the ranks hold at a cut: `info requests`, `info comms`. Pure.

Which requests a rank holds its memory says, and not the record: an MPI may give one handle for
several sends that are complete at once, and then the record does not say which were waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from crdebug.base.instant import Cut
from crdebug.base.ranks import RankSet
from crdebug.native.recorder.clock import Request
from crdebug.timeline.calls import Call, Kind, entered_last
from crdebug.timeline.collectives import Instance
from crdebug.timeline.findings import Finding, Spot, Weight
from crdebug.timeline.log import RankLog
from crdebug.timeline.matching import Matching
from crdebug.timeline.messages import collective_of, message
from crdebug.timeline.tables import UNKNOWN, UNMATCHED

_FREES = ("MPI_Comm_free", "MPI_Comm_disconnect", "MPI_Win_free")


def held_requests(
    matching: Matching,
    calls: Mapping[int, Sequence[Call]],
    cut: Cut,
    held: Mapping[int, Sequence[Request]],
) -> Iterator[Finding]:
    """What is known of each request: its tag, and how far the other side is at the cut.

    held: by rank, what it holds there.
    """
    for rank, requests in held.items():
        for each in requests:
            if each.is_shared:
                continue
            call = entered_last(calls[rank], each.tick)
            if call is None or call.tick != each.tick:  # it is not on record any more
                yield Finding(Weight.OPEN, Spot(rank, each.tick, each.site, "a request"), "is held")
                continue
            at = Spot(rank, call.tick, call.site, call.name)
            if each.is_persistent:
                tag = f"of tag {call.tag}: " if call.tag is not None else ""
                state = "started" if each.is_active else "not started"
                yield Finding(Weight.OPEN, at, f"{tag}{state}; with", peer=call.peer)
            elif call.kind is Kind.POST_COLLECTIVE:
                yield from _collective(at, collective_of(matching, call), cut)
            else:
                yield from _messages(matching, at, cut)


def _collective(at: Spot, instance: Instance | None, cut: Cut) -> Iterator[Finding]:
    entered = instance.entered if instance is not None else {}
    missing = {*(instance.missing if instance is not None else ())}
    missing |= {rank for rank, tick in entered.items() if tick > cut[rank].entered}
    for rank in sorted(missing):
        yield Finding(Weight.OPEN, at, "not called yet by", peer=rank)
    if instance is not None and not missing:
        yield Finding(Weight.OPEN, at, "called by all")


def _messages(matching: Matching, at: Spot, cut: Cut) -> Iterator[Finding]:
    state = matching.ranks[at.rank]
    for row in state.receives.at(at.tick):
        receives = state.receives
        peer, tag, partner = receives.peer[row], receives.tag[row], receives.partner[row]
        what = "of any tag" if tag == UNKNOWN else f"of tag {tag}"
        if receives.wild[row] and receives.done[row] > cut[at.rank].tick:
            yield Finding(Weight.OPEN, at, f"{what}, from any rank: not received yet")
            continue
        sends = matching.ranks[peer].sends if peer in matching.ranks else None
        known = sends is not None and partner != UNMATCHED
        sent = known and sends.tick[partner] <= cut[peer].entered  # type: ignore[union-attr]
        yield Finding(Weight.OPEN, at, f"{what}: {'' if sent else 'not '}sent by", peer=peer)
    for row in state.sends.at(at.tick):
        one = message(matching, at.rank, row)
        now = cut[one.receiver] if one.receiver < len(cut) else None
        what = f"of tag {one.tag}, {one.bytes} bytes"
        if now is not None and one.received is not None and one.received <= now.tick:
            how = "received by"
        elif now is not None and one.posted is not None and one.posted <= now.entered:
            how = "its receive is posted by"
        else:
            how = "no receive is posted by"
        yield Finding(Weight.OPEN, at, f"{what}: {how}", peer=one.receiver)


@dataclass(frozen=True, slots=True)
class Communicator:
    """One that ranks have made, or a window. members: world ranks, in their order in it.
    freed: ranks that have freed it.  collectives: how many all members have called."""

    name: str
    members: tuple[int, ...]
    freed: RankSet
    collectives: int


def communicators(
    matching: Matching, logs: Mapping[int, RankLog], places: Mapping[int, int], cut: Cut
) -> list[Communicator]:
    """Those that exist, or existed, where the ranks are; in the order of being made.

    places: by rank, how many records there are of what it has done.
    """
    names: dict[str, tuple[int, ...]] = {}
    for rank, log in sorted(logs.items()):
        for name, members in log.made_before(places[rank]):
            if name != "self":
                names.setdefault(name, members)
    found = []
    for name, members in names.items():
        succession = matching.successions.get(name)
        entered = succession.entered if succession is not None else {}
        counts, freed = [], []
        for rank in members:
            ticks = entered.get(rank)
            called = ticks.first_at(cut[rank].entered + 1) if ticks is not None else 0
            counts.append(called)
            if called and succession is not None and succession.name(called - 1) in _FREES:
                freed.append(rank)
        least = min(counts, default=0)
        found.append(Communicator(name, members, RankSet.of(freed), least))
    return found
