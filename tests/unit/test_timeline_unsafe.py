"""Calls that would wait for ever in another MPI, from lists of calls."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from mpi_programs import ANY, Op, random_programs
from mpi_story import Collectives, World

from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.matching import Matching
from crdebug.timeline.tables import ANY_SOURCE
from crdebug.timeline.unsafe import Unsafe, unsafe
from harness.matcher import library

pytestmark = pytest.mark.unit


def record(logs: Sequence[Sequence[Call]]) -> tuple[Matching, dict[int, list[Call]]]:
    calls = {
        rank: [replace(call, rank=rank, tick=tick, site=tick) for tick, call in enumerate(each, 1)]
        for rank, each in enumerate(logs)
    }
    matching = Matching(library())
    matching.extend(calls, {"world": tuple(range(len(logs)))})
    return matching, calls


def found(*logs: Sequence[Call]) -> list[tuple[int, int, int]]:
    """Rank and tick of each, and for whom it would wait."""
    return [(each.rank, each.tick, each.awaited) for each in unsafe(*record(logs))]


def send(to: int, tag: int = 7, name: str = "MPI_Send") -> Call:
    return Call(0, 0, name, Kind.SEND, comm="world", peer=to, tag=tag, bytes=4)


def receive(source: int, tag: int = 7, wild: int = 0) -> Call:
    kind = Kind.RECV
    return Call(0, 0, "MPI_Recv", kind, comm="world", peer=source, tag=tag, bytes=4, wild=wild)


def posted(name: str, peer: int) -> Call:
    kind = Kind.POST_SEND if "send" in name else Kind.POST_RECV
    return Call(0, 0, name, kind, comm="world", peer=peer, tag=7, bytes=4)


def completion(name: str, tick: int) -> Call:
    return Call(0, 0, name, Kind.COMPLETE, completes=(tick,))


BARRIER = Call(0, 0, "MPI_Barrier", Kind.COLLECTIVE, comm="world")
WAIT = completion("MPI_Wait", 1)


def test_two_that_both_send_first() -> None:
    assert sorted(found([send(1), receive(1)], [send(0), receive(0)])) == [(0, 1, 1), (1, 1, 0)]


def test_the_call_that_has_the_other_one_wait() -> None:
    both = [send(1, 8), send(1)], [posted("MPI_Irecv", 0), WAIT, receive(0, 8)]
    assert [*unsafe(*record(both))] == [Unsafe(0, 1, awaited=1, there=1)]
    both[1][1] = replace(WAIT, name="MPI_Waitall", completes=(1, 1))
    assert [*unsafe(*record(both))] == [Unsafe(0, 1, awaited=1, there=2)]


def test_one_sends_first_and_one_receives() -> None:
    assert found([send(1), receive(1)], [receive(0), send(0)]) == []


def test_a_ring_of_three_that_send_to_the_right() -> None:
    ring = [[send((rank + 1) % 3), receive((rank - 1) % 3)] for rank in range(3)]
    assert len(found(*ring)) == 3
    ring[1].reverse()
    assert found(*ring) == []


def test_a_rank_that_sends_to_itself_first() -> None:
    assert found([send(0), receive(0)]) == [(0, 1, 0)]
    assert found([posted("MPI_Isend", 0), receive(0), WAIT]) == []


def test_a_posted_send_waits_in_its_wait() -> None:
    both = [[posted("MPI_Isend", 1 - rank), WAIT, receive(1 - rank)] for rank in range(2)]
    assert sorted(found(*both)) == [(0, 1, 1), (1, 1, 0)]
    both = [[posted("MPI_Isend", 1 - rank), receive(1 - rank), WAIT] for rank in range(2)]
    assert found(*both) == []


def test_a_receive_that_is_posted_before_lets_the_send_go() -> None:
    both = [[posted("MPI_Irecv", 1 - rank), send(1 - rank), WAIT] for rank in range(2)]
    assert found(*both) == []


def test_what_is_sent_into_a_buffer_of_the_program_needs_none() -> None:
    both = [[send(1 - rank, name="MPI_Bsend"), receive(1 - rank)] for rank in range(2)]
    assert found(*both) == []


def test_a_receive_behind_a_barrier() -> None:
    assert found([send(1), BARRIER], [BARRIER, receive(0)]) == [(0, 1, 1)]
    assert found([send(1), BARRIER], [receive(0), BARRIER]) == []


def test_a_receive_behind_that_of_another_message() -> None:
    calls = [send(1, 7), send(1, 8)], [receive(0, 8), receive(0, 7)]
    assert found(*calls) == [(0, 1, 1)]


def test_a_send_that_was_tested_need_not_have_been_waited_for() -> None:
    test = completion("MPI_Test", 1)
    both = [[posted("MPI_Isend", 1 - rank), test, receive(1 - rank)] for rank in range(2)]
    assert found(*both) == []


def test_a_receive_from_anyone_could_have_got_another_message() -> None:
    """Rank 0 has got the message of rank 2 first; it could have got that of rank 1, which waits."""
    calls = (
        [receive(2, wild=ANY_SOURCE), receive(1, wild=ANY_SOURCE)],
        [send(0), send(2, 8)],
        [receive(1, 8), send(0)],
    )
    assert found(*calls) == []


def test_each_of_two_rings_is_found() -> None:
    both = [[send(1 - rank), receive(1 - rank), BARRIER] * 2 for rank in range(2)]
    assert len(found(*both)) == 4


def test_a_root_that_need_not_wait_for_the_others_but_may() -> None:
    bcast = Call(0, 0, "MPI_Bcast", Kind.COLLECTIVE, comm="world", peer=0)
    late = send(1, name="MPI_Ssend")
    assert found([bcast, late], [receive(0), bcast]) == [(0, 1, 1)]
    assert found([late, bcast], [receive(0), bcast]) == []


def test_a_root_that_needs_the_others_is_waited_for_in_any_mpi() -> None:
    reduce = Call(0, 0, "MPI_Reduce", Kind.COLLECTIVE, comm="world", peer=0)
    assert found([receive(1), reduce], [reduce, send(0)]) == [(1, 1, 0)]


def test_a_posted_collective_waits_in_its_wait() -> None:
    kind = Kind.POST_COLLECTIVE
    bcast = Call(0, 0, "MPI_Ibcast", kind, comm="world", peer=0)
    late, wait = send(1, name="MPI_Ssend"), completion("MPI_Wait", 1)
    calls = [bcast, wait, late], [receive(0), bcast, completion("MPI_Wait", 2)]
    assert found(*calls) == [(0, 1, 1)]
    assert found([bcast, late, wait], calls[1]) == []


def test_after_a_call_in_which_nobody_waits_there_may_be_others() -> None:
    fence = Call(0, 0, "MPI_Win_fence", Kind.RMA, comm="window(world)", opens=True)
    both = [[fence, send(1 - rank), receive(1 - rank)] for rank in range(2)]
    assert len(found(*both)) == 2


# ---- random programs -----------------------------------------------------------------------------


def shuffled(chooser: random.Random, program: list[Op]) -> list[Op]:
    """With up to two calls before their neighbours, but for those that depend on each other."""
    order = [*range(1, len(program) + 1)]
    for _ in range(chooser.randrange(3) if len(order) > 1 else 0):
        at = chooser.randrange(len(order) - 1)
        one, two = program[order[at] - 1], program[order[at + 1] - 1]
        if order[at] not in two.posts and "Win" not in one.name + two.name:
            order[at], order[at + 1] = order[at + 1], order[at]
    new = {old: number for number, old in enumerate(order, 1)}
    programs = [program[old - 1] for old in order]
    return [replace(op, posts=tuple(new[post] for post in op.posts)) for op in programs]


def ended(world: World) -> bool:
    return all(
        state.now == 2 * len(program)
        for state, program in zip(world.states, world.programs, strict=True)
    )


def hangs(programs: list[list[Op]], seed: int) -> bool:
    """In an MPI in which all waits that may."""
    world = World(programs, eager=-1, collectives=Collectives.FULL)
    world.run(random.Random(seed))
    return not ended(world)


def test_what_is_found_in_a_run_that_went_well_hangs_in_an_mpi_that_waits() -> None:
    """And nothing else does, where the program has one course."""
    unsafe_ones = 0
    for seed in range(1200):
        chooser = random.Random(seed)
        size = chooser.choice((2, 3, 3, 4))
        programs = random_programs(chooser, size, chooser.randrange(2, 12))
        programs = [shuffled(chooser, program) for program in programs]
        world = World(programs, eager=1 << 30)
        world.run(chooser)
        if not ended(world):
            continue
        matching, logs = Matching(library(), eager=1 << 30), world.logs()
        everyone = tuple(range(size))
        matching.extend(logs, {"world": everyone, "window(world)": everyone})
        names = {op.name for program in programs for op in program}
        wild = any(ANY in (op.peer, op.tag) for program in programs for op in program
                   if op.name in ("MPI_Recv", "MPI_Irecv"))  # fmt: skip
        told = [*unsafe(matching, logs)]
        unsafe_ones += bool(told)
        if told:
            assert any(hangs(programs, 100 * seed + n) for n in range(20)), seed
        elif not wild and "MPI_Test" not in names and not any("Win" in name for name in names):
            assert not hangs(programs, seed), seed
    assert unsafe_ones > 30
