"""The calls of each rank that were read, as columns: a job's history has millions of calls."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from enum import Enum

from crdebug.native.matcher.library import (
    Column,
    Owner,
    RankStruct,
    ReceivesStruct,
    SendsStruct,
    numbers,
)
from crdebug.timeline.needs import NEVER

UNKNOWN = -1  # the source or tag of a wild receive that has not completed
UNMATCHED = -1
ANY_SOURCE, ANY_TAG = 1, 2  # bits: what a receive leaves open

# what a send waits for (MPI 4.1, section 3.4): its own buffer, or the receive
STANDARD, BUFFERED, SYNCHRONOUS, PARTITIONS = range(4)

_BUFFERED = frozenset(("MPI_Bsend", "MPI_Ibsend", "MPI_Bsend_init"))
_SYNCHRONOUS = frozenset(("MPI_Ssend", "MPI_Issend", "MPI_Ssend_init"))


class Why(Enum):
    """Why a call could not complete before another was entered."""

    RECEIVED = "a receive needs its send"
    SYNCHRONOUS = "a synchronous send needs its receive"
    RENDEZVOUS = "a large send may need its receive"
    LOOKED = "a probe needs the send, a partition that it is ready, a posted collective the others"
    TREE = "data of a posted collective may be passed on by others"
    EXPOSED = "the wait of a window needs all that its post was for to have called complete"
    POSTED = "an access to a window may need the post of its target"


# These hold for every MPI library; the others depend on how it moves data.
CERTAIN = frozenset((Why.RECEIVED, Why.SYNCHRONOUS, Why.LOOKED, Why.EXPOSED))


def mode_of(name: str) -> int:
    """A send's mode by the name of the call."""
    return SYNCHRONOUS if name in _SYNCHRONOUS else BUFFERED if name in _BUFFERED else STANDARD


class Sends:
    """The sends of one rank, in order of `tick`, that of the call that started them.

    done: the tick at which the call, or the posted send, completed.  partner: index of the
    receive in the table of `peer`.  slot: index in the NeedList of this pair of ranks.
    cancelled: 1 for those that were.
    """

    def __init__(self, struct: SendsStruct, owner: Owner) -> None:
        self.tick = Column(struct.tick, owner)
        self.done = Column(struct.done, owner)
        self.peer = Column(struct.peer, owner)
        self.comm = Column(struct.comm, owner)
        self.tag = Column(struct.tag, owner)
        self.bytes = Column(struct.bytes, owner)
        self.mode = Column(struct.mode, owner)
        self.partner = Column(struct.partner, owner)
        self.slot = Column(struct.slot, owner)
        self.cancelled = Column(struct.cancelled, owner)

    def at(self, tick: int) -> range:
        """Indices of the sends that the call of this tick started; most often one, or none."""
        return range(self.tick.first_at(tick), self.tick.first_at(tick + 1))

    def waits(self, index: int, eager: int) -> Why | None:
        """Why the completion of a send may wait for its receive; None if it does not."""
        mode = self.mode[index]
        if mode == SYNCHRONOUS:
            return Why.SYNCHRONOUS
        large = mode == PARTITIONS or (mode == STANDARD and self.bytes[index] > eager)
        return Why.RENDEZVOUS if large else None


class Receives:
    """The receives of one rank, in the order of being posted (`tick`).

    done: the tick at which it completed.  partner: index of the send in the table of `peer`.
    wild: ANY_SOURCE and ANY_TAG, for those with that.  cancelled: 1 for those that are.
    """

    def __init__(self, struct: ReceivesStruct, owner: Owner) -> None:
        self.tick = Column(struct.tick, owner)
        self.done = Column(struct.done, owner)
        self.peer = Column(struct.peer, owner)
        self.comm = Column(struct.comm, owner)
        self.tag = Column(struct.tag, owner)
        self.partner = Column(struct.partner, owner)
        self.wild = Column(struct.wild, owner)
        self.cancelled = Column(struct.cancelled, owner)

    def at(self, tick: int) -> range:
        """Indices of the receives that the call of this tick posted; most often one, or none."""
        return range(self.tick.first_at(tick), self.tick.first_at(tick + 1))


class RankCalls:
    """The calls of one rank that were read."""

    def __init__(self, struct: RankStruct, owner: Owner) -> None:
        self._struct = struct
        self._owner = owner
        self.sends = Sends(struct.sends, owner)
        self.receives = Receives(struct.receives, owner)

    @property
    def last(self) -> int:
        """The tick of the last call of which there is a record, or 0."""
        return self._struct.last  # type: ignore[no-any-return]

    @property
    def blind(self) -> bool:
        """It started requests whose kind the record does not say (MPI_Startall): messages that are
        on record only at their other end may belong to these, and not to the call under way."""
        return bool(self._struct.blind)

    @property
    def open(self) -> list[int]:
        """The wild receives whose message is not known."""
        return numbers(self._struct.open, 3)[::3]  # of threes: the receive, and its record's place

    def started(self, tick: int, slot: int) -> tuple[bool, int] | None:
        """What MPI_Startall started as its `slot`-th: whether that is a send, and its row."""
        for _, row, number, _, _ in self._took("started", tick):
            if abs(number) == slot:
                return number < 0, row
        return None

    def collected(self, tick: int, slot: int) -> tuple[int, int] | None:
        """The collective that was posted: the number of its communicator in the tables, and its own
        among the communicator's."""
        for _, comm, number, _, which in self._took("collectives", tick):
            if which == slot:
                return comm, number
        return None

    def _took(self, name: str, tick: int) -> Iterator[tuple[int, int, int, int, int]]:
        """The entries of a call, of a column of struct took."""
        column = getattr(self._struct, name)
        data = column.data
        at = bisect_left(range(column.count), tick, key=lambda n: data[5 * n])
        while at < column.count and data[5 * at] == tick:
            one, two, three, four, five = data[5 * at : 5 * at + 5]
            yield one, two, three, four, five
            at += 1

    def grabbed(self, tick: int) -> int | None:
        """The receive that a matched probe took, by the tick of the MPI_(I)mrecv."""
        return next((row for _, row, *_ in self._took("grabs", tick)), None)

    def grabs(self) -> Iterator[tuple[int, int]]:
        """All of these: ticks, in order, and receives."""
        column = self._struct.grabs  # of fives: see `_took`
        data = column.data
        return ((data[5 * n], data[5 * n + 1]) for n in range(column.count))


def ended(done: int) -> int | None:
    """A tick for the user: None for what has not completed."""
    return None if done == NEVER else done
