"""Matching and cuts, on true executions of a small MPI (mpi_story), against plain definitions.

The definitions are written down here once more, as lists of rules and loops over all calls.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from functools import partial

import pytest
from mpi_programs import Op
from mpi_story import Collectives, World, stories

from crdebug.base.errors import BadInput, Refused
from crdebug.base.instant import Cut, Instant, cut_of
from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.cuts import is_consistent, last_arriver, latest_cut, past
from crdebug.timeline.matching import Matching
from harness.matcher import library

STORIES = 400
EAGER = 1024

# a call of one rank completes (rank, tick) only if another has entered its call (rank, tick)
Rule = tuple[int, int, int, int]


def matched(world: World, **options: bool) -> Matching:
    matching = Matching(library(), eager=min(world.eager, EAGER), **options)
    comms = dict.fromkeys(("world", "window(world)"), tuple(range(len(world.programs))))
    matching.extend(world.logs(), comms)
    return matching


def rules(world: World, *, trees: bool) -> tuple[set[Rule], set[Rule]]:
    """The certain and the presumed, from the run itself and not from its records."""
    certain: set[Rule] = set()
    presumed: set[Rule] = set()
    done: dict[tuple[int, int], int] = {}  # (rank, posting tick) → completing tick
    for log in world.logs().values():
        for call in log:
            if call.kind in IN_THEMSELVES:
                done[call.rank, call.tick] = call.tick
            done |= {(call.rank, post): call.tick for post in call.completes}
    for rank, state in enumerate(world.states):
        for receive in state.receives.values():
            received = done.get((rank, receive.tick))
            if receive.got is None or receive.got.source == rank:
                continue
            source, sent = receive.got.source, receive.got.tick
            if received:
                certain.add((rank, received, source, sent))
            if (source, sent) in done and not receive.looks:
                op = world.programs[source][sent - 1]
                rule = (source, done[source, sent], rank, receive.tick)
                if op.name in ("MPI_Ssend", "MPI_Issend"):
                    certain.add(rule)
                elif op.bytes > min(world.eager, EAGER):
                    presumed.add(rule)
    entered = [
        [*enumerate(program[: (state.now + 1) // 2], 1)]
        for program, state in zip(world.programs, world.states, strict=True)
    ]
    instances = [
        *itertools.zip_longest(*([t for t, op in each if is_collective(op)] for each in entered)),
        *itertools.zip_longest(*([t for t, op in each if "fence" in op.name] for each in entered)),
    ]
    least = World(world.programs, collectives=Collectives.LEAST)
    for instance in instances:
        for rank, other in itertools.permutations(range(len(world.programs)), 2):
            mine, its = instance[rank], instance[other]
            if mine and its and (rank, mine) in done:
                rule = (rank, done[rank, mine], other, its)
                if other in least.needed(world.programs[rank][mine - 1], rank):
                    certain.add(rule)
                elif trees:
                    presumed.add(rule)
    for waiting, awaited, sure in STEPS:
        for rank, other in itertools.permutations(range(len(world.programs)), 2):
            waits = [t for t, op in entered[rank] if op.name == waiting and other in op.group]
            needed = [t for t, op in entered[other] if op.name == awaited and rank in op.group]
            for tick, its in zip(waits, needed, strict=False):
                if (rank, tick) in done:
                    (certain if sure else presumed).add((rank, tick, other, its))
    return certain, presumed


def is_collective(op: Op) -> bool:
    return "arrier" in op.name or "cast" in op.name or op.name in OTHERS


OTHERS = ("MPI_Reduce", "MPI_Allreduce", "MPI_Scan")
IN_THEMSELVES = (Kind.SEND, Kind.RECV, Kind.SENDRECV, Kind.COLLECTIVE, Kind.PROBE, Kind.RMA)
# of windows: which step of an origin or a target may wait for which of the other's; whether it must
STEPS = (
    ("MPI_Win_start", "MPI_Win_post", False),
    ("MPI_Win_complete", "MPI_Win_post", False),
    ("MPI_Win_wait", "MPI_Win_complete", True),
)


def violated(cut: Sequence[int], rule: Rule) -> bool:
    waiter, tick, other, entry = rule
    return cut[waiter] >= 2 * tick and cut[other] < 2 * entry - 1


def plain_past(certain: set[Rule], focus: int, now: int, size: int) -> list[int]:
    cut = [0] * size
    cut[focus] = now
    changed = True
    while changed:
        changed = False
        for waiter, tick, other, entry in certain:
            done = cut[waiter] + 1 if waiter == focus else cut[waiter]
            if done >= 2 * tick and cut[other] < 2 * entry - 1:
                cut[other], changed = 2 * entry - 1, True
    return cut


def kept(world: World, focus: int, now: int, frontier: Sequence[int], *, trees: bool) -> set[Rule]:
    """The rules that neither the frontier nor what the focus implies disproves."""
    certain, presumed = rules(world, trees=trees)
    before = plain_past(certain, focus, now, len(frontier))
    before = [min(pair) for pair in zip(before, frontier, strict=True)]
    inside = [*before]
    inside[focus] += inside[focus] % 2
    return {
        rule
        for rule in certain | presumed
        if not violated(frontier, rule) and not violated(inside, rule)
    }


def greatest(kept: set[Rule], focus: int, now: int, frontier: Sequence[int]) -> Cut:
    cut = [*frontier]
    cut[focus] = now
    while broken := [rule for rule in kept if violated(cut, rule)]:
        for waiter, tick, _, _ in broken:
            cut[waiter] = min(cut[waiter], 2 * tick - 1)
    return cut_of(*cut)


def questions(chooser: random.Random, world: World) -> Iterator[tuple[int, Instant]]:
    """Places of a focused rank: for every rank its last, and some before."""
    for rank, end in enumerate(cut_of(*world.clocks())):
        yield from {(rank, end), *((rank, Instant(chooser.randint(0, end))) for _ in range(3))}


def all_known(world: World) -> bool:
    """Are the records complete: no call is under way, and no wild receive is open?"""
    got = {(rank, tick) for rank, state in enumerate(world.states) for tick in state.receives}
    known = {(c.rank, c.tick) for log in world.logs().values() for c in log if c.peer is not None}
    return got <= known and not any(clock % 2 for clock in world.clocks())


@pytest.mark.parametrize("trees", [False, True])
def test_the_latest_cut_is_the_greatest_that_keeps_the_rules(trees: bool) -> None:
    exact = guarded = 0
    for chooser, world in stories(STORIES):
        matching, frontier = matched(world, trees=trees), cut_of(*world.clocks())
        for focus, now in questions(chooser, world):
            rules_kept = kept(world, focus, now, frontier, trees=trees)
            expected = greatest(rules_kept, focus, now, frontier)
            found = latest_cut(matching, focus, now, frontier)
            if all_known(world):
                assert found == expected, (focus, now)
                exact += expected != frontier
            else:  # never later than what the run allows; earlier where the records leave it open
                assert not any(violated(found, rule) for rule in rules_kept), (focus, now)
                guarded += found != frontier
    assert exact > STORIES // 2  # and not only where there was nothing to find
    assert guarded > STORIES // 2


def test_no_cut_among_all_is_greater() -> None:
    compared = 0
    for chooser, world in stories(STORIES, sizes=(2, 3)):
        frontier = cut_of(*world.clocks())
        if not all_known(world) or sum(frontier) > 60:
            continue
        matching = matched(world)
        for focus, now in questions(chooser, world):
            rules_kept = kept(world, focus, now, frontier, trees=True)
            found = latest_cut(matching, focus, now, frontier)
            spans = [range(c + 1) if r != focus else (now,) for r, c in enumerate(frontier)]
            for cut in itertools.product(*spans):
                if not any(violated(cut, rule) for rule in rules_kept):
                    assert all(a <= b for a, b in zip(cut, found, strict=True))
            compared += 1
    assert compared > STORIES // 4


def test_every_latest_cut_is_reached_by_running_again() -> None:
    reached = 0
    for chooser, world in stories(STORIES):
        matching = matched(world, trees=world.collectives is not Collectives.LEAST)
        frontier = cut_of(*world.clocks())
        for focus, now in questions(chooser, world):
            cut = latest_cut(matching, focus, now, frontier)
            again = World(world.programs, world.eager, world.collectives, original=world)
            again.run(chooser, stop=cut)
            assert cut_of(*again.clocks()) == cut, (focus, now)
            reached += cut != frontier
    assert reached > STORIES


def test_where_records_end_before_the_run_a_cut_within_them_is_reached() -> None:
    """Or refused, if the focused rank got something that is not on record."""
    reached = refused = needless = 0
    for chooser, world in stories(STORIES):
        logs, ends = world.logs(), world.clocks()
        kept_of = {rank: log[: chooser.randint(0, len(log))] for rank, log in logs.items()}
        ended = [rank for rank, log in logs.items() if len(kept_of[rank]) < len(log)]
        for rank in ended:
            ends[rank] = 2 * len(kept_of[rank])
        frontier = cut_of(*ends)
        matching = Matching(
            library(),
            eager=min(world.eager, EAGER),
            trees=world.collectives is not Collectives.LEAST,
        )
        comms = dict.fromkeys(("world", "window(world)"), tuple(range(len(frontier))))
        matching.extend(kept_of, comms)
        certain, presumed = rules(world, trees=matching.trees)
        for focus, end in enumerate(frontier):
            now = Instant(chooser.randint(0, end))
            needs, may_need = (
                any(plain_past(each, focus, now, len(frontier))[r] > frontier[r] for r in ended)
                for each in (certain, certain | presumed)
            )
            try:
                cut = latest_cut(matching, focus, now, frontier, ended)
            except Refused:
                refused += 1
                needless += not may_need
                continue
            assert not needs, (focus, now)
            again = World(world.programs, world.eager, world.collectives, original=world)
            again.run(chooser, stop=cut)
            assert cut_of(*again.clocks()) == cut, (focus, now)
            reached += cut != frontier
    assert reached > STORIES
    assert refused > STORIES // 10
    assert needless <= refused // 50  # of unrecorded calls more are presumed than existed


def test_a_latest_cut_is_its_own_latest_cut() -> None:
    for chooser, world in stories(STORIES):
        matching, frontier = matched(world), cut_of(*world.clocks())
        for focus, now in questions(chooser, world):
            cut = latest_cut(matching, focus, now, frontier)
            assert latest_cut(matching, focus, now, cut) == cut
            assert latest_cut(matching, focus, now, frontier) == cut
        # if the focus is at the frontier, so are all
        for focus, now in enumerate(frontier):
            assert latest_cut(matching, focus, now, frontier) == frontier


def test_latest_cuts_are_consistent_and_violations_are_named() -> None:
    inconsistent = 0
    for chooser, world in stories(STORIES):
        matching, frontier = matched(world), cut_of(*world.clocks())
        for focus, now in questions(chooser, world):
            assert is_consistent(matching, latest_cut(matching, focus, now, frontier)) is None
        for _ in range(5):
            cut = cut_of(*(chooser.randint(0, end) for end in frontier))
            message = is_consistent(matching, cut)
            broken = {rule for rule in message_rules(world) if violated(cut, rule)}
            assert (message is None) == (not broken)
            if message is not None:
                inconsistent += 1
                named = (message.receiver, message.received, message.sender, message.sent)
                assert named in broken
    assert inconsistent > STORIES // 2


def message_rules(world: World) -> set[Rule]:
    """Receives that completed, with their sends."""
    certain, _ = rules(world, trees=False)
    receives = {
        (rank, receive.got.source, receive.got.tick)
        for rank, state in enumerate(world.states)
        for receive in state.receives.values()
        if receive.got is not None and not receive.looks
    }
    probes = {
        (call.rank, call.tick)
        for log in world.logs().values()
        for call in log
        if call.kind in (Kind.PROBE, Kind.COLLECTIVE)
    }
    return {
        rule
        for rule in certain
        if (rule[0], rule[2], rule[3]) in receives and (rule[0], rule[1]) not in probes
    }


def test_what_the_frontier_disproves_is_dropped() -> None:
    # a send of 2000 bytes has returned, and its receive is posted later: it was buffered
    matching = Matching(library())
    send = Call(0, 1, "MPI_Send", Kind.SEND, comm="world", peer=1, tag=0, bytes=2000)
    clock = Call(1, 1, "MPI_Wtime", Kind.TIME)
    receive = Call(1, 2, "MPI_Recv", Kind.RECV, comm="world", peer=0, tag=0, bytes=2000)
    matching.extend({0: [send], 1: [clock, receive]})
    inside = Instant.within(1)
    assert latest_cut(matching, 1, inside, cut_of(2, 2)) == (2, 1)
    # where it was posted, nothing says that the send did not need it
    assert latest_cut(matching, 1, inside, cut_of(2, 4)) == (1, 1)


def test_a_place_beyond_the_frontier_is_refused() -> None:
    with pytest.raises(BadInput, match="rank 1 has not been at half tick 3"):
        latest_cut(Matching(library()), 1, Instant(3), cut_of(4, 2))


def test_the_focus_implies_what_came_before() -> None:
    ping = Call(0, 1, "MPI_Send", Kind.SEND, comm="world", peer=1, tag=0)
    pong = Call(1, 1, "MPI_Recv", Kind.RECV, comm="world", peer=0, tag=0)
    matching = Matching(library())
    matching.extend({0: [ping], 1: [pong]})
    assert past(matching, 1, Instant(2), size=2) == (1, 2)
    assert past(matching, 1, Instant(1), size=2) == (
        1,
        1,
    )  # held before it returns: it has received
    assert past(matching, 1, Instant(0), size=2) == (0, 0)
    assert past(matching, 0, Instant(2), size=2) == (2, 0)


def test_who_came_last_is_known_where_causality_tells() -> None:
    logs = {
        0: [barrier(0, 1)],
        1: [Call(1, 1, "MPI_Send", Kind.SEND, comm="world", peer=2), barrier(1, 2)],
        2: [Call(2, 1, "MPI_Recv", Kind.RECV, comm="world", peer=1, tag=0), barrier(2, 2)],
    }
    matching = Matching(library())
    matching.extend(logs, {"world": (0, 1, 2)})
    assert last_arriver(matching, logs[0][0], 3) is None
    # a collective after it, which the root waits in for all: it enters the next one last
    gather = [
        Call(r, len(logs[r]) + 1, "MPI_Reduce", Kind.COLLECTIVE, comm="world", peer=0)
        for r in range(3)
    ]
    tell = [
        Call(0, 3, "MPI_Ssend", Kind.SEND, comm="world", peer=1),
        Call(1, 4, "MPI_Recv", Kind.RECV, comm="world", peer=0, tag=0),
    ]
    logs[0] += [gather[0], tell[0], barrier(0, 4)]
    logs[1] += [
        gather[1],
        tell[1],
        Call(1, 5, "MPI_Send", Kind.SEND, comm="world", peer=2),
        barrier(1, 6),
    ]
    logs[2] += [
        gather[2],
        Call(2, 4, "MPI_Recv", Kind.RECV, comm="world", peer=1, tag=0),
        barrier(2, 5),
    ]
    matching.extend(logs)
    assert last_arriver(matching, logs[2][-1], 3) is None  # rank 0 may be later
    assert last_arriver(matching, logs[1][-1], 3) is None


def barrier(rank: int, tick: int) -> Call:
    return Call(rank, tick, "MPI_Barrier", Kind.COLLECTIVE, comm="world")


def test_an_access_that_began_without_its_post_cannot_end_without_it() -> None:
    """A start that did not wait: rank 2's receive shows it, and complete still has to wait."""
    rma = partial(Call, comm="window(world)", kind=Kind.RMA)
    logs = {
        0: [
            rma(0, 1, "MPI_Win_start", group=(1,)),
            Call(0, 2, "MPI_Send", Kind.SEND, comm="world", peer=2, tag=0),
            rma(0, 3, "MPI_Win_complete"),
        ],
        1: [
            Call(1, 1, "MPI_Recv", Kind.RECV, comm="world", peer=2, tag=0),
            rma(1, 2, "MPI_Win_post", group=(0,)),
            rma(1, 3, "MPI_Win_wait"),
        ],
        2: [
            Call(2, 1, "MPI_Recv", Kind.RECV, comm="world", peer=0, tag=0),
            Call(2, 2, "MPI_Send", Kind.SEND, comm="world", peer=1, tag=0),
        ],
    }
    matching = Matching(library())
    matching.extend(logs)
    assert latest_cut(matching, 2, Instant(2), cut_of(6, 6, 4)) == (5, 1, 2)
    # while the post is under way, it is on no record
    matching = Matching(library())
    matching.extend({**logs, 1: logs[1][:1]})
    assert latest_cut(matching, 1, Instant(2), cut_of(6, 3, 4)) == (5, 2, 4)
