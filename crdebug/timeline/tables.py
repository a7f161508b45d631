"""What was read of each rank, as columns: a job's history has millions of calls."""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from crdebug.timeline.calls import Call
from crdebug.timeline.collectives import Succession
from crdebug.timeline.needs import NEVER

UNKNOWN = -1  # the source or tag of a wild receive that has not completed
UNMATCHED = -1

# what a send waits for (MPI 4.1, section 3.4): its own buffer, or the receive
STANDARD, BUFFERED, SYNCHRONOUS = range(3)

_BUFFERED = frozenset(("MPI_Bsend", "MPI_Ibsend", "MPI_Bsend_init"))
_SYNCHRONOUS = frozenset(("MPI_Ssend", "MPI_Issend", "MPI_Ssend_init"))


class Why(Enum):
    """Why a call could not complete before another was entered."""

    RECEIVED = "a receive needs its send"
    SYNCHRONOUS = "a synchronous send needs its receive"
    RENDEZVOUS = "a large send may need its receive"
    LOOKED = "a probe needs the send; a posted collective needs the others"
    TREE = "data of a posted collective may be passed on by others"


# What holds whatever the MPI library is like; the rest depends on how it moves data.
CERTAIN = frozenset((Why.RECEIVED, Why.SYNCHRONOUS, Why.LOOKED))


def mode_of(name: str) -> int:
    """A send's mode by the name of the call."""
    return SYNCHRONOUS if name in _SYNCHRONOUS else BUFFERED if name in _BUFFERED else STANDARD


def _column() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Sends:
    """The sends of one rank, in order of `tick`, that of the call that started them.

    done: the tick at which the call, or the posted send, completed.  partner: index of the
    receive in the table of `peer`.  slot: index in the NeedList of this pair of ranks.
    """

    tick: array[int] = field(default_factory=_column)
    done: array[int] = field(default_factory=_column)
    peer: array[int] = field(default_factory=_column)
    comm: array[int] = field(default_factory=_column)
    tag: array[int] = field(default_factory=_column)
    bytes: array[int] = field(default_factory=_column)
    mode: array[int] = field(default_factory=lambda: array("b"))
    partner: array[int] = field(default_factory=_column)
    slot: array[int] = field(default_factory=_column)
    cancelled: set[int] = field(default_factory=set)

    def add(self, call: Call, done: int, peer: int, comm: int, tag: int, slot: int) -> int:
        self.tick.append(call.tick)
        self.done.append(done)
        self.peer.append(peer)
        self.comm.append(comm)
        self.tag.append(tag)
        self.bytes.append(call.bytes)
        self.mode.append(mode_of(call.name))
        self.partner.append(UNMATCHED)
        self.slot.append(slot)
        return len(self.tick) - 1

    def at(self, tick: int) -> range:
        """Indices of what the call of this tick started; most often one, or none."""
        return range(bisect_left(self.tick, tick), bisect_right(self.tick, tick))

    def waits(self, index: int, eager: int) -> Why | None:
        """Why the completion of a send may wait for its receive; None if it does not."""
        mode = self.mode[index]
        if mode == SYNCHRONOUS:
            return Why.SYNCHRONOUS
        return Why.RENDEZVOUS if mode == STANDARD and self.bytes[index] > eager else None


@dataclass(slots=True)
class Receives:
    """The receives of one rank, in the order of being posted (`tick`).

    done: the tick at which it completed.  partner: index of the send in the table of `peer`.
    """

    tick: array[int] = field(default_factory=_column)
    done: array[int] = field(default_factory=_column)
    peer: array[int] = field(default_factory=_column)
    comm: array[int] = field(default_factory=_column)
    tag: array[int] = field(default_factory=_column)
    partner: array[int] = field(default_factory=_column)
    wild: set[int] = field(default_factory=set)
    cancelled: set[int] = field(default_factory=set)

    def add(self, call: Call, done: int, peer: int, comm: int, tag: int) -> int:
        if call.wild:
            self.wild.add(len(self.tick))
        self.tick.append(call.tick)
        self.done.append(done)
        self.peer.append(peer)
        self.comm.append(comm)
        self.tag.append(tag)
        self.partner.append(UNMATCHED)
        return len(self.tick) - 1

    def at(self, tick: int) -> range:
        """Indices of what the call of this tick posted; most often one, or none."""
        return range(bisect_left(self.tick, tick), bisect_right(self.tick, tick))


@dataclass(slots=True)
class RankCalls:
    calls: Sequence[Call] = ()
    seen: int = 0
    sends: Sends = field(default_factory=Sends)
    receives: Receives = field(default_factory=Receives)
    collectives: dict[int, list[tuple[Succession, int]]] = field(default_factory=dict)  # posted
    open: set[int] = field(default_factory=set)  # wild receives of which it is not known what
    grabbed: list[int] = field(default_factory=list)  # receives that matched probes took
    grabs: dict[int, int] = field(default_factory=dict)  # tick of MPI_(I)mrecv → receive
    # It started requests of which the record does not say what they are (MPI_Startall): what
    # others have that is not on record may be of these, and not of the call under way.
    blind: bool = False

    def continues(self, calls: Sequence[Call]) -> bool:
        """Whether these are the calls that were read, and perhaps more."""
        if calls is self.calls:
            return len(calls) >= self.seen
        return len(calls) >= self.seen and all(
            map(_same, itertools.islice(self.calls, self.seen), calls)
        )

    def grabbed_by(self, call: Call) -> int | None:
        """The receive that MPI_Mrecv or MPI_Imrecv completes.

        They name no source and tag on record; of several matched probes the oldest is taken then.
        """
        for place, index in enumerate(self.grabbed):
            what = (self.receives.peer[index], self.receives.tag[index])
            if call.peer is None or (call.peer, call.tag) == what:
                return self.grabbed.pop(place)
        return None


def _same(one: Call, other: Call) -> bool:
    """Whether it is one call, read twice: since, a wild receive may have got what it got."""
    if one is other:
        return True
    if (one.name, one.tick, one.completes) != (other.name, other.tick, other.completes):
        return False
    return one.peer == other.peer or (one.wild and None in (one.peer, one.tag))


def ended(done: int) -> int | None:
    """A tick for the user: None for what has not completed."""
    return None if done == NEVER else done
