"""One MPI call of one rank, as the layer inside the rank recorded it.

The vocabulary that all parts of the timeline share. Where a rank is in its history is an `Instant`.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from crdebug.base.instant import Instant
from crdebug.native.recorder.mpi_types import NO_TYPES, Types


class Kind(Enum):
    """What a call did, as far as going through history is concerned."""

    SEND = "send"
    RECV = "receive"
    SENDRECV = "send and receive"
    POST_SEND = "posted send"
    POST_RECV = "posted receive"
    POST_SENDRECV = "posted send and receive"
    READY = "partitions ready"
    COMPLETE = "completion"  # Wait*, and Test* that said yes
    NOTHING = "no answer"  # Test* and probes that said no
    PROBE = "probe"  # that said yes
    COLLECTIVE = "collective"
    POST_COLLECTIVE = "posted collective"
    COMM = "communicator"
    RMA = "one-sided"
    TIME = "clock"
    CANCEL = "cancel"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Call:
    """One counted MPI call; or, of kind NOTHING, a run of equal ones."""

    rank: int  # world rank
    tick: int  # 1 for the first counted call
    name: str  # "MPI_Recv"
    kind: Kind
    site: int = 0  # return address in the caller
    comm: str = ""  # "world", "self", "0-3#2": see log.name_of; or a window: "window(world)"
    peer: int | None = None  # world rank: destination, or matched source; root of a collective
    tag: int | None = None
    bytes: int = 0
    wild: int = 0  # posted with MPI_ANY_SOURCE (1), MPI_ANY_TAG (2), or both (3)
    repeats: int = 1  # a run of equal NOTHING calls: ticks tick .. tick+repeats-1
    completes: tuple[int, ...] = ()  # ticks of the posting calls that this call completed
    source2: int | None = None  # (POST_)SENDRECV: the receiving half
    tag2: int | None = None
    value: float = 0.0  # TIME
    group: tuple[int, ...] = ()  # MPI_Win_start, MPI_Win_post: the world ranks that it is for
    opens: bool = False  # MPI_Win_fence: it ends no epoch (MPI_MODE_NOPRECEDE)
    frees: int = 0  # MPI_Request_free: the tick of the posting call, if the request was active
    types: Types = NO_TYPES  # of what it sends, receives or reduces
    failed: str = ""  # the class of the error that it returned: "MPI_ERR_TRUNCATE"

    @property
    def told(self) -> str:
        """Its name, and how it failed if it did."""
        return f"{self.name} (failed: {self.failed})" if self.failed else self.name

    @property
    def entered(self) -> Instant:
        """Where the rank is inside the call, or the first of a run of equal ones."""
        return Instant.within(self.tick)

    @property
    def returned(self) -> Instant:
        """Where the rank is after the call, and after the last of a run of equal ones."""
        return Instant.after(self.tick + self.repeats - 1)


@dataclass(frozen=True, slots=True)
class Head:
    """Of a call, what many of them have in common."""

    name: str
    kind: Kind
    site: int
    types: Types


@dataclass(frozen=True, slots=True)
class Together:
    """A rank's calls that it makes together with the other members of a communicator, in order.

    numbers: which of its calls these are.  likes: numbers that two ranks have the same of, unless
    their calls do not fit; what members may give differently is not in them.
    """

    numbers: Sequence[int]
    likes: Sequence[int]


class Calls(Sequence[Call]):
    """All calls of a rank that are on record, in order; they may be many millions."""

    @abstractmethod
    def of(self, *kinds: Kind) -> Iterator[Call]:
        """Those of these kinds, and those that failed."""

    @abstractmethod
    def types(self) -> set[Types]:
        """Of all of them."""

    @abstractmethod
    def heads(self, ticks: Sequence[int]) -> Sequence[Head | None]:
        """Of the calls of these ticks, which are in order; None where none is on record."""

    @abstractmethod
    def together(self) -> Mapping[str, Together]:
        """By communicator or window: see collectives.communicator_of; not those of all ranks by
        which MPI begins and ends, nor what the MPI refused for an argument."""


def entered_by(calls: Sequence[Call], tick: int) -> int:
    """How many of a rank's calls, which are in order, were entered up to that tick."""
    return bisect_right(calls, tick, key=lambda call: call.tick)


def entered_last(calls: Sequence[Call], tick: int) -> Call | None:
    """The last of a rank's calls, which are in order, that was entered up to that tick."""
    count = entered_by(calls, tick)
    return calls[count - 1] if count else None
