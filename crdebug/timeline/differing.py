"""A call that is not the recorded one: what differs, in words.

For calls of two functions their names say it; for two calls of one function, the arguments that
differ. native/recorder/clock.h describes the record of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from crdebug.native.recorder.clock import CUT_HERE, Clock
from crdebug.native.recorder.mpi_calls import BY_NUMBER, Function

_WILD_SOURCE, _WILD_TAG, _NO, _ODD, _PACKED = (flag << 9 for flag in (2, 4, 16, 32, 64))
_TAG_MOST, _PEER_MOST, _SIZE_MOST, _HALF = (1 << 28) - 1, (1 << 20) - 1, (1 << 32) - 1, 0xFFFF
_BIAS = 4
_PEERS = ("nobody", "MPI_PROC_NULL", "MPI_ANY_SOURCE", "MPI_ROOT")
_PEER_WORDS = {
    "dest": "destination",
    "source": "source",
    "root": "root",
    "target_rank": "target",
    "message": "source",
}
_BUFFERS = {"count", "sendcount", "recvcount", "origin_count", "partitions"}
_ONE_REQUEST = ("COMPLETE", "CANCEL", "READY")

CommName = Callable[[int], str]
"""The name of the communicator that has this number in the rank's log; "" if it is not known."""


def difference(state: Clock, comm_name: CommName) -> str:
    """How a rank has diverged: ``MPI_Send with tag 7 was recorded, and MPI_Send with tag 5
    came``."""
    expected = _Noted(*state.expected, state.expected_failed, state.expected_words)
    actual = _Noted(*state.actual, state.actual_failed, state.actual_words)
    recorded, came = expected.name, actual.name
    if recorded == came and expected.function is not None:
        before = dict(_arguments(expected, actual, state.words_from, comm_name))
        now = dict(_arguments(actual, expected, state.words_from, comm_name))
        others = [word for word in before if word in now and before[word] != now[word]]
        if others:
            recorded += f" with {', '.join(before[word] for word in others)}"
            came += f" with {', '.join(now[word] for word in others)}"
    if recorded == came:
        came += " with other arguments"
    return f"{recorded} was recorded, and {came} came"


@dataclass(frozen=True, slots=True)
class _Noted:
    """A record, how its call failed, and four of its words."""

    head: int
    body: int
    failed: str
    words: Sequence[int]

    @property
    def function(self) -> Function | None:
        return BY_NUMBER.get(self.head & 0x1FF)

    @property
    def size(self) -> int:
        return self.head >> 32

    @property
    def tag(self) -> int:
        return self.body & _TAG_MOST

    @property
    def peer(self) -> int:
        return self.body >> 28 & _PEER_MOST

    @property
    def name(self) -> str:
        if self.function is not None:
            name = self.function.full
            return f"{name} that fails ({self.failed})" if self.failed else name
        if (self.head, self.body) == CUT_HERE:
            return "the end of the record"
        return "the first call on a communicator or window"

    def is_open(self, other: _Noted, flag: int) -> bool:
        """Did the call leave the sender (or the tag) open, so that the message that it got says
        nothing?"""
        if not self.head & flag:
            return False
        got = (self.peer, other.peer) if flag == _WILD_SOURCE else (self.tag, other.tag)
        return not other.head & flag or min(got) < _BIAS


def _arguments(
    noted: _Noted, other: _Noted, words_from: int, comm_name: CommName
) -> Iterator[tuple[str, str]]:
    """The arguments that a record has of its call, each with a key."""
    function = noted.function
    assert function is not None
    words = set(function.words)
    yield "answer", f"the answer {'no' if noted.head & _NO else 'yes'}"
    if function.name == "Startall":
        yield "count", f"{noted.size} requests"
        if noted.body == other.body and noted.size == other.size:
            yield from _started(noted.words, words_from // 4, comm_name)
    elif function.kind in _ONE_REQUEST or function.name in ("Request_free", "Parrived"):
        yield from _completed(noted, function)
    else:
        yield from _halves(noted, other) if "sendtag" in words else _plain(noted, other, words)
        if noted.body >> 48 != other.body >> 48:
            kind = "window" if words & {"win", "win_in"} else "communicator"
            yield "comm", _comm(kind, noted.body >> 48, comm_name)


def _plain(noted: _Noted, other: _Noted, words: set[str]) -> Iterator[tuple[str, str]]:
    large = noted.size == _SIZE_MOST or noted.tag == _TAG_MOST or noted.peer == _PEER_MOST
    size, peer, tag = noted.size, _rank(noted.peer), noted.tag - _BIAS
    if large and any(noted.words):
        size = noted.words[0] | noted.words[1] << 32
        peer = str(noted.words[2]) if noted.peer == _PEER_MOST else peer
        tag = noted.words[3] if noted.tag == _TAG_MOST else tag
    start = words == {"request"}
    role = next((text for word, text in _PEER_WORDS.items() if word in words), "partner")
    peer = _PEERS[2] if not start and noted.is_open(other, _WILD_SOURCE) else peer
    any_tag = noted.tag < _BIAS or (not start and noted.is_open(other, _WILD_TAG))
    if start:
        yield "kind", "a receive" if noted.head & _PACKED else "a send"
    yield "peer", f"{role} {peer}"
    yield "tag", "tag MPI_ANY_TAG" if any_tag else f"tag {tag}"
    if start or words & _BUFFERS:
        yield "bytes", _bytes(size)


def _halves(noted: _Noted, other: _Noted) -> Iterator[tuple[str, str]]:
    """The halves of an exchange: the one that sends is packed into the record, or in the words
    after it."""
    if noted.head & _PACKED:
        to, source, tag = noted.body >> 32 & _HALF, noted.body >> 16 & _HALF, noted.body & _HALF
        sent = received = noted.size
        other_tag = tag
    else:
        to, other_tag, received = noted.words[:3]
        source, tag, sent = noted.peer, noted.tag, noted.size
    open_source, open_tag = (noted.is_open(other, flag) for flag in (_WILD_SOURCE, _WILD_TAG))
    yield "to", f"destination {_rank(to)}"
    yield "sent tag", f"tag {other_tag - _BIAS} of what is sent"
    yield "sent", f"{_bytes(sent)} to send"
    yield "from", f"source {_PEERS[2] if open_source else _rank(source)}"
    known = "MPI_ANY_TAG" if open_tag or tag < _BIAS else str(tag - _BIAS)
    yield "tag", f"tag {known} of what is received"
    yield "received", f"room for {_bytes(received)}"


def _completed(noted: _Noted, function: Function) -> Iterator[tuple[str, str]]:
    """The requests that the call completed, each by how many were posted after it."""
    if noted.head & _NO:  # of several requests nothing but a hash is known
        if function.name in ("Test", "Request_get_status"):
            yield "request", _posted(noted.body)
        return
    if function.name in ("Waitall", "Testall", "Waitsome", "Testsome"):
        yield "count", f"{noted.size} requests"
        return
    if "index" in function.words:
        none = bool(noted.head & _ODD)
        yield "index", "index MPI_UNDEFINED" if none else f"index {noted.tag - _BIAS}"
    if function.name in ("Pready", "Parrived"):
        yield "partition", f"partition {noted.tag - _BIAS}"
    yield "request", _posted(noted.size)


def _posted(age: int) -> str:
    if age == 0:
        return "a request that is not active"
    return "the last request" if age == 1 else f"the request {age - 1} before the last"


def _started(words: Sequence[int], number: int, comm_name: CommName) -> Iterator[tuple[str, str]]:
    """The first request of an MPI_Startall that differs."""
    peer, tag, comm, size = words
    which = f"of request {number}"
    yield "peer", f"partner {_rank(peer & _PEER_MOST)} {which}"
    yield "tag", f"tag {'MPI_ANY_TAG' if tag < _BIAS else tag - _BIAS} {which}"
    yield "comm", f"{_comm('communicator', comm, comm_name)} {which}"
    yield "bytes", f"{_bytes(size)} {which}"


def _rank(code: int) -> str:
    return str(code - _BIAS) if code >= _BIAS else _PEERS[code]


def _bytes(size: int) -> str:
    return "1 byte" if size == 1 else f"{size} bytes"


def _comm(kind: str, number: int, comm_name: CommName) -> str:
    name = comm_name(number)
    return name if name.startswith(kind) else f"{kind} {name or f'number {number}'}"
