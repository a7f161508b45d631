"""The MPI call that a rank is in, as it is read from its clock."""

from __future__ import annotations

import pytest

from crdebug.native.recorder.doing import LAYOUT, Doing, Peer, Tag, parse
from crdebug.native.recorder.mpi_calls import BY_NAME

pytestmark = pytest.mark.unit

NOW, SITE = 7, 0x401234
MAX, SUM = 0x5001, 0x5003
OPS = (MAX, 0x5002, SUM, *(0,) * 11)
ANY, WORLD, LARGE = 2, 1 << 48, (1 << 28) - 1


def told(
    name: str,
    body: int = 0,
    size: int = 0,
    words: tuple[int, ...] = (),
    *,
    flags: int = 0,
    op: int = 0,
    of: int = NOW,
    count: int | None = None,
) -> Doing | None:
    """words: those that there is room for; count: how many there are in all."""
    head = BY_NAME[name].number | flags << 9 | size << 32
    space = (*words, *(0,) * (15 - len(words)))
    data = LAYOUT.pack(head, body, of, SITE, op, len(words) if count is None else count, *space,
                       *OPS)  # fmt: skip
    return parse(NOW, LAYOUT.unpack(data))


def test_a_receive_says_from_whom_and_a_wild_one_says_so() -> None:
    assert told("MPI_Recv", WORLD | 5 << 28 | 11, 64) == Doing("MPI_Recv", SITE, 1, 1, 7, 64)
    assert told("MPI_Recv", WORLD | ANY << 28 | 1, 64) == Doing(
        "MPI_Recv", SITE, 1, Peer.ANY, Tag.ANY, 64
    )


def test_what_has_no_room_in_a_record_is_in_words() -> None:
    found = told("MPI_Send", WORLD | 5 << 28 | LARGE, 2**32 - 1, (8, 1, 1, 1 << 29))
    assert found == Doing("MPI_Send", SITE, 1, 1, 1 << 29, (1 << 32) + 8)


def test_both_halves_are_said() -> None:
    found = told("MPI_Sendrecv", WORLD | 5 << 28 | 11, 64, (6, 12, 32))
    assert found == Doing("MPI_Sendrecv", SITE, 1, 1, 7, 64, sends=(2, 8, 32))


def test_requests_are_said_by_how_far_back_they_were_posted() -> None:
    assert told("MPI_Wait", 0, 3) == Doing("MPI_Wait", SITE, ages=(3,))
    assert told("MPI_Wait") == Doing("MPI_Wait", SITE)  # of an inactive one
    assert told("MPI_Waitall", words=(4, 2)) == Doing("MPI_Waitall", SITE, ages=(4, 2))
    many = tuple(range(1, 16))
    found = told("MPI_Waitsome", words=many, count=40)
    assert found == Doing("MPI_Waitsome", SITE, ages=many, more=25)


def test_a_reduction_says_its_operation_where_it_is_one_of_mpis() -> None:
    assert told("MPI_Allreduce", WORLD, 8, op=SUM) == Doing(
        "MPI_Allreduce", SITE, 1, bytes=8, op="MPI_SUM"
    )
    assert told("MPI_Reduce", WORLD | 4 << 28, 8, op=0x999) == Doing(
        "MPI_Reduce", SITE, 1, peer=0, bytes=8
    )


def test_windows_say_for_whom_and_whether_an_epoch_ends() -> None:
    post = told("MPI_Win_post", 3 << 48, words=(1, 2, 5, 1))
    assert post == Doing("MPI_Win_post", SITE, 3, group=(1, 2, 5))
    fence = told("MPI_Win_fence", 3 << 48, flags=32)
    assert fence is not None
    assert fence.opens


def test_what_was_said_of_another_call_is_nothing() -> None:
    assert told("MPI_Barrier", WORLD, of=NOW - 2) is None
    assert parse(NOW, (511, 0, NOW, *(0,) * 31)) is None  # no call has this number
    assert parse(8, (1, 0, 8, *(0,) * 31)) is None  # it is in none
