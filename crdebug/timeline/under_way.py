"""Calls that ranks are in and that are not on record yet, in the terms of those that are. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from crdebug.native.recorder.doing import Peer, Tag
from crdebug.timeline.asked import Asked
from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.messages import Message, Pending


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A rank's call. waits: the rank cannot go on by what is on record."""

    asked: Asked
    waits: bool

    @property
    def call(self) -> Call:
        """As if it were on record."""
        asked = self.asked
        call = Call(
            asked.rank,
            asked.tick,
            asked.call,
            asked.kind,
            asked.site,
            asked.comm,
            _named(asked.peer),
            _named(asked.tag),
            max(asked.bytes, 0),
        )
        if asked.sends is None:
            return call
        to, tag, size = asked.sends
        return replace(
            call,
            peer=_named(to),
            tag=_named(tag),
            bytes=size,
            source2=call.peer,
            tag2=call.tag,
        )

    def message(self) -> Message | None:
        """What it sends, if it waits for that."""
        asked = self.asked
        if not self.waits or asked.kind not in (Kind.SEND, Kind.SENDRECV):
            return None
        to, tag, size = asked.sends or (asked.peer, asked.tag, asked.bytes)
        if to < 0:
            return None
        return Message(asked.rank, asked.tick, to, asked.comm, tag, size)

    def receive(self) -> Pending | None:
        """What it receives or looks for, if it waits for that."""
        asked = self.asked
        if not self.waits or asked.kind not in (Kind.RECV, Kind.SENDRECV, Kind.PROBE):
            return None
        if asked.peer < 0 and asked.peer != Peer.ANY:
            return None
        wild = asked.peer == Peer.ANY or asked.tag == Tag.ANY
        sender, tag = _named(asked.peer), _named(asked.tag)
        return Pending(asked.rank, asked.tick, asked.comm, sender, tag, wild)


def _named(number: int) -> int | None:
    """A rank, or a tag; None for what stands for one."""
    return number if number >= 0 else None
