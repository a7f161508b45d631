"""The positions of calls on the page."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.columns import columns

pytestmark = pytest.mark.unit


def calls(rank: int, *kinds: Kind) -> list[Call]:
    return [Call(rank, tick, kind.name, kind) for tick, kind in enumerate(kinds, 1)]


def test_a_receive_comes_after_its_send() -> None:
    both = [calls(0, *[Kind.SEND] * 3), calls(1, *[Kind.RECV] * 3)]
    messages = [(0, n, 1, n) for n in (1, 2, 3)]
    assert columns(both, messages, []) == [[1, 2, 3], [2, 3, 4]]


def test_ping_pong_is_a_stair() -> None:
    ping = calls(0, Kind.SEND, Kind.RECV, Kind.SEND, Kind.RECV)
    pong = calls(1, Kind.RECV, Kind.SEND, Kind.RECV, Kind.SEND)
    messages = [(0, 1, 1, 1), (1, 2, 0, 2), (0, 3, 1, 3), (1, 4, 0, 4)]
    assert columns([ping, pong], messages, []) == [[1, 4, 5, 8], [2, 3, 6, 7]]


def test_a_million_unsuccessful_tests_are_one_column() -> None:
    polling = [
        Call(0, 1, "MPI_Test", Kind.NOTHING, repeats=10**6),
        Call(0, 10**6 + 1, "MPI_Test", Kind.COMPLETE),
        Call(0, 10**6 + 2, "MPI_Barrier", Kind.COLLECTIVE),
    ]
    other = calls(1, Kind.SEND, Kind.COLLECTIVE)
    messages, together = [(1, 1, 0, 10**6 + 1)], [[(0, 10**6 + 2), (1, 2)]]
    assert columns([polling, other], messages, together) == [[1, 2, 3], [1, 3]]


def test_a_collective_takes_one_column_except_on_ranks_that_only_begin_it() -> None:
    ranks = [calls(rank, *[Kind.OTHER] * rank, Kind.COLLECTIVE) for rank in range(4)]
    together = [[(rank, rank + 1) for rank in range(4)]]
    assert [own[-1] for own in columns(ranks, [], together)] == [4] * 4
    begun = [calls(rank, *[Kind.OTHER] * rank, Kind.POST_COLLECTIVE) for rank in range(4)]
    assert [own[-1] for own in columns(begun, [], together)] == [1, 2, 3, 4]


@pytest.mark.parametrize("size", [2, 3, 7])
def test_an_exchange_in_a_ring_stays_together(size: int) -> None:
    ranks = [calls(rank, *[Kind.SENDRECV] * 5) for rank in range(size)]
    messages = [(rank, n, (rank + 1) % size, n) for rank in range(size) for n in range(1, 6)]
    assert columns(ranks, messages, []) == [[1, 2, 3, 4, 5]] * size


def test_what_cannot_be_is_shown_all_the_same() -> None:
    """Two that each wait for the other one's later send, and a collective that one leaves early."""
    both = [calls(0, Kind.RECV, Kind.SEND), calls(1, Kind.RECV, Kind.SEND)]
    found = columns(both, [(0, 2, 1, 1), (1, 2, 0, 1)], [])
    assert all(own[0] < own[1] for own in found)
    early = [calls(0, Kind.COLLECTIVE, Kind.SEND), calls(1, Kind.RECV, Kind.COLLECTIVE)]
    root, other = columns(early, [(0, 2, 1, 1)], [[(0, 1), (1, 2)]])
    assert root == [1, 2] and other == [3, 4]


def test_what_is_not_shown_does_not_count() -> None:
    shown = [calls(0, Kind.SEND), calls(1, Kind.RECV), []]
    messages = [(0, 9, 1, 1), (2, 1, 1, 1), (0, 1, 2, 1)]
    assert columns(shown, messages, [[(0, 5), (1, 5), (2, 5)]]) == [[1], [1], []]
    assert columns([], [], []) == []


@pytest.mark.parametrize("seed", range(60))
def test_whatever_could_have_happened(seed: int) -> None:
    """Programs made by chance, run in some order: that order is a proof that columns exist."""
    chance = random.Random(seed)
    size = chance.randrange(2, 6)
    logs: list[list[Call]] = [[] for _ in range(size)]
    flying: list[tuple[int, int, int]] = []
    messages: list[tuple[int, int, int, int]] = []
    together: list[Sequence[tuple[int, int]]] = []

    def add(rank: int, kind: Kind) -> int:
        last = logs[rank][-1] if logs[rank] else None
        tick = last.tick + last.repeats if last else 1
        repeats = chance.randrange(1, 1000) if kind is Kind.NOTHING else 1
        logs[rank].append(Call(rank, tick, kind.name, kind, repeats=repeats))
        return tick

    for _ in range(200):
        rank = chance.randrange(size)
        what = chance.random()
        if what < 0.4:
            other = chance.choice([each for each in range(size) if each != rank])
            flying.append((rank, add(rank, Kind.SEND), other))
        elif what < 0.7 and flying:
            sender, sent, other = flying.pop(chance.randrange(len(flying)))
            messages.append((sender, sent, other, add(other, Kind.RECV)))
        elif what < 0.8:
            add(rank, Kind.NOTHING)
        elif what < 0.9:
            some = chance.sample(range(size), chance.randrange(2, size + 1))
            together.append([(each, add(each, Kind.COLLECTIVE)) for each in some])
        else:
            add(rank, Kind.OTHER)
    found = columns(logs, messages, together)
    place = {
        (call.rank, call.tick): column
        for log, own in zip(logs, found, strict=True)
        for call, column in zip(log, own, strict=True)
    }
    assert all(before < after for own in found for before, after in pairwise(own))
    assert all(place[s, sent] < place[r, got] for s, sent, r, got in messages)
    assert all(len({place[each] for each in group}) == 1 for group in together)
    assert max(max(own, default=0) for own in found) <= sum(map(len, logs)), "no gap for nothing"
