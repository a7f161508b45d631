"""What each rank asks of its MPI where it stands, in the terms of the whole job. Pure.

A clock says it in the terms of one rank (native/recorder/doing.py): ranks and communicators by
number, requests by how far back they were posted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from crdebug.base.instant import Instant
from crdebug.native.recorder.doing import Doing, Peer, Tag
from crdebug.native.recorder.mpi_calls import BY_NAME
from crdebug.timeline.calls import Kind
from crdebug.timeline.log import RankLog

_WITHOUT_A_LOG = {1: "world", 2: "self"}  # numbers that are the same in all logs


_PASS = frozenset(
    ("Bsend", "Cancel", "Win_post", "Win_sync", "Wtime", "Comm_idup", "Comm_idup_with_info")
)


class Way(Enum):
    """How a call waits."""

    BLOCKS = "until it is done"
    POLLS = "it looks, and returns; programs call it in a loop"
    PASSES = "it does not"


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that a rank is in.

    peer: a world rank (the root of a collective), or a value of Peer. tag: or of Tag.
    comm: as in `Call`; "" if it is unknown. site: where the call returns to.
    sends: of MPI_Sendrecv what it sends: peer, tag, bytes.
    requests: what a Wait or Test is about: the tick of each posting call, and which of an
    MPI_Startall's it is. more: so many more, of which that is not known.
    moves: the rank has gone on since, or did so a moment ago.
    blind: what it did before is not on record, or not all of it.
    """

    rank: int
    tick: int
    call: str
    comm: str = ""
    peer: int = Peer.NONE
    tag: int = Tag.NONE
    bytes: int = -1
    site: int = 0
    sends: tuple[int, int, int] | None = None
    requests: tuple[tuple[int, int], ...] = ()
    more: int = 0
    group: tuple[int, ...] = ()
    op: str = ""
    opens: bool = False
    moves: bool = False
    blind: bool = False
    kind: Kind = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", Kind[BY_NAME[self.call].kind])

    @property
    def way(self) -> Way:
        word = self.call.removeprefix("MPI_")
        if word.startswith(("Test", "Iprobe", "Improbe", "Request_get", "Win_test", "Parrived")):
            return Way.POLLS
        if word in _PASS or self.peer == Peer.PROC_NULL:
            return Way.PASSES
        posts = self.kind.name.startswith("POST") or BY_NAME[self.call].shape in ("post", "init")
        return Way.PASSES if posts and self.kind is not Kind.COMM else Way.BLOCKS


def asked(
    rank: int, now: Instant, doing: Doing, log: RankLog | None, *, moves: bool, blind: bool
) -> Asked:
    """log: of the rank, read to its end; None if it has none."""
    peers: tuple[int, ...] = ()
    if log is None:
        comm = _WITHOUT_A_LOG.get(doing.comm, "")
    else:
        comm = log.comm_name(doing.comm, log.records)
        peers = log.comm_ranks(doing.comm, log.records)

    def world(peer: int) -> int:
        if peer < 0 or (log is None and comm == "world"):
            return peer
        return peers[peer] if peer < len(peers) else Peer.NONE

    found = [log.posting(age) for age in doing.ages] if log is not None else []
    known = tuple(each for each in found if each is not None)
    return Asked(
        rank,
        now.entered,
        doing.call,
        comm,
        world(doing.peer),
        doing.tag,
        doing.bytes,
        doing.site,
        doing.sends and (world(doing.sends[0]), *doing.sends[1:]),
        known,
        doing.more + len(doing.ages) - len(known),
        doing.group,
        doing.op,
        doing.opens,
        moves,
        blind,
    )
