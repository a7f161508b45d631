"""Who can never go on: each kind of hang, and runs of a small MPI at any moment."""

from __future__ import annotations

import copy
import random

import pytest
from mpi_story import World, stories
from scenes import blocked, over, scene, scene_of

from crdebug.native.recorder.doing import Peer, Tag
from crdebug.timeline.asked import Asked
from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.knots import Group, cycle, knot
from crdebug.timeline.waits import Scene

pytestmark = pytest.mark.unit

STORIES = 400


def dead(of: Scene, *gone: int, sure: bool = True) -> list[int]:
    """The ranks that are found to wait for ever."""
    return sorted(knot(of.waits(), gone, sure=sure) - {*gone})


def receive(rank: int, source: int, tag: int = 7, comm: str = "world") -> Asked:
    return Asked(rank, 9, "MPI_Recv", comm, source, tag)


def collective(rank: int, name: str = "MPI_Barrier", root: int = -1, comm: str = "world") -> Asked:
    return Asked(rank, 9, name, comm, root)


def sent(rank: int, to: int, tag: int = 7, comm: str = "world", name: str = "MPI_Send") -> Call:
    return Call(rank, 1, name, Kind.SEND, comm=comm, peer=to, tag=tag, bytes=4)


# ---- kinds of hangs ----------------------------------------------------------------------------


def test_ranks_that_receive_from_each_other() -> None:
    of = scene([receive(0, 1), receive(1, 2), receive(2, 0)])
    assert dead(of) == [0, 1, 2]
    assert cycle(of.waits(), frozenset((0, 1, 2))) == (0, 1, 2)


def test_a_message_that_fits_lets_a_rank_go_on() -> None:
    of = scene([receive(0, 1), receive(1, 0)], {1: [sent(1, 0)]})
    assert dead(of) == []


@pytest.mark.parametrize("other", [sent(1, 0, tag=8), sent(1, 0, comm="other")])
def test_a_message_with_another_tag_or_communicator_does_not(other: Call) -> None:
    of = scene([receive(0, 1), receive(1, 0)], {1: [other]}, comms={"other": (0, 1)})
    assert dead(of) == [0, 1]


def test_a_member_that_does_not_come() -> None:
    of = scene([collective(0), collective(1), receive(2, 0)])
    assert dead(of) == [0, 1, 2]
    assert dead(scene([collective(0), collective(1)], size=3)) == []  # it may still come


def test_collectives_that_do_not_fit() -> None:
    assert dead(scene([collective(0, "MPI_Gather", 0), collective(1, "MPI_Bcast", 0)])) == [0, 1]
    assert dead(scene([collective(0, "MPI_Bcast", 0), collective(1, "MPI_Bcast", 1)])) == [0, 1]
    assert dead(scene([collective(0, "MPI_Bcast", 0), collective(1, "MPI_Bcast", 0)])) == []


def test_a_receive_from_anyone_waits_for_all_that_can_send() -> None:
    wild = receive(0, Peer.ANY, Tag.ANY)
    assert dead(scene([wild, receive(1, 0), receive(2, 0)])) == [0, 1, 2]
    assert dead(scene([wild, receive(1, 0)], size=3)) == []  # 2 computes
    assert dead(scene([wild, receive(1, 0), receive(2, 0)], {2: [sent(2, 0, 5)]})) == []


def test_sends_that_must_be_received() -> None:
    def sends(name: str) -> list[Asked]:
        return [Asked(rank, 9, name, "world", 1 - rank, 7, 1 << 22) for rank in range(2)]

    assert dead(scene(sends("MPI_Ssend"))) == [0, 1]
    # a standard one may be buffered, unless it has stood there for long
    assert dead(scene(sends("MPI_Send"))) == []
    assert dead(scene(sends("MPI_Send")), sure=False) == [0, 1]
    assert dead(scene(sends("MPI_Send"), still=(0, 1))) == [0, 1]


def test_requests_of_which_all_or_any_must_complete() -> None:
    def posts(rank: int) -> list[Call]:
        other = 1 - rank
        return [
            Call(rank, 1, "MPI_Irecv", Kind.POST_RECV, comm="world", peer=other, tag=7),
            Call(rank, 2, "MPI_Irecv", Kind.POST_RECV, comm="world", peer=other, tag=8),
            Call(rank, 3, "MPI_Send", Kind.SEND, comm="world", peer=other, tag=8, bytes=4),
        ]

    logs = {rank: posts(rank) for rank in range(2)}
    for name, found in (("MPI_Waitall", [0, 1]), ("MPI_Waitany", []), ("MPI_Waitsome", [])):
        both = [Asked(rank, 4, name, requests=((1, 0), (2, 0))) for rank in range(2)]
        assert dead(scene(both, logs)) == found
    one = [Asked(rank, 4, "MPI_Waitany", requests=((1, 0),)) for rank in range(2)]
    assert dead(scene(one, logs)) == [0, 1]
    # of more requests than it says
    some = [Asked(rank, 4, "MPI_Waitany", requests=((1, 0),), more=1) for rank in range(2)]
    assert dead(scene(some, logs)) == []


def test_a_rank_that_polls_may_do_something_else() -> None:
    polls = [
        Asked(0, 9, "MPI_Iprobe", "world", 1, 7, moves=True),
        Asked(1, 9, "MPI_Recv", "world", 0, 7),
    ]
    assert dead(scene(polls)) == []
    assert dead(scene(polls), sure=False) == [0, 1]


def test_both_halves_must_be_done() -> None:
    def halves(rank: int, sends: int) -> Asked:
        other = 1 - rank
        return Asked(rank, 9, "MPI_Sendrecv", "world", other, 7, sends=(other, sends, 4))

    assert dead(scene([halves(0, 8), halves(1, 8)])) == [0, 1]
    assert dead(scene([halves(0, 7), halves(1, 7)])) == []


def test_a_rank_that_has_ended_never_comes() -> None:
    assert dead(scene([collective(0), collective(1)], size=3), 2) == [0, 1]
    assert dead(scene([receive(0, 1)], size=2), 1) == [0]


def test_a_window_waits_for_its_members() -> None:
    fence = [Asked(rank, 9, "MPI_Win_fence", "window(world)") for rank in range(2)]
    assert dead(scene([*fence, receive(2, 0)])) == [0, 1, 2]
    post = {1: [Call(1, 1, "MPI_Win_post", Kind.RMA, comm="window(world)", group=(0,))]}
    wait = Asked(1, 9, "MPI_Win_wait", "window(world)")
    assert dead(scene([receive(0, 1), wait], post)) == [0, 1]
    complete = Asked(0, 9, "MPI_Win_complete", "window(world)")
    assert dead(scene([complete, wait], post)) == []


def test_a_lock_waits_for_its_holder_once_it_has_stood_there_for_long() -> None:
    lock = Asked(0, 9, "MPI_Win_lock", "window(world)", 2, 1)
    of = scene([lock, receive(1, 0)], size=3)
    of.holders = {("window(world)", 2): {1: False}}
    assert dead(of) == []
    assert dead(of, sure=False) == [0, 1]
    of.still = (0,)
    assert dead(of) == [0, 1]
    shared = Asked(0, 9, "MPI_Win_lock", "window(world)", 2, 0)
    of = scene([shared, receive(1, 0)], size=3, still=(0,))
    of.holders = {("window(world)", 2): {1: False}}  # both may have it at once
    assert dead(of) == []


def test_of_what_is_not_known_nothing_is_claimed() -> None:
    unknown = [Asked(rank, 9, "MPI_Recv", "", 1 - rank, 7) for rank in range(2)]
    assert dead(scene(unknown)) == []  # a communicator that was freed, say
    assert dead(scene([collective(0, comm="gone"), receive(1, 0)])) == []
    outside = Asked(0, 9, "MPI_Comm_accept", "world", 0)
    assert dead(scene([outside, receive(1, 0)])) == []


# ---- groups ------------------------------------------------------------------------------------


def test_a_knot_is_what_is_left_when_all_is_released_that_can_be() -> None:
    both, either = Group((1, 2)), Group((1, 2), every=False)
    assert knot({0: ((both,),), 1: ((Group((0,)),),)}) == {0, 1}
    assert knot({0: ((either,),), 1: ((Group((0,)),),)}) == frozenset()
    assert knot({0: ((either,),), 1: ((Group((0,)),),)}, gone=(2,)) == {0, 1, 2}
    # one of two ways
    assert knot({0: ((both,), (Group((3,)),)), 1: ((Group((0,)),),)}) == frozenset()


# ---- runs of a small MPI -----------------------------------------------------------------------


def test_who_is_said_to_wait_for_ever_does() -> None:
    """At any moment of any run, whatever happens from there."""
    claimed = 0
    for chooser, world in stories(STORIES):
        still = blocked(world)
        for known in ((), still):
            found = dead(scene_of(world, known), *over(world))
            claimed += len(found)
            for _ in range(3 if found else 0):
                another: World = copy.deepcopy(world)
                before = another.clocks()
                another.run(random.Random(chooser.random()))
                after = another.clocks()
                assert [after[rank] for rank in found] == [before[rank] for rank in found]
    assert claimed > 50


def test_where_nobody_can_go_on_it_is_said_of_nearly_all() -> None:
    """Not of a receive for which there is a message that an earlier, wild one may have got."""
    hangs = missed = 0
    for chooser, world in stories(STORIES):
        world.run(chooser)
        still = blocked(world)
        hangs += bool(still)
        found = dead(scene_of(world, still), *over(world))
        assert {*found} <= {*still}
        missed += found != still
    assert hangs > 20
    assert missed <= hangs // 20
