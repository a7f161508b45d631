"""What is sent to and by agents comes out as it went in, and nothing else comes in."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdebug.acquire.daemons import Daemon
from crdebug.acquire.mpir import ProcDesc
from crdebug.base.answers import Answers
from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, CrdebugError, GdbDied, GdbError
from crdebug.base.events import Location, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.question import Question
from crdebug.debugger.target import BreakpointRequest, TargetState
from crdebug.hosts.codec import CLASSES, BadMessage, decode, encode
from crdebug.hosts.merged import Mirror
from crdebug.hosts.messages import Ask, Attach, Call, Do, Find, as_classes, by_rank

PLACE = Location(0x401000, "relax", "heat.c", line=7)
STOP = RankStopped(3, StopReason.BREAKPOINT, detail="2", location=PLACE)
VALUES: list[object] = [
    *(None, True, 0, -1, 1.5, "text", "été", "\udcff", b"\0\xff", (), ((1, 2), ("x",))),
    *(2**63, -(2**63), 2**64, 1 << 200),
    *({}, {1: "one", "two": (2,)}, RankSet(), RankSet.of([0, 63, 64, 9999])),
    *(PLACE, STOP, TargetState.DEAD, Settings(), Daemon("n2", ("--control-port", "n1:5"))),
    Mirror(1, TargetState.STOPPED, 7, 8, False, True, STOP),
    Call(4, Ask(Question("a.b", (1, "x", None)), RankSet.of([1, 2]))),
    Call(5, Attach((ProcDesc(0, "n2", "heat", 77),), Settings(), (1000,))),
    Call(6, Do(0, "insert_breakpoint", (BreakpointRequest("hot", condition="k == 1"),))),
    Call(7, Find(Daemon("me@n2", ("a", "b")), (0,))),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_out_as_it_went_in(value: object) -> None:
    came = decode(encode(value))
    assert came == value and type(came) is type(value)


def test_arrays_and_lists() -> None:
    assert decode(encode(array("d", [1.0, 2.0]))) == array("d", [1.0, 2.0])
    assert decode(encode([1, [2]])) == (1, (2,))  # a list is an immutable one then


def test_a_deadline_is_what_is_left_of_it() -> None:
    came = decode(encode(Deadline(5.0)))
    assert isinstance(came, Deadline) and 4.0 < came.left <= 5.0


def test_an_error_keeps_its_fields_and_its_nearest_known_class() -> None:
    class Private(BadInput):
        pass

    for error in (BadInput("no", hint="yes"), GdbError("no symbol", "print x"), Private("no")):
        error.ranks = RankSet.of([2])
        came = decode(encode(error))
        assert isinstance(came, BadInput if isinstance(error, Private) else type(error))
        assert str(came) == str(error)


def test_what_cannot_be_sent_is_a_fault_of_ours() -> None:
    for value in (object(), {1, 2}, lambda: None):
        with pytest.raises(TypeError, match="cannot be sent"):
            encode(value)


def raw(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


@pytest.mark.parametrize(
    "value",
    [
        [],
        ["?"],
        ["c", "os.system", "true"],
        ["c", "Popen", "true"],
        ["c", "Location"],
        ["c", "Location", 1, 2, 3, 4, 5, 6, 7, 8, 9],
        ["e", "StopReason", "no such reason"],
        ["e", "Location", 1],
        ["i", "xyz"],
        ["r", "text"],
        ["r", 0, "text"],
        ["r", -1, b"1"],
        ["r", 1 << 14, b"1"],
        ["o", b""],
        ["o", msgspec.msgpack.encode(["t", 1])],
        ["a", "d", b"123"],
        ["a", "?", b""],
        ["s", "text"],
        ["s", b"\xff"],
        ["d", "soon"],
        ["m", [1]],
        ["m", [["m"], 1]],
        {"a": 1},
        [1, 2],
    ],
    ids=repr,
)
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(BadMessage):
        decode(raw(value))


def test_a_message_that_is_too_deep_is_refused() -> None:
    for depth in (100, 100_000):
        with pytest.raises(BadMessage):
            decode(raw(["t", 1])[:-1] * depth + raw(1))


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_a_value_or_refused(data: bytes) -> None:
    try:
        decode(data)
    except BadMessage as refused:
        assert "cannot be read" in str(refused)


def test_only_data_can_come_in() -> None:
    """Of what a message may name, only a question does anything, and that has to be a known one."""
    acting = {name for name, kind in CLASSES.items() if "__call__" in vars(kind)}
    assert acting == {"Question"}


@given(
    st.dictionaries(
        st.integers(0, 50), st.one_of(st.integers(0, 3), st.sampled_from(["a", "b"])), max_size=20
    ),
    st.sets(st.integers(51, 80), max_size=8),
)
def test_answers_travel_as_classes(values: dict[int, object], failed: set[int]) -> None:
    """Equal ones as one, on the way; each rank has its own again at the end."""
    errors: dict[int, CrdebugError] = {
        rank: GdbDied("gone", "print", None, ranks=RankSet.of([rank]))
        if rank % 2
        else GdbError("no symbol", "print x", ranks=RankSet.of([rank]))
        for rank in sorted(failed)
    }
    sent = as_classes(Answers(dict(sorted(values.items())), errors))
    assert len(sent.errors) <= 2 and len(sent.values) <= 6
    came = by_rank(sent)
    assert came.values == values
    assert {rank: str(error) for rank, error in came.errors.items()} == {
        rank: str(error) for rank, error in errors.items()
    }
