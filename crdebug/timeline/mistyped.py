"""Data that is received or accessed as another type than it has, or in another amount where a call
says both (MPI 4.1, 3.3.1, 6.5 and 12.3)."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence

from crdebug.native.recorder.mpi_types import KIND, Types
from crdebug.timeline.calls import Call, Calls, Head, Kind, entered_last
from crdebug.timeline.findings import Finding, Spot, Weight
from crdebug.timeline.matching import Matching
from crdebug.timeline.tables import UNMATCHED

_BOTH = (Kind.SENDRECV, Kind.POST_SENDRECV)
_HAVE_HALVES = (Kind.COLLECTIVE, Kind.POST_COLLECTIVE, Kind.RMA)
_KINDS = (*dict.fromkeys(KIND.values()),)
_NUMBERS = {name: 1 + _KINDS.index(kind) for name, kind in KIND.items()}  # 0: not known
_ROWS = 1 << 16  # that are looked at together


def mistyped(matching: Matching, calls: Mapping[int, Calls]) -> Iterator[Finding]:
    """Of data without a byte nothing is said, nor where an element's type is not known."""
    used = {types for each in calls.values() for types in each.types()}
    kinds = {KIND[name] for each in used for name in (each.type, each.second) if name}
    if len(kinds) < 2 and not any(each.unequal for each in used):
        return
    sent: dict[int, array[int]] = {}  # by sender and row
    for rank in sorted(matching.ranks.keys() & calls.keys()):
        yield from _within(calls[rank])
        for tick, here, sender, row in _received(matching, rank, calls[rank]):
            if sender not in calls:
                continue
            sends = matching.ranks[sender].sends
            if sender not in sent:
                sent[sender] = _sent(calls[sender], sends.tick)
            there = sent[sender][row]
            if here and there and here != there and sends.bytes[row]:
                yield from _differ(calls[rank], tick, calls[sender], sends.tick[row])


def _received(matching: Matching, rank: int, calls: Calls) -> Iterator[tuple[int, int, int, int]]:
    """The messages that a rank has got: the tick of the call that says the type, that type's
    number, the sender, and the row there."""
    state = matching.ranks[rank]
    grabs, receives = [*state.grabs()], state.receives
    # what a matched probe has taken, MPI_Mrecv says the type of
    said = _numbers(calls.heads([tick for tick, _ in grabs]), received=True)
    probed = {row: (tick, number) for (tick, row), number in zip(grabs, said, strict=True)}
    for first in range(0, len(receives.tick), _ROWS):
        rows = slice(first, first + _ROWS)
        ticks = receives.tick[rows]
        said = _numbers(calls.heads(ticks), received=True)
        found = zip(ticks, said, receives.peer[rows], receives.partner[rows], strict=True)
        for row, (tick, number, sender, partner) in enumerate(found, first):
            if partner != UNMATCHED:
                yield *probed.get(row, (tick, number)), sender, partner


def _numbers(heads: Sequence[Head | None], *, received: bool) -> Iterator[int]:
    """Of the kind of the type of each one; 0 where it is not known."""
    known: dict[int, int] = {}  # by identity: most are the same few
    for each in heads:
        if id(each) not in known:
            name = _type(each.kind, each.types, received=received) if each is not None else ""
            known[id(each)] = _NUMBERS.get(name, 0)
        yield known[id(each)]


def _type(kind: Kind, types: Types, *, received: bool) -> str:
    return types.second if received and kind in _BOTH else types.type


def _sent(calls: Calls, ticks: Sequence[int]) -> array[int]:
    found = array("B")
    for first in range(0, len(ticks), _ROWS):
        found.extend(_numbers(calls.heads(ticks[first : first + _ROWS]), received=False))
    return found


def _differ(receiver: Calls, tick: int, sender: Calls, sent: int) -> Iterator[Finding]:
    taken, came = entered_last(receiver, tick), entered_last(sender, sent)
    assert taken is not None and came is not None, "their heads are on record"
    here = _type(taken.kind, taken.types, received=True)
    says = f"receives {here}, but {came.types.type} comes from"
    yield Finding(Weight.WRONG, _spot(taken), says, _spot(came))


def _within(calls: Calls) -> Iterator[Finding]:
    """Calls whose own halves do not fit: collectives in which a rank is its own partner, and
    one-sided accesses."""
    if not any(each.unequal or _differs(each) for each in calls.types()):
        return
    for call in calls.of(*_HAVE_HALVES):
        # those that failed come too, and a rank may send and receive different types
        says = _misfit(call) if call.kind in _HAVE_HALVES else ""
        if says:
            yield Finding(Weight.WRONG, _spot(call), says)


def _misfit(call: Call) -> str:
    """What does not fit in a call; "" if it does."""
    types = call.types
    if not types.unequal and not (call.bytes and _differs(types)):
        return ""
    if call.kind is Kind.RMA:
        if not types.unequal:
            return f"accesses {types.second} as {types.type}"
        gets = "get" in call.name.lower()
        does, rest = ("receives", "more") if gets else ("sends", "room for fewer")
        return f"{does} {call.bytes} bytes, but names {rest} at the target"
    scatters = "catter" in call.name
    does, other, each = ("receives", "sends", "to") if scatters else ("sends", "receives", "from")
    if types.unequal:
        return f"{does} {call.bytes} bytes, but {other} another number {each} each rank"
    return f"{does} {types.type}, but {other} {types.second}"


def _differs(types: Types) -> bool:
    return bool(types.type and types.second and KIND[types.type] != KIND[types.second])


def _spot(call: Call) -> Spot:
    return Spot(call.rank, call.tick, call.site, call.name)
