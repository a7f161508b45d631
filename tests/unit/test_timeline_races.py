"""Wild receives that could have got another message, from lists of calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.matching import Matching
from crdebug.timeline.races import races
from crdebug.timeline.tables import ANY_SOURCE, ANY_TAG
from harness.listed import listed
from harness.matcher import library

pytestmark = pytest.mark.unit


def found(*logs: Sequence[Call]) -> list[tuple[int, int, int, tuple[int, ...]]]:
    """The rank and the tick of each, whose message it got, and whose it could have got."""
    calls = {
        rank: [replace(call, rank=rank, tick=tick, site=tick) for tick, call in enumerate(each, 1)]
        for rank, each in enumerate(logs)
    }
    matching = Matching(library())
    matching.extend(calls, {"world": tuple(range(len(logs)))})
    return [
        (race.call.rank, race.call.tick, race.source, tuple(rank for rank, _ in race.others))
        for race in races(matching, listed(calls))
    ]


def send(to: int, tag: int = 7, name: str = "MPI_Send") -> Call:
    return Call(0, 0, name, Kind.SEND, comm="world", peer=to, tag=tag, bytes=4)


def receive(source: int, tag: int = 7, wild: int = 0) -> Call:
    kind = Kind.RECV
    return Call(0, 0, "MPI_Recv", kind, comm="world", peer=source, tag=tag, bytes=4, wild=wild)


def anyone(source: int, tag: int = 7, wild: int = ANY_SOURCE) -> Call:
    return receive(source, tag, wild)


BARRIER = Call(0, 0, "MPI_Barrier", Kind.COLLECTIVE, comm="world")


def test_two_senders_and_a_receive_from_anyone() -> None:
    assert found([anyone(1), anyone(2)], [send(0)], [send(0)]) == [(0, 1, 1, (2,))]


def test_the_last_of_two_has_no_choice() -> None:
    assert found([receive(1), anyone(2)], [send(0)], [send(0)]) == []


def test_a_message_with_another_tag_does_not_fit() -> None:
    assert found([anyone(1, 7), anyone(2, 8)], [send(0, 7)], [send(0, 8)]) == []
    both = ANY_SOURCE | ANY_TAG
    assert found([anyone(1, 7, both), anyone(2, 8, both)], [send(0, 7)], [send(0, 8)]) == [
        (0, 1, 1, (2,))
    ]


def test_messages_of_one_sender_come_in_order() -> None:
    assert found([anyone(1), anyone(1)], [send(0), send(0)]) == []


def test_any_tag_of_a_known_sender_is_no_race() -> None:
    assert found([receive(1, 7, ANY_TAG), receive(2)], [send(0)], [send(0)]) == []


def test_a_barrier_between_them_orders_two_sends() -> None:
    calls = [anyone(1), BARRIER, anyone(2)], [send(0), BARRIER], [BARRIER, send(0)]
    assert found(*calls) == []


def test_a_barrier_that_both_sends_are_in_front_of_does_not() -> None:
    calls = [BARRIER, anyone(1), anyone(2)], [send(0), BARRIER], [send(0), BARRIER]
    assert found(*calls) == [(0, 2, 1, (2,))]


def test_an_answer_to_what_was_received_is_later() -> None:
    """Rank 2 sends only when rank 0, which has got the message of rank 1, tells it to."""
    calls = [anyone(1), send(2), anyone(2)], [send(0)], [receive(0), send(0)]
    assert found(*calls) == []


def test_a_synchronous_send_that_has_completed_was_received() -> None:
    """Rank 2 sends when rank 1 tells it to, which then knows that its own message is there."""
    for name, expected in (("MPI_Ssend", []), ("MPI_Send", [(0, 1, 1, (2,))])):
        first = [send(0, name=name), send(2, 8)]
        calls = [anyone(1), anyone(2)], first, [receive(1, 8), send(0)]
        assert found(*calls) == expected


def test_what_an_earlier_receive_has_taken_is_no_choice() -> None:
    calls = [receive(2), anyone(1)], [send(0)], [send(0)]
    assert found(*calls) == []


def test_a_message_that_nobody_received_could_have_been_it() -> None:
    assert found([anyone(1)], [send(0)], [send(0)]) == [(0, 1, 1, (2,))]


def test_a_posted_receive_is_open_until_it_completes() -> None:
    """Rank 2 sends when the receive is posted, and has not completed."""
    post = Call(0, 0, "MPI_Irecv", Kind.POST_RECV, comm="world", peer=1, tag=7, wild=ANY_SOURCE)
    wait = Call(0, 0, "MPI_Wait", Kind.COMPLETE, completes=(1,))
    calls = [post, send(2), wait, anyone(2)], [send(0)], [receive(0), send(0)]
    assert found(*calls) == [(0, 1, 1, (2,))]


def test_a_probe_of_anyone() -> None:
    probe = Call(0, 0, "MPI_Probe", Kind.PROBE, comm="world", peer=1, tag=7, wild=ANY_SOURCE)
    assert found([probe, receive(1), receive(2)], [send(0)], [send(0)]) == [(0, 1, 1, (2,))]
    assert found([probe, receive(1), BARRIER], [send(0), BARRIER], [BARRIER]) == []
