"""Which receive got which send: against the queues of a small MPI, and case by case."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from mpi_story import World, stories

from crdebug.base.instant import Instant, cut_of
from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.cuts import is_consistent, latest_cut
from crdebug.timeline.matching import Matching
from crdebug.timeline.messages import (
    Message,
    collective_of,
    in_flight,
    messages,
    pending,
    received_by,
    sent_by,
    unmatched,
)
from crdebug.timeline.needs import NEVER, NeedList
from harness.matcher import library

STORIES = 300


def matched(logs: dict[int, list[Call]]) -> Matching:
    matching = Matching(library())
    matching.extend(logs, {"world": tuple(sorted(logs))})
    return matching


def found_matches(matching: Matching) -> set[tuple[int, int, int, int]]:
    return {
        (m.sender, m.sent, m.receiver, m.posted) for m in messages(matching) if m.posted is not None
    }


def recorded(world: World) -> set[tuple[int, int, int, int]]:
    """The true matches of which both calls are on record."""
    ends = [len(state.log) for state in world.states]
    return {
        match
        for match in world.true_matches()
        if match[1] <= ends[match[0]] and match[3] <= ends[match[2]]
    }


def test_true_executions_are_matched_as_they_were() -> None:
    several = 0
    for _chooser, world in stories(STORIES):
        matching = matched(world.logs())
        # a message to a receive that is posted and not completed is matched before it arrives
        assert recorded(world) <= found_matches(matching)
        extra = found_matches(matching) - recorded(world)
        got = {(m[2], m[3]) for m in world.true_matches()}
        assert not {(m[2], m[3]) for m in extra} & got
        several += len(recorded(world))
    assert several > 3 * STORIES


def test_reading_piece_by_piece_gives_the_same_as_at_once() -> None:
    for chooser, world in stories(STORIES):
        whole, pieces = matched(world.logs()), Matching(library())
        ends = [0] * len(world.states)
        while any(end < len(state.log) for end, state in zip(ends, world.states, strict=True)):
            rank = chooser.randrange(len(ends))
            ends[rank] += chooser.randint(0, len(world.states[rank].log) - ends[rank])
            order = [*range(len(ends))]
            chooser.shuffle(order)
            pieces.extend({r: as_of(world.states[r].log, ends[r]) for r in order})
        assert [*messages(whole)] == [*messages(pieces)]
        cut = cut_of(*(chooser.randint(0, clock) for clock in world.clocks()))
        assert {*in_flight(whole, cut)} == {*in_flight(pieces, cut)}
        assert [*pending(whole, cut)] == [*pending(pieces, cut)]


def as_of(log: list[Call], end: int) -> list[Call]:
    """The first calls of a log, when later ones were not there: wild receives were open."""
    completed = {post for call in log[:end] for post in call.completes}
    return [
        replace(call, peer=None, tag=None)
        if call.wild
        and call.kind is Kind.POST_RECV
        and call.tick not in completed
        and len(log) > end
        else call
        for call in log[:end]
    ]


def test_sent_but_unreceived_messages_are_in_flight() -> None:
    total = 0
    for chooser, world in stories(STORIES):
        matching = matched(world.logs())
        cut = cut_of(*(chooser.randint(0, clock) for clock in world.clocks()))
        expected = {
            m
            for m in messages(matching)
            if Instant.within(m.sent) <= cut[m.sender]
            and (m.received is None or Instant.after(m.received) > cut[m.receiver])
        }
        assert {*in_flight(matching, cut)} == expected
        total += len(expected)
    assert total > STORIES


def send(rank: int, tick: int, peer: int, tag: int = 0, **more: object) -> Call:
    return Call(rank, tick, "MPI_Send", Kind.SEND, comm="world", peer=peer, tag=tag, **more)  # type: ignore[arg-type]


def receive(rank: int, tick: int, peer: int, tag: int = 0) -> Call:
    return Call(rank, tick, "MPI_Recv", Kind.RECV, comm="world", peer=peer, tag=tag)


def post(rank: int, tick: int, peer: int | None, tag: int | None = 0) -> Call:
    return Call(
        rank, tick, "MPI_Irecv", Kind.POST_RECV, comm="world", peer=peer, tag=tag, wild=peer is None
    )


def wait(rank: int, tick: int, *posts: int) -> Call:
    return Call(rank, tick, "MPI_Waitall", Kind.COMPLETE, completes=posts)


def pairs(matching: Matching) -> list[tuple[int, int | None, int | None]]:
    return [(m.sent, m.posted, m.received) for m in messages(matching) if m.sender == 0]


def test_messages_do_not_overtake_within_a_tag() -> None:
    logs = {
        0: [send(0, 1, 1), send(0, 2, 1, tag=7), send(0, 3, 1)],
        1: [receive(1, 1, 0, tag=7), receive(1, 2, 0), receive(1, 3, 0)],
    }
    assert pairs(matched(logs)) == [(1, 2, 2), (2, 1, 1), (3, 3, 3)]


def test_the_posting_order_counts_and_not_that_of_completion() -> None:
    logs = {
        0: [send(0, 1, 1), send(0, 2, 1)],
        1: [post(1, 1, 0), post(1, 2, 0), wait(1, 3, 2), wait(1, 4, 1)],
    }
    assert pairs(matched(logs)) == [(1, 1, 4), (2, 2, 3)]


def test_a_wild_receive_takes_its_place_when_it_is_known() -> None:
    matching = Matching(library())
    sends = [send(0, 1, 1), send(0, 2, 1)]
    calls = [post(1, 1, None), receive(1, 2, 0)]
    matching.extend({0: sends, 1: calls})
    assert pairs(matching) == [(1, 2, 2), (2, None, None)]  # as far as is known
    assert [p.sender for p in pending(matching, cut_of(4, 4))] == [None]
    calls[0] = replace(calls[0], peer=0, tag=0)
    calls.append(wait(1, 3, 1))
    matching.extend({0: sends, 1: calls})
    assert pairs(matching) == [(1, 1, 3), (2, 2, 2)]


def test_a_probe_looks_and_a_matched_probe_takes() -> None:
    def probe(tick: int, name: str = "MPI_Probe") -> Call:
        return Call(1, tick, name, Kind.PROBE, comm="world", peer=0, tag=0)

    mrecv = Call(1, 5, "MPI_Mrecv", Kind.RECV)  # its record names no source
    logs = {
        0: [send(0, 1, 1), send(0, 2, 1), send(0, 3, 1)],
        1: [probe(1), receive(1, 2, 0), probe(3, "MPI_Mprobe"), receive(1, 4, 0), mrecv],
    }
    for order in (logs, dict(reversed(logs.items()))):
        matching = matched(order)
        assert pairs(matching) == [(1, 2, 2), (2, 3, 5), (3, 4, 4)]
        assert [m.sent for call in logs[1] for m in received_by(matching, call)] == [1, 1, 2, 3, 2]


def test_a_log_that_was_cut_is_read_again() -> None:
    logs = {0: [send(0, 1, 1), send(0, 2, 1)], 1: [receive(1, 1, 0), receive(1, 2, 0)]}
    matching = matched(logs)
    for branch in (
        {**logs, 1: [receive(1, 1, 0)]},
        {**logs, 1: [receive(1, 1, 0), receive(1, 2, 3), receive(1, 3, 0)]},
        {**logs, 1: [receive(1, 1, 0), wait(1, 2), receive(1, 3, 0)]},
    ):
        matching.extend(branch)
        assert [*messages(matching)] == [*messages(matched(branch))]
        assert matching.successions.keys() == matched(branch).successions.keys()


def test_a_start_of_many_that_tells_nothing_delays_no_rank() -> None:
    starts = Call(0, 1, "MPI_Startall", Kind.POST_SEND)
    logs = {0: [starts, wait(0, 2, 1, 1)], 1: [receive(1, 1, 0), receive(1, 2, 0)]}
    returned = Instant.after(1)
    assert latest_cut(matched(logs), 0, returned, cut_of(5, 4)) == (2, 4)
    assert is_consistent(matched(logs), cut_of(4, 4)) is None
    # without such a call, the message must come from the call in progress
    logs[0] = [wait(0, 1)]
    assert latest_cut(matched(logs), 0, returned, cut_of(3, 4)) == (2, 1)


def test_what_is_cancelled_leaves_the_queue() -> None:
    cancel = Call(1, 2, "MPI_Cancel", Kind.CANCEL, completes=(1,))
    logs = {0: [send(0, 1, 1)], 1: [post(1, 1, 0), cancel, receive(1, 3, 0)]}
    assert pairs(matched(logs)) == [(1, 3, 3)]
    assert pairs(matched(dict(reversed(logs.items())))) == [(1, 3, 3)]
    taken_back = Call(0, 2, "MPI_Cancel", Kind.CANCEL, completes=(1,))
    isend = replace(send(0, 1, 1), kind=Kind.POST_SEND, name="MPI_Isend")
    both = {0: [isend, taken_back, send(0, 3, 1)], 1: [receive(1, 1, 0)]}
    for order in (both, dict(reversed(both.items()))):
        assert pairs(matched(order)) == [(3, 1, 1)]


def test_messages_to_oneself_and_both_halves_of_sendrecv() -> None:
    both = Call(0, 2, "MPI_Sendrecv", Kind.SENDRECV, comm="world", peer=0, tag=3, source2=0, tag2=3)
    matching = matched({0: [Call(0, 1, "MPI_Wtime", Kind.TIME), both]})
    assert [*messages(matching)] == [Message(0, 2, 0, "world", 3, 0, 2, 2, 2)]
    assert received_by(matching, both) == sent_by(matching, both)


def test_nothing_is_sent_to_nobody() -> None:
    nobody = [replace(send(0, 1, 0), peer=None), replace(receive(0, 2, 0), peer=None)]
    assert not [*messages(matched({0: nobody}))]


def test_unmatched_sends_and_pending_receives() -> None:
    matching = matched(
        {0: [send(0, 1, 1), send(0, 2, 1, tag=5)], 1: [post(1, 1, 0), post(1, 2, 2)]}
    )
    assert [(m.sent, m.tag) for m in unmatched(matching)] == [(2, 5)]
    assert [(p.posted, p.sender, p.sent) for p in pending(matching, cut_of(4, 4))] == [
        (1, 0, 1),
        (2, 2, None),
    ]
    assert [p.posted for p in pending(matching, cut_of(4, 1))] == [1]
    assert not [*pending(matching, cut_of(4, 0))]


def test_from_a_wait_to_the_senders_and_back() -> None:
    logs = {
        0: [send(0, 1, 1), send(0, 2, 1)],
        1: [post(1, 1, 0), post(1, 2, 0), wait(1, 3, 1, 2)],
    }
    matching = matched(logs)
    assert [m.sent for m in received_by(matching, logs[1][2])] == [1, 2]
    assert [m.sent for m in received_by(matching, logs[1][1])] == [2]
    assert [m.received for m in sent_by(matching, logs[0][0])] == [3]
    assert received_by(matching, logs[0][0]) == ()


def test_collectives_are_the_nth_over_their_communicator() -> None:
    def call(rank: int, tick: int, name: str, comm: str = "world", peer: int | None = None) -> Call:
        kind = Kind.COMM if "split" in name else Kind.COLLECTIVE
        return Call(rank, tick, name, kind, comm=comm, peer=peer)

    logs = {
        0: [
            call(0, 1, "MPI_Comm_split"),
            call(0, 2, "MPI_Barrier", "0.1"),
            call(0, 3, "MPI_Bcast", peer=1),
        ],
        1: [call(1, 1, "MPI_Comm_split"), call(1, 2, "MPI_Bcast", peer=1)],
        2: [call(2, 1, "MPI_Comm_split")],
    }
    matching = matched(logs)
    bcast = collective_of(matching, logs[0][2])
    assert bcast is not None
    assert (bcast.number, bcast.root, bcast.entered, bcast.missing) == (1, 1, {0: 3, 1: 2}, (2,))
    alone = collective_of(matching, logs[0][1])
    assert alone is not None
    assert alone.entered == {0: 2}
    assert collective_of(matching, send(0, 9, 1)) is None


@pytest.mark.parametrize("seed", range(20))
def test_a_list_of_needs_answers_as_a_plain_search(seed: int) -> None:
    chooser, needs, plain = random.Random(seed), NeedList.alone(library()), list[list[int]]()
    for step in range(6000):
        key = step if chooser.random() < 0.98 else chooser.randint(0, step)
        value = chooser.choice((NEVER, chooser.randint(0, 6000)))
        at = needs.add(key, value)
        plain.insert(at, [key, value])
        if chooser.random() < 0.3:
            at, value = chooser.randrange(len(plain)), chooser.randint(0, 6000)
            needs.put(at, value)
            plain[at][1] = value
        if step % 500 == 499:
            assert [*needs.keys] == sorted(key for key, _ in plain)
            for _ in range(20):
                first, last, above = (chooser.randint(-1, step) for _ in range(3))
                inside = [v for k, v in plain if first <= k <= last and v > above]
                assert needs.least(first, last, above) == min(inside, default=NEVER)
                past = [k for k, v in plain if v <= above]
                assert needs.needed_by(above) == max(past, default=0)
                open_ = [n for n, (k, v) in enumerate(plain) if k <= last and v > above]
                assert [*needs.open_at(last, above)] == open_
                assert needs.key_of(above) == next((k for k, v in plain if v == above), None)
