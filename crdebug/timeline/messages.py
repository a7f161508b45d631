"""Messages and collectives as the user sees them, over calls that have been matched.

The sender of a message and its receiver, messages that are on their way at a cut, and messages that
nobody received or sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from crdebug.base.instant import Cut
from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.collectives import Instance, communicator_of
from crdebug.timeline.matching import Matching
from crdebug.timeline.tables import UNKNOWN, UNMATCHED, Why, ended


@dataclass(frozen=True, slots=True)
class Message:
    """A send and the receive that got it, if there is one yet.

    sent: tick of the call that sends; send_done: of the one that completed it, if it has.
    posted: tick of the call that posted the receive; received: of the one that completed it.
    """

    sender: int
    sent: int
    receiver: int
    comm: str
    tag: int
    bytes: int
    send_done: int | None = None
    posted: int | None = None
    received: int | None = None
    wild: bool = False


@dataclass(frozen=True, slots=True)
class Pending:
    """A receive that has not completed, and what is known of its message.

    sent: the tick of the send on `sender` that it will get, if that is known already.
    """

    receiver: int
    posted: int
    comm: str
    sender: int | None = None
    tag: int | None = None
    wild: bool = False
    sent: int | None = None


def message(matching: Matching, sender: int, index: int) -> Message:
    """The message of a row in the table of the sender's sends."""
    sends = matching.ranks[sender].sends
    receiver, partner = sends.peer[index], sends.partner[index]
    found = Message(
        sender,
        sends.tick[index],
        receiver,
        matching.comm_name(sends.comm[index]),
        sends.tag[index],
        sends.bytes[index],
        ended(sends.done[index]),
    )
    if partner == UNMATCHED:
        return found
    receives = matching.ranks[receiver].receives
    return replace(
        found,
        posted=receives.tick[partner],
        received=ended(receives.done[partner]),
        wild=bool(receives.wild[partner]),
    )


def messages(matching: Matching) -> Iterator[Message]:
    """All sends, rank by rank, in order; received or not, but not those that were cancelled."""
    for rank, state in sorted(matching.ranks.items()):
        for index in range(len(state.sends.tick)):
            if not state.sends.cancelled[index]:
                yield message(matching, rank, index)


def unmatched(matching: Matching) -> Iterator[Message]:
    """Sends for which no receive has been posted, as far as is known."""
    for sender, _receiver, index in sorted(matching.unmatched_sends(), key=lambda row: row[::2]):
        yield message(matching, sender, index)


def pending(matching: Matching, cut: Cut) -> Iterator[Pending]:
    """Receives posted at a cut, or before, and not completed at it."""
    for rank, state in sorted(matching.ranks.items()):
        receives = state.receives
        done = receives.done[: receives.tick.first_at(cut[rank].entered + 1)]
        for index in [at for at, tick in enumerate(done) if tick > cut[rank].tick]:
            if receives.cancelled[index]:
                continue
            wild, partner = bool(receives.wild[index]), receives.partner[index]
            # at the cut, what a wild receive will get is not decided; but the history knows
            peer, tag = receives.peer[index], receives.tag[index]
            known = peer != UNKNOWN and partner != UNMATCHED
            yield Pending(
                rank,
                receives.tick[index],
                matching.comm_name(receives.comm[index]),
                None if peer == UNKNOWN else peer,
                None if tag == UNKNOWN else tag,
                wild,
                matching.ranks[peer].sends.tick[partner] if known else None,
            )


def in_flight(matching: Matching, cut: Cut) -> Iterator[Message]:
    """Messages that were sent before the cut (the send was entered) and not received at it."""
    for sender, receiver, received in matching.received():
        sends = matching.ranks[sender].sends
        for slot in received.open_at(cut[sender].entered, cut[receiver].tick):
            index = _of_slot(matching, sender, receiver, received.keys[slot], slot)
            if index is not None and not sends.cancelled[index]:
                yield message(matching, sender, index)


def _of_slot(matching: Matching, sender: int, receiver: int, tick: int, slot: int) -> int | None:
    sends = matching.ranks[sender].sends
    for index in sends.at(tick):
        if sends.peer[index] == receiver and sends.slot[index] == slot:
            return index
    return None


def received_by(matching: Matching, call: Call) -> tuple[Message, ...]:
    """The messages that the call received, or that the receives it posted will get.

    For goto-sender. Empty if it receives nothing, or nothing has been sent yet.
    """
    state = matching.ranks.get(call.rank)
    if state is None:
        return ()
    receives = state.receives
    rows = [*receives.at(call.tick)]
    for tick in (call.tick, *call.completes):
        rows += [i for i in receives.at(tick) if receives.done[i] == call.tick]
        taken = state.grabbed(tick)  # what a matched probe took
        rows += [taken] if taken is not None else []
    found = [
        message(matching, receives.peer[i], receives.partner[i])
        for i in dict.fromkeys(rows)
        if receives.partner[i] != UNMATCHED
    ]
    if call.kind is Kind.PROBE and not found:
        found = [*_probed(matching, call)]
    return tuple(found)


def _probed(matching: Matching, call: Call) -> Iterator[Message]:
    for sender, why, needs in matching.waiting.get(call.rank, ()):
        if why is Why.LOOKED and sender == call.peer:
            sends, sent = matching.ranks[sender].sends, needs.key_of(call.tick)
            for index in () if sent is None else sends.at(sent):
                if sends.peer[index] == call.rank and sends.tag[index] == call.tag:
                    yield message(matching, sender, index)


def made_ready(matching: Matching, call: Call) -> tuple[int, int] | None:
    """For a call that says that a partition has arrived: the rank that sends it, and the tick of
    the call after which all of it was ready."""
    for sender, why, needs in matching.waiting.get(call.rank, ()):
        if why is Why.LOOKED and (ready := needs.key_of(call.tick)) is not None:
            return sender, ready
    return None


def sent_by(matching: Matching, call: Call) -> tuple[Message, ...]:
    """The messages that the call sends, or that the sends it completed were. For goto-receiver."""
    state = matching.ranks.get(call.rank)
    if state is None:
        return ()
    sends = state.sends
    rows = [*sends.at(call.tick)]
    for tick in call.completes:
        rows += [i for i in sends.at(tick) if sends.done[i] == call.tick]
    return tuple(message(matching, call.rank, i) for i in rows if not sends.cancelled[i])


def collective_of(matching: Matching, call: Call) -> Instance | None:
    """The collective that the call is part of, or that it completed."""
    own = matching.successions.get(communicator_of(call))
    found = None if own is None else own.instance_at(call.rank, call.tick)
    if found is not None:
        return found
    for tick in (call.tick, *call.completes):  # of a start, too
        for succession in matching.successions.values():
            found = succession.instance_at(call.rank, tick)
            if found is not None:
                return found
    return None
