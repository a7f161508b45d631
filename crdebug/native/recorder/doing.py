"""The MPI call that a rank is in, as the layer says it before it asks the MPI (clock.h, `doing`).

It is in the rank's clock, so it can be read from outside while the rank waits there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from crdebug.native.recorder.mpi_calls import BY_NUMBER
from crdebug.native.recorder.mpi_types import ADDRESS, NO_TYPES, OPS, Types, types

_ANY_TAG, _PROC_NULL, _ANY_SOURCE, _ROOT, _BIAS = 1, 1, 2, 3, 4
LAYOUT = struct.Struct("<QQQQQI15I14Q")
_WORDS = 15
_RANKS = 1 << 20  # a limit
_TAG_MOST, _PEER_MOST, _SIZE_MOST = (1 << 28) - 1, (1 << 20) - 1, (1 << 32) - 1


class Peer(IntEnum):
    """What stands for a rank where a call names none."""

    NONE = -1
    PROC_NULL = -2
    ANY = -3
    ROOT = -4


class Tag(IntEnum):
    """What stands for a tag where a call names none."""

    NONE = -1
    ANY = -2


@dataclass(frozen=True, slots=True)
class Doing:
    """The MPI call that a rank is in, as it was asked.

    call: its name, "MPI_Recv". site: the address to which it returns.
    comm: its number in the rank's log (also of a window, or of a file's processes); 0: unknown.
    peer: a rank in the communicator, or Peer; the root of a collective. tag: or Tag.
    bytes: of the message; -1 if unknown. Of two halves, what is received.
    sends: of two halves, the other one: peer, tag, bytes.
    ages: how far back the requests were posted that it is about, 1 for the last that was posted.
    more: so many more, of which the ages are not known.
    group: of MPI_Win_post and MPI_Win_start, the world ranks.
    op: of a reduction; "" if the program has made it.
    opens: of a fence: it ends no epoch.
    types: of what it sends, receives or reduces.
    """

    call: str
    site: int
    comm: int = 0
    peer: int = Peer.NONE
    tag: int = Tag.NONE
    bytes: int = -1
    sends: tuple[int, int, int] | None = None
    ages: tuple[int, ...] = ()
    more: int = 0
    group: tuple[int, ...] = ()
    op: str = ""
    opens: bool = False
    types: Types = NO_TYPES


_SINGLE = frozenset(("COMPLETE", "CANCEL", "READY"))
_MANY = frozenset(f"MPI_{word}{which}" for word in ("Wait", "Test") for which in
                  ("all", "any", "some"))  # fmt: skip


def parse(now: int, values: Sequence[int]) -> Doing | None:
    """now: the clock. values: of LAYOUT. None where the rank is in no call, or has not yet said in
    which one."""
    head, body, at, site, op, count, *rest = values
    function = BY_NUMBER.get(head & 0x1FF)
    if at != now or not now % 2 or function is None:
        return None
    moved, site = types(site), site & ADDRESS
    words, ops = rest[:_WORDS][: min(count, _WORDS)], rest[_WORDS:]
    comm, size = body >> 48, head >> 32
    name = function.full
    if name in _MANY:
        return Doing(name, site, ages=tuple(words), more=count - len(words))
    if function.kind in _SINGLE or name == "MPI_Parrived":
        return Doing(name, site, ages=(size,) if size else ())
    peer, tag = _peer(body >> 28 & _PEER_MOST), _tag(body & _TAG_MOST)
    if "sendtag" in function.words and len(words) >= 3:
        return Doing(
            name,
            site,
            comm,
            peer,
            tag,
            size,
            (_peer(words[0]), _tag(words[1]), words[2]),
            types=moved,
        )
    if function.epoch in ("POST", "START"):
        return Doing(name, site, comm, group=tuple(_runs(words)), more=max(count - len(words), 0))
    if len(words) >= 4:
        size = words[0] | words[1] << 32 if size == _SIZE_MOST else size
        peer = words[2] if peer == _PEER_MOST - _BIAS else peer
        tag = words[3] if tag == _TAG_MOST - _BIAS else tag
    named = ""
    if "op" in function.words:
        named = next((name for name, each in zip(OPS, ops, strict=True) if each == op and op), "")
    opens = function.epoch == "FENCE" and bool(head >> 9 & 32)
    return Doing(name, site, comm, peer, tag, size, op=named, opens=opens, types=moved)


def parse_asked(now: int, values: Sequence[int]) -> Doing | None:
    """The same of what a log keeps of it: no words, and no operation."""
    return parse(now, (*values, 0, 0, *(0,) * (_WORDS + len(OPS))))


def _peer(code: int) -> int:
    known = {0: Peer.NONE, _PROC_NULL: Peer.PROC_NULL, _ANY_SOURCE: Peer.ANY, _ROOT: Peer.ROOT}
    return known[code] if code < _BIAS else code - _BIAS


def _tag(code: int) -> int:
    return code - _BIAS if code >= _BIAS else Tag.ANY if code == _ANY_TAG else Tag.NONE


def _runs(words: Sequence[int]) -> Iterator[int]:
    """The ranks of pairs of a first one and how many follow it."""
    for first, count in zip(words[::2], words[1::2], strict=False):
        if first < _RANKS:
            yield from range(first, first + min(count, _RANKS))
