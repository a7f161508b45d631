"""The verdict on ranks that wait, in words: kinds of hangs, classes of equal ranks, the scale."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scenes import MANY, barrier, graphs, receive, scene

from crdebug.base.ranks import RankSet
from crdebug.native.recorder.doing import Peer, Tag
from crdebug.timeline.asked import Asked
from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.verdict import Posted, Standing, State, judge
from crdebug.timeline.verdict_text import MOST, lines
from crdebug.timeline.waits import Scene

pytestmark = pytest.mark.unit


def told(
    of: Scene, *others: Standing, place: str = "a.c:5", ranks: RankSet | None = None
) -> list[str]:
    """others: the ranks that are in no call."""
    standings = {rank: Standing(rank, State.IN_MPI, each, place) for rank, each in of.asked.items()}
    standings |= {each.rank: each for each in others}
    return lines(judge(of, standings), standings, ranks, lambda _rank, tick: f"a.c:{tick}")


def sent(rank: int, to: int, tag: int, comm: str = "world") -> Call:
    return Call(rank, 1, "MPI_Send", Kind.SEND, comm=comm, peer=to, tag=tag, bytes=4)


def test_a_cycle_and_the_message_with_the_wrong_tag() -> None:
    of = scene([receive(0, 1), receive(1, 2, tick=8), barrier(2)], {1: [sent(1, 0, 8)]})
    assert told(of) == [
        "0 waits in MPI_Recv from 1, tag 7 (a.c:5), since tick 9",
        "1 waits in MPI_Recv from 2, tag 7 (a.c:5), since tick 8",
        "2 waits in MPI_Barrier (a.c:5) for 0-1, since tick 9",
        "0 → 1 → 2 → 0: a deadlock, whatever else happens",
        "1 has sent 0 a message that nobody has asked for: tag 8 (a.c:1): 'goto tick 1 on 1'",
    ]


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "MPI_Irecv, tag 0 (a.c:0)"),
        (2, "MPI_Irecv, tag 0 (a.c:0) and MPI_Irecv, tag 1 (a.c:1)"),
        (3, "MPI_Irecv, tag 0 (a.c:0) and MPI_Irecv, tag 1 (a.c:1) and others"),
    ],
)
def test_the_calls_that_posted_the_requests_of_a_wait(count: int, said: str) -> None:
    posted = [
        Call(0, n + 1, "MPI_Irecv", Kind.POST_RECV, comm="world", peer=1, tag=n) for n in range(3)
    ]
    waits = Asked(0, 9, "MPI_Waitall", requests=tuple((n + 1, 0) for n in range(count)))
    of = scene([waits, receive(1, 0)], {0: posted})
    standings = {rank: Standing(rank, State.IN_MPI, each) for rank, each in of.asked.items()}
    verdict = judge(of, standings)
    assert verdict.opened == {0: tuple(n + 1 for n in range(count))}
    about = tuple(Posted("MPI_Irecv", n, "world", f"a.c:{n}") for n in range(count))
    standings[0] = Standing(0, State.IN_MPI, waits, "a.c:5", posted=about)
    shown = lines(verdict, standings)
    assert shown[0] == f"0 waits in MPI_Waitall (a.c:5) for 1, to complete {said}, since tick 9"


def test_only_what_some_ranks_do_is_shown_and_the_verdict_of_all() -> None:
    of = scene([receive(0, 1), receive(1, 0)])
    assert told(of, ranks=RankSet.of([1])) == [
        "1 waits in MPI_Recv from 0, tag 7 (a.c:5), since tick 9",
        "0 → 1 → 0: a deadlock, whatever else happens",
    ]


def test_a_ring_is_one_line() -> None:
    of = scene([receive(rank, (rank + 1) % 4) for rank in range(4)])
    assert told(of) == [
        "0-3 wait in MPI_Recv from the next one, tag 7 (a.c:5), since tick 9",
        "0 → 1 → 2 → 3 → 0: a deadlock, whatever else happens",
    ]


def test_a_message_on_another_communicator() -> None:
    logs = {1: [sent(1, 0, 7, "world#2")]}
    of = scene([receive(0, 1), receive(1, 0)], logs, comms={"world#2": (0, 1)})
    assert told(of)[-1] == (
        "1 has sent 0 a message that nobody has asked for: tag 7 on world#2 (a.c:1): "
        "'goto tick 1 on 1'"
    )


def test_a_posted_collective_that_does_not_fit_is_that_of_who_posted_it() -> None:
    posted = Call(0, 1, "MPI_Ibarrier", Kind.POST_COLLECTIVE, comm="world")
    waits = Asked(0, 9, "MPI_Wait", requests=((1, 0),))
    of = scene([waits, Asked(1, 9, "MPI_Gather", "world", 0)], {0: [posted]})
    assert told(of)[-1] == (
        "these do not fit: collective 1 on world: MPI_Ibarrier on 0, MPI_Gather on 1"
    )


@pytest.mark.parametrize(
    ("names", "roots", "said"),
    [
        (
            ("MPI_Iallreduce", "MPI_Iexscan"),
            (None, None),
            "world: MPI_Iallreduce on 0, MPI_Iexscan on 1",
        ),
        (("MPI_Ibcast", "MPI_Ibcast"), (0, 1), "world, MPI_Ibcast: root: 0 on 0, 1 on 1"),
    ],
)
def test_posted_collectives_that_do_not_fit(
    names: tuple[str, str], roots: tuple[int | None, int | None], said: str
) -> None:
    kind = Kind.POST_COLLECTIVE
    posted = {
        rank: [Call(rank, 1, names[rank], kind, comm="world", peer=roots[rank])] for rank in (0, 1)
    }
    waits = [Asked(rank, 9, "MPI_Wait", requests=((1, 0),)) for rank in (0, 1)]
    assert told(scene(waits, posted))[-2:] == [
        "0-1 can never go on, whatever else happens",
        f"these do not fit: collective 1 on {said}",
    ]


def test_collectives_that_do_not_fit_are_named() -> None:
    gather = Asked(0, 9, "MPI_Gather", "world", 0)
    of = scene([gather, *(Asked(rank, 9, "MPI_Bcast", "world", 0) for rank in (1, 2))])
    assert told(of) == [
        "0 waits in MPI_Gather, root 0 (a.c:5), since tick 9",
        "1-2 wait in MPI_Bcast, root 0 (a.c:5), since tick 9",
        "0-2 can never go on, whatever else happens",
        "these do not fit: collective 1 on world: MPI_Gather on 0, MPI_Bcast on 1-2",
    ]
    of = scene([Asked(rank, 9, "MPI_Bcast", "world", rank, bytes=4) for rank in (0, 1)])
    assert (
        told(of)[-1] == "these do not fit: collective 1 on world, MPI_Bcast: root: 0 on 0, 1 on 1"
    )


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        ({"op": "MPI_SUM"}, {"op": "MPI_MAX"}, "operation: SUM on 0, MAX on 1"),
        ({"bytes": 4}, {"bytes": 8}, "size: 4 bytes on 0, 8 bytes on 1"),
    ],
)
def test_an_operation_or_a_size_that_differs_is_named(
    one: dict[str, str], other: dict[str, str], what: str
) -> None:
    both = [
        Asked(rank, 9, "MPI_Allreduce", "world", **each)  # type: ignore[arg-type]
        for rank, each in enumerate((one, other))
    ]
    assert (
        told(scene(both))[-1] == f"these do not fit: collective 1 on world, MPI_Allreduce: {what}"
    )


def test_who_computes_is_named_and_there_is_no_deadlock() -> None:
    of = scene([barrier(rank) for rank in range(3)], size=4)
    computes = Standing(3, State.COMPUTES, place="relax (heat.c:88)", seconds=300)
    assert told(of, computes) == [
        "0-2 wait in MPI_Barrier (a.c:5) for 3, since tick 9",
        "3 computes in relax (heat.c:88), for 5 min",
        "no deadlock: the others wait for rank 3, which computes",
    ]


def test_who_is_stopped_or_has_ended_is_named() -> None:
    of = scene([barrier(0), barrier(1)], size=3)
    assert told(of, Standing(2, State.STOPPED))[1:] == [
        "2 is stopped",
        "no deadlock: the others wait for rank 2, which is stopped",
    ]
    assert told(of, Standing(2, State.ENDED))[1:] == [
        "2 has ended",
        "0-1 can never go on, whatever else happens: 2 has ended",
    ]


def test_sends_that_may_be_buffered_are_perhaps_a_deadlock() -> None:
    sends = [Asked(rank, 9, "MPI_Send", "world", 1 - rank, 7, 5000) for rank in (0, 1)]
    assert told(scene(sends)) == [
        *(
            f"{rank} waits in MPI_Send to {1 - rank}, tag 7, 5000 bytes (a.c:5), since tick 9"
            for rank in (0, 1)
        ),
        "0 → 1 → 0: perhaps a deadlock; it is one if they are still there in a moment",
    ]
    assert told(scene(sends, still=(0, 1)))[2] == "0 → 1 → 0: a deadlock, whatever else happens"


def test_of_a_rank_whose_record_is_not_known_nothing_is_claimed() -> None:
    of = scene([replace(barrier(rank), blind=True) for rank in range(2)])
    assert told(of)[0] == "0-1 are in MPI_Barrier (a.c:5), and may wait: the record is not known"
    polls = scene([Asked(0, 9, "MPI_Test", blind=True), Asked(1, 9, "MPI_Isend", blind=True)])
    assert told(polls)[:2] == [
        "0 is in MPI_Test (a.c:5), and can go on",
        "1 is in MPI_Isend (a.c:5), and can go on",
    ]


def test_a_rank_whose_record_is_not_known_may_be_in_the_collective_of_the_others() -> None:
    of = scene([barrier(0), replace(barrier(1), blind=True), barrier(2), receive(3, 0)])
    assert told(of)[:3] == [
        "0-2 wait in MPI_Barrier (a.c:5) for 3, since tick 9",
        "3 waits in MPI_Recv from 0, tag 7 (a.c:5), since tick 9",
        "0 → 3 → 0: a deadlock, whatever else happens",
    ]


def test_a_receive_from_anyone() -> None:
    of = scene([receive(0, Peer.ANY, Tag.ANY), receive(1, 0)])
    assert told(of)[0] == "0 waits in MPI_Recv from anyone, any tag (a.c:5), since tick 9"


def test_nobody_waits() -> None:
    of = scene([], size=2)
    both = [Standing(rank, State.COMPUTES) for rank in (0, 1)]
    assert told(of, *both) == ["0-1 compute", "no rank waits for another one"]


# ---- the scale ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cycle", "tree", "random", "wild", "collective"])
def test_ten_thousand_ranks_take_few_lines(name: str) -> None:
    found = told(scene(graphs()[name], size=MANY))
    assert len(found) <= MOST
    assert max(map(len, found)) < 200
    assert any("deadlock" in line for line in found)
