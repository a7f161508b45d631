"""Data that is received or accessed as another type than it has (MPI 4.1, 3.3.1 and 12.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from crdebug.native.recorder.mpi_types import KIND, NO_TYPES
from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.findings import Finding, Spot, Weight
from crdebug.timeline.matching import Matching
from crdebug.timeline.tables import UNMATCHED

_OF_PROBED = ("MPI_Mrecv", "MPI_Imrecv")
_BOTH = (Kind.SENDRECV, Kind.POST_SENDRECV)


def mistyped(matching: Matching, calls: Mapping[int, Sequence[Call]]) -> Iterator[Finding]:
    """Of data without a byte nothing is said, nor where an element's type is not known."""
    typed = {
        rank: {call.tick: call for call in each if call.types != NO_TYPES}
        for rank, each in calls.items()
    }
    used = {call.types for each in typed.values() for call in each.values()}
    if len({KIND[name] for each in used for name in (each.type, each.second) if name}) < 2:
        return
    for rank, state in sorted(matching.ranks.items()):
        receives = state.receives
        mine = typed.get(rank, {})
        yield from _accesses(mine.values())
        # what a matched probe has taken, MPI_Mrecv says the type of
        probed = {
            state.grabbed(tick): call for tick, call in mine.items() if call.name in _OF_PROBED
        }
        for row, partner in enumerate(receives.partner):
            sender = receives.peer[row]
            if partner == UNMATCHED or sender not in matching.ranks:
                continue
            sends = matching.ranks[sender].sends
            taken = probed.get(row) or mine.get(receives.tick[row])
            sent = typed.get(sender, {}).get(sends.tick[partner])
            if taken is None or sent is None or not sends.bytes[partner]:
                continue
            here = taken.types.second if taken.kind in _BOTH else taken.types.type
            there = sent.types.type
            if here and there and KIND[here] != KIND[there]:
                says = f"receives {here}, but {there} comes from"
                yield Finding(Weight.WRONG, _spot(taken), says, _spot(sent))


def _accesses(calls: Iterable[Call]) -> Iterator[Finding]:
    for call in calls:
        here, there = call.types.type, call.types.second
        if call.kind is Kind.RMA and call.bytes and here and there and KIND[here] != KIND[there]:
            yield Finding(Weight.WRONG, _spot(call), f"accesses {there} as {here}")


def _spot(call: Call) -> Spot:
    return Spot(call.rank, call.tick, call.site, call.name)
