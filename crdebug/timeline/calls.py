"""One MPI call of one rank, as the layer inside the rank recorded it.

The vocabulary that all parts of the timeline share. Positions are in half ticks: a rank's clock is
even while it runs its own code and odd while it is inside a counted MPI call.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


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
    tick: int  # 1 for the first counted call: entered at now = 2*tick-2, returns at 2*tick
    name: str  # "MPI_Recv"
    kind: Kind
    site: int = 0  # return address in the caller
    comm: str = ""  # "world", "self", "0-3#2": see log.name_of; or a window: "window(world)"
    peer: int | None = None  # world rank: destination, or matched source; root of a collective
    tag: int | None = None
    bytes: int = 0
    wild: bool = False  # posted with MPI_ANY_SOURCE or MPI_ANY_TAG
    repeats: int = 1  # a run of equal NOTHING calls: ticks tick .. tick+repeats-1
    completes: tuple[int, ...] = ()  # ticks of the posting calls that this call completed
    source2: int | None = None  # (POST_)SENDRECV: the receiving half
    tag2: int | None = None
    value: float = 0.0  # TIME
    group: tuple[int, ...] = ()  # MPI_Win_start, MPI_Win_post: the world ranks that it is for
    opens: bool = False  # MPI_Win_fence: it ends no epoch (MPI_MODE_NOPRECEDE)
    failed: str = ""  # the class of the error that it returned: "MPI_ERR_TRUNCATE"

    @property
    def told(self) -> str:
        """Its name, and how it failed if it did."""
        return f"{self.name} (failed: {self.failed})" if self.failed else self.name

    @property
    def entered(self) -> int:
        """The clock while the call is inside: the last half tick before it returns."""
        return 2 * self.tick - 1

    @property
    def returned(self) -> int:
        """The clock after the call, and after the last of a run of equal ones."""
        return 2 * (self.tick + self.repeats - 1)


def entered_by(calls: Sequence[Call], tick: int) -> int:
    """How many of a rank's calls, which are in order, were entered up to that tick."""
    return bisect_right(calls, tick, key=lambda call: call.tick)
