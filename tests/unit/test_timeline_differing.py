"""The message about a call that is not the recorded one; see tests/mpi/test_layer_differing.py."""

from __future__ import annotations

import pytest

from crdebug.native.recorder import clock
from crdebug.native.recorder.mpi_calls import BY_NAME, DIGEST
from crdebug.timeline.differing import difference

WILD_SOURCE, WILD_TAG, NO = 2, 4, 16
MOST = (1 << 28) - 1
Record = tuple[int, int]
BY_NAME_OF = {function.number: name for name, function in BY_NAME.items()}


def record(
    name: str, tag: int = 0, peer: int = 0, comm: int = 1, size: int = 4, flags: int = 0
) -> Record:
    """tag, peer: as codes."""
    return BY_NAME[f"MPI_{name}"].number | flags << 9 | size << 32, comm << 48 | peer << 28 | tag


def said_no(age: int) -> Record:
    return record("Test", size=1, flags=NO)[0], age


def told(
    expected: Record, actual: Record, failed: tuple[int, int] = (0, 0), words: tuple[int, ...] = ()
) -> str:
    """words: four of the recorded call, four of the other."""
    head = (clock.ABI, clock.SIZE, 0, 2, 5, clock.NEVER, 2, 1, 9, 0, 1, 0, 0, 0, 1, 1, 5)
    more = (0, DIGEST, 1, *failed, 0, 0, *(words or (0,) * 8), *(0,) * 43)
    state = clock.Clock.parse(clock._CLOCK.pack(*head, *expected, *actual, *more))
    return difference(state, {1: "world", 2: "0-1", 3: "window(world)"}.get)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expected", "actual", "recorded", "came"),
    [
        (record("Recv", 11, 5), record("Recv", 11, 6), "source 1", "source 2"),
        # both were open: their results are no arguments, except for the one asked for by name
        (
            record("Recv", 11, 5, flags=WILD_SOURCE),
            record("Recv", 12, 2, flags=WILD_SOURCE),
            "tag 7",
            "tag 8",
        ),
        (record("Recv", 11, 5, flags=WILD_TAG), record("Recv", 11, 5), "tag MPI_ANY_TAG", "tag 7"),
        (record("Barrier"), record("Barrier", comm=2), "communicator world", "communicator 0-1"),
        (record("Put", 0, 4, 3), record("Put", 0, 5, 3), "target 0", "target 1"),
        (record("Waitany", 4, size=1), record("Waitany", 5, size=1), "index 0", "index 1"),
        (said_no(1), record("Test", size=1), "the answer no", "the answer yes"),
        (said_no(0), said_no(2), "a request that is not active", "the request 1 before the last"),
        (record("Waitall", size=2), record("Waitall", size=3), "2 requests", "3 requests"),
    ],
)
def test_the_argument_that_differs(
    expected: Record, actual: Record, recorded: str, came: str
) -> None:
    name = BY_NAME_OF[expected[0] & 0x1FF]
    assert told(expected, actual) == (
        f"{name} with {recorded} was recorded, and {name} with {came} came"
    )


def test_values_that_have_no_room_in_a_record_are_in_words() -> None:
    large = record("Send", MOST, 5)
    words = (4, 0, 1, MOST + 1, 4, 0, 1, MOST + 2)
    assert told(large, large, words=words) == (
        f"MPI_Send with tag {MOST + 1} was recorded, and MPI_Send with tag {MOST + 2} came"
    )


def test_what_no_argument_tells() -> None:
    call = record("Waitall", size=2)
    assert told(call, call) == (
        "MPI_Waitall was recorded, and MPI_Waitall with other arguments came"
    )
    assert told(record("Recv"), record("Recv"), failed=(27, 0)).startswith(
        "MPI_Recv that fails (MPI_ERR_TRUNCATE) was recorded, and MPI_Recv came"
    )
    assert told(clock.CUT_HERE, record("Send")).startswith("the end of the record was recorded")
