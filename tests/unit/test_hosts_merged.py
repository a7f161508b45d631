"""What an agent says of its ranks: equal things travel as one, and each rank has its own again."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdebug.base.events import (
    GdbSays,
    GroupStopped,
    Location,
    RankRestored,
    RankRunning,
    RankStopped,
    StopReason,
)
from crdebug.base.ranks import RankSet
from crdebug.debugger.target import (
    BreakpointChanged,
    BreakpointGone,
    DebuggerDied,
    Inserted,
    Notice,
    TargetState,
)
from crdebug.hosts import merged
from crdebug.hosts.codec import BadMessage, decode, encode
from crdebug.hosts.merged import Mirror, Mirrors, Stops, Told
from crdebug.hosts.messages import Classes, Failed, Gone
from crdebug.job.far_clocks import ClockLook

RANKS = st.integers(0, 40)
PLACES = st.none() | st.builds(
    Location, st.integers(0, 2**64 - 1), st.sampled_from(["main", "relax"]), line=st.just(7)
)
REASONS = st.sampled_from([StopReason.STEP, StopReason.EXITED])


def stop_of(rank: int, reason: StopReason, place: Location | None) -> RankStopped:
    return RankStopped(rank, reason, "0", 1, place)


@given(st.dictionaries(RANKS, st.tuples(REASONS, PLACES)))
def test_stops(made: dict[int, tuple[StopReason, Location | None]]) -> None:
    stops = [stop_of(rank, *each) for rank, each in sorted(made.items())]
    sent = merged.stops(stops)
    assert len(sent) <= 6  # whatever the addresses are
    assert sorted(merged.stops_apart(decoded(sent)), key=lambda stop: stop.rank) == stops


@given(st.dictionaries(RANKS, st.tuples(PLACES, st.none() | st.integers(1, 9), st.booleans())))
def test_mirrors(made: dict[int, tuple[Location | None, int | None, bool]]) -> None:
    def mirror(rank: int, place: Location | None, pid: int | None, recorded: bool) -> Mirror:
        state = TargetState.EXITED if pid is None else TargetState.STOPPED
        clock = bytes([rank]) * 8 if recorded else b""
        stop = stop_of(rank, StopReason.STEP, place) if rank % 2 else None
        look = ClockLook(3, 1)
        return Mirror(rank, state, pid, 100 + rank, False, False, stop, ("a",), clock, look)

    mirrors = [mirror(rank, *each) for rank, each in sorted(made.items())]
    sent = merged.mirrors(mirrors)
    assert len(sent) <= 24
    assert sorted(merged.mirrors_apart(decoded(sent)), key=lambda each: each.rank) == mirrors


NOTICES = st.one_of(
    st.builds(RankRunning, RANKS),
    st.builds(stop_of, RANKS, REASONS, PLACES),
    st.builds(GdbSays, RANKS, st.sampled_from(["a", "b"])),
    st.builds(BreakpointGone, RANKS, st.integers(1, 2)),
    st.builds(BreakpointChanged, RANKS, st.just(Inserted(1, (), 2))),
    st.builds(DebuggerDied, RANKS, st.integers(1, 3)),
)


@given(st.lists(NOTICES))
def test_notices_of_a_rank_stay_in_their_order(notices: list[Notice]) -> None:
    told = [(each.rank, each) for each in notices]  # type: ignore[union-attr]
    came = list(merged.told_apart(decoded(merged.told(told))))
    for rank in range(41):
        assert [each for r, each in came if r == rank] == [each for r, each in told if r == rank]
    assert len(came) == len(told)


def test_a_step_of_all_ranks_is_two_notices() -> None:
    places = {rank: Location(rank << 20, "main", "heat.c", 7) for rank in range(64)}
    told: list[tuple[int, Notice]] = []
    for rank, place in places.items():
        told += [(rank, RankRunning(rank)), (rank, stop_of(rank, StopReason.STEP, place))]
    assert [each.ranks for each in merged.told(told)] == [RankSet.span(64)] * 2


STOP = stop_of(-1, StopReason.STEP, None)
NOWHERE: Any = "here"
MIRROR = Mirror(-1, TargetState.STOPPED, None, 0, False, False, None)
TWO, ONE = RankSet.of([1, 2]), array("Q", [7])


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Stops, (TWO, STOP, ONE)),
        (Stops, (RankSet(), STOP, array("Q"))),
        (Stops, (RankSet.of([1]), "no stop", ONE)),
        (Stops, ("text", STOP, ONE)),
        (Stops, (RankSet.of([1]), replace(STOP, location=NOWHERE), ONE)),
        (Told, (TWO, RankRunning(-1), ONE)),
        (Told, (RankSet.of([1]), GroupStopped((), ()), ONE)),
        (Told, (RankSet.of([1]), RankRestored(3, "n3", 4), ONE)),
        (Mirrors, (TWO, replace(MIRROR, state=NOWHERE), *[array("Q", [1, 2])] * 3, b"")),
        (Mirrors, (TWO, "none", *[array("Q", [1, 2])] * 3, b"")),
        (Gone, ((STOP,), Classes((), ()), TWO)),
        (Gone, ((), "none", TWO)),
        (Classes, (((1, "x"),), ())),
        (Classes, ((), ((TWO, "no error"),))),
        (Failed, (1, "no error")),
        (Mirrors, (TWO, MIRROR, array("q", [1, 2]), array("q", [1]), ONE, b"")),
        (Mirrors, (TWO, MIRROR, *[array("q", [1, 2])] * 2, array("Q", [1, 2]), b"123")),
    ],
    ids=repr,
)
def test_columns_that_do_not_fit_are_refused(kind: type, fields: tuple[object, ...]) -> None:
    with pytest.raises(BadMessage):
        fields = tuple(msgspec.msgpack.decode(encode(each)) for each in fields)
        decode(msgspec.msgpack.encode(["c", kind.__name__, *fields]))


def decoded(value: object) -> tuple:  # type: ignore[type-arg]
    came = decode(encode(value))
    assert isinstance(came, tuple)
    return came
