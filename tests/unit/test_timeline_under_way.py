"""Calls that have not returned, beside those that are on record: as messages, and on the page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crdebug.base.instant import Instant
from crdebug.native.recorder.doing import Peer, Tag
from crdebug.timeline.asked import Asked
from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.matching import Matching
from crdebug.timeline.messages import Message, Pending
from crdebug.timeline.page import Picture, page_data
from crdebug.timeline.under_way import UnderWay
from harness.matcher import library

SEND = Asked(2, 9, "MPI_Send", "world", 1, 7, 16, 0x40)
RECEIVE = replace(SEND, call="MPI_Recv")
BOTH = Asked(2, 9, "MPI_Sendrecv", "world", 3, 7, 16, 0x40, sends=(1, 8, 4))


def waiting(asked: Asked) -> UnderWay:
    return UnderWay(asked, waits=True)


def test_a_send() -> None:
    assert waiting(SEND).message() == Message(2, 9, 1, "world", 7, 16)
    assert waiting(SEND).receive() is None
    found = Call(2, 9, "MPI_Send", Kind.SEND, 0x40, "world", 1, 7, 16)
    assert waiting(SEND).call == found


@pytest.mark.parametrize("name", ["MPI_Recv", "MPI_Probe", "MPI_Mprobe"])
def test_a_receive_and_a_probe(name: str) -> None:
    one = waiting(replace(RECEIVE, call=name))
    assert one.receive() == Pending(2, 9, "world", 1, 7)
    assert one.message() is None


def test_one_that_takes_any_message() -> None:
    one = waiting(replace(RECEIVE, peer=Peer.ANY, tag=Tag.ANY, bytes=-1))
    assert one.receive() == Pending(2, 9, "world", None, None, wild=True)
    assert one.call == Call(2, 9, "MPI_Recv", Kind.RECV, 0x40, "world")


def test_both_halves() -> None:
    one = waiting(BOTH)
    assert one.message() == Message(2, 9, 1, "world", 8, 4)
    assert one.receive() == Pending(2, 9, "world", 3, 7)
    call = one.call
    assert (call.peer, call.tag, call.bytes) == (1, 8, 4)
    assert (call.source2, call.tag2) == (3, 7)
    assert waiting(replace(BOTH, sends=(Peer.PROC_NULL, 8, 4))).message() is None


@pytest.mark.parametrize(
    "asked",
    [
        replace(RECEIVE, peer=Peer.PROC_NULL),
        replace(SEND, peer=Peer.PROC_NULL),
        replace(SEND, call="MPI_Barrier"),
        replace(SEND, call="MPI_Waitall"),
    ],
)
def test_what_is_no_message(asked: Asked) -> None:
    assert waiting(asked).message() is None
    assert waiting(asked).receive() is None


@pytest.mark.parametrize("asked", [SEND, RECEIVE, BOTH])
def test_what_can_go_on_is_not_waited_for(asked: Asked) -> None:
    one = UnderWay(asked, waits=False)
    assert one.message() is None
    assert one.receive() is None


def picture(under_way: dict[int, Call]) -> Picture:
    """Two ranks with three barriers each."""
    calls = {
        rank: [Call(rank, tick, "MPI_Barrier", Kind.COLLECTIVE, comm="world") for tick in (1, 2, 3)]
        for rank in (0, 1)
    }
    matching = Matching(library())
    matching.extend(calls, {"world": (0, 1)})
    ends = (Instant.after(3), Instant.after(3))
    return Picture("a test", calls, matching, ends, under_way=under_way)


def test_on_the_page_it_is_the_last_call_of_its_rank() -> None:
    now = Call(1, 4, "MPI_Recv", Kind.RECV, comm="world", peer=0, tag=7)
    data = page_data(picture({1: now}), lambda rank, tick: f"ring.c:{10 * rank + tick}")
    assert [len(row) for row in data["calls"]] == [3, 4]
    tick, _, name, site, kind, peer, tag, _, _, column = data["calls"][1][-1]
    names = data["names"]
    assert (tick, names[name], names[site]) == (4, "MPI_Recv (has not returned)", "ring.c:14")
    assert (names[kind], peer, tag) == ("receive", 0, 7)
    assert column == max(call[-1] for row in data["calls"] for call in row)


def test_the_page_leaves_it_out_with_the_calls_before_it() -> None:
    now = Call(1, 4, "MPI_Recv", Kind.RECV, comm="world", peer=0, tag=7)
    past = replace(picture({1: now}), here=(Instant.after(0), Instant.after(0)))
    data = page_data(past, lambda rank, tick: "", calls=4)
    assert [[call[0] for call in row] for row in data["calls"]] == [[1, 2], [1, 2]]
