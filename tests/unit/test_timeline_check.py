"""What a record shows to be wrong, from lists of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from crdebug.base.ranks import RankSet
from crdebug.native.recorder.mpi_types import KIND, OPS, TYPES, Types, types
from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.check import Record, check
from crdebug.timeline.findings import concerning, merged, report
from crdebug.timeline.log import Unfreed
from crdebug.timeline.matching import Matching
from harness.listed import listed
from harness.matcher import library

pytestmark = pytest.mark.unit


def numbered(rank: int, calls: Sequence[Call]) -> list[Call]:
    return [replace(call, rank=rank, tick=tick, site=tick) for tick, call in enumerate(calls, 1)]


def lines(
    logs: Mapping[int, Sequence[Call]],
    *,
    end: bool = True,
    unfinished: Mapping[int, Call] | None = None,
    left: Mapping[int, int] | None = None,
    over: bool = False,
    unfreed: Mapping[int, Sequence[Unfreed]] | None = None,
) -> list[str]:
    last = [Call(0, 0, "MPI_Finalize", Kind.OTHER)] if end else []
    calls = {rank: numbered(rank, [*each, *last]) for rank, each in logs.items()}
    then = {
        rank: replace(each, rank=rank, tick=len(calls[rank]) + 1)
        for rank, each in (unfinished or {}).items()
    }
    matching = Matching(library())
    matching.extend(calls, {"world": tuple(range(len(logs)))})
    record = Record(
        *(matching, listed(calls), len(logs)),
        unfinished=then,
        left=left or {},
        over=over,
        unfreed=unfreed or {},
    )
    return [each.text for each in merged(check(record), lambda rank, site: "")]


def collective(name: str, root: int | None = None, size: int = 4) -> Call:
    return Call(0, 0, name, Kind.COLLECTIVE, comm="world", peer=root, bytes=size)


def send(to: int, tag: int = 7) -> Call:
    return Call(0, 0, "MPI_Send", Kind.SEND, comm="world", peer=to, tag=tag, bytes=4)


def receive(source: int, tag: int = 7, failed: str = "") -> Call:
    return Call(
        0, 0, "MPI_Recv", Kind.RECV, comm="world", peer=source, tag=tag, bytes=4, failed=failed
    )


BARRIER, BCAST = collective("MPI_Barrier", size=0), collective("MPI_Bcast", 0)


def test_a_right_program() -> None:
    calls = [BARRIER, BCAST, collective("MPI_Reduce", 1), collective("MPI_Gatherv", 0)]
    logs = {0: [*calls, send(1)], 1: [*calls, receive(0)], 2: calls}
    assert lines(logs) == []


def test_members_that_call_another_collective() -> None:
    logs = {0: [BARRIER, BCAST], 1: [BARRIER, BCAST], 2: [BCAST, BARRIER]}
    assert lines(logs) == [
        "[2] MPI_Bcast is called where others call MPI_Barrier of rank 0; 'goto tick 1 on 2'"
    ]


def test_another_root_and_another_size() -> None:
    logs = {rank: [collective("MPI_Bcast", 0 if rank < 2 else 2)] for rank in range(3)}
    (line,) = lines(logs)
    assert line.startswith("[2] MPI_Bcast has root 2, but root 0 in MPI_Bcast of rank 0")
    logs = {rank: [collective("MPI_Bcast", 0, 4 if rank else 8)] for rank in range(3)}
    (line,) = lines(logs)
    assert line.startswith("[0] MPI_Bcast has 8 bytes, but 4 in MPI_Bcast of rank 1")


def test_sizes_may_differ_where_each_member_gives_its_own() -> None:
    logs = {rank: [collective("MPI_Gatherv", 0, 4 * rank)] for rank in range(3)}
    assert lines(logs) == []


def test_a_collective_that_a_member_has_not_called() -> None:
    logs = {0: [BARRIER, BARRIER], 1: [BARRIER, BARRIER], 2: [BARRIER]}
    (line,) = lines(logs)
    assert line.startswith("[0-1] MPI_Barrier is called, but not by rank 2")
    assert lines(logs, end=False) == []


def test_a_message_that_nobody_received() -> None:
    logs = {0: [send(1), send(1, 8), send(1, 8)], 1: [receive(0)]}
    (line,) = [each for each in lines(logs) if "tag 8" in each][:1]
    assert "sends tag 8, which is not received by MPI_Finalize by rank 1" in line
    assert "so far by rank 1" in lines(logs, end=False)[0]


def test_a_call_that_the_mpi_refused() -> None:
    (line,) = lines({0: [send(1)], 1: [receive(0, failed="MPI_ERR_TRUNCATE")]})
    assert line == "[1] MPI_Recv failed: MPI_ERR_TRUNCATE; 'goto tick 1 on 1'"
    assert lines({0: [receive(0, failed="MPI_ERR_NO_SUCH_FILE")]}, end=False) == []


def test_a_receive_that_nobody_completed() -> None:
    posted = Call(0, 0, "MPI_Irecv", Kind.POST_RECV, comm="world", peer=0, tag=7, bytes=4)
    (line,) = lines({0: [send(1)], 1: [posted]})
    assert line.startswith("[1] MPI_Irecv is not completed by MPI_Finalize")
    cancel = Call(0, 0, "MPI_Cancel", Kind.CANCEL)
    assert lines({0: [send(1)], 1: [posted, cancel]}) == []


def test_a_request_that_is_freed_while_it_is_active() -> None:
    posted = Call(0, 0, "MPI_Irecv", Kind.POST_RECV, comm="world", peer=0, tag=7, bytes=4)
    freed = Call(0, 0, "MPI_Request_free", Kind.OTHER, frees=1)
    (line,) = lines({0: [send(1)], 1: [posted, freed]})
    says = "[1] MPI_Request_free frees a request that is not completed, that of MPI_Irecv of rank 1"
    assert line.startswith(says)
    posted = Call(0, 0, "MPI_Isend", Kind.POST_SEND, comm="world", peer=0, tag=7, bytes=4)
    assert lines({0: [receive(1)], 1: [posted, freed]}) == []


def test_a_call_in_which_the_mpi_ended_the_job() -> None:
    then = {0: replace(send(9), peer=None, failed="MPI_ERR_RANK"), 1: receive(0)}
    assert lines({0: [BARRIER], 1: [BARRIER]}, end=False, unfinished=then, over=True) == [
        "[0] MPI_Send failed: MPI_ERR_RANK, which ended the job; 'goto tick 2 on 0'"
    ]


def test_calls_that_had_not_returned_when_the_job_was_ended() -> None:
    then = {0: receive(1), 1: receive(0)}
    logs: dict[int, list[Call]] = {0: [BARRIER], 1: [BARRIER]}
    (line,) = lines(logs, end=False, unfinished=then, over=True)
    assert line.startswith("[0-1] MPI_Recv had not returned when the job ended")
    assert lines(logs, end=False, unfinished=then) == []


def test_collectives_that_ranks_are_in_are_compared_too() -> None:
    then = {0: BCAST, 1: collective("MPI_Bcast", 1), 2: BCAST}
    (line,) = lines({rank: [BARRIER] for rank in range(3)}, end=False, unfinished=then)
    assert line.startswith("[1] MPI_Bcast has root 1, but root 0 in MPI_Bcast of rank 0")


def test_a_rank_that_has_called_exit_without_mpi_finalize() -> None:
    (line,) = lines({0: [BARRIER], 1: [BARRIER]}, end=False, left={1: 0}, over=True)
    assert line.startswith("[1] MPI_Barrier is followed by exit(0), without MPI_Finalize")
    assert lines({0: [BARRIER], 1: [BARRIER]}, end=False, left={1: 3}, over=True) == []


def test_what_is_never_freed_and_requests_that_nobody_completed() -> None:
    calls = [collective("MPI_Comm_dup"), collective("MPI_Iallreduce")]
    unfreed = {
        rank: [
            Unfreed("communicator", 0x10, 1, ""),
            Unfreed("request", 0x20, 2, ""),
            Unfreed("operation", 0x30, 2, "MPI_Op_create"),
        ]
        for rank in range(2)
    }
    logs = {0: calls, 1: calls}
    assert [line.partition(";")[0] for line in lines(logs, unfreed=unfreed)] == [
        "[0-1] MPI_Iallreduce is not completed by MPI_Finalize",
        "[0-1] MPI_Comm_dup makes a communicator that is not freed",
        "[0-1] MPI_Op_create makes an operation that is not freed",
    ]
    assert lines(logs, end=False, unfreed=unfreed) == []


def test_a_receive_that_nobody_completed_is_told_once() -> None:
    posted = Call(0, 0, "MPI_Irecv", Kind.POST_RECV, comm="world", peer=0, tag=7, bytes=4)
    (line,) = lines({0: [send(1)], 1: [posted]}, unfreed={1: [Unfreed("request", 1, 1, "")]})
    assert line.startswith("[1] MPI_Irecv is not completed by MPI_Finalize; 'goto")


def rma(name: str, target: int | None = None) -> Call:
    return Call(0, 0, f"MPI_{name}", Kind.RMA, comm="window(world)", peer=target)


@pytest.mark.parametrize(
    ("calls", "says"),
    [
        ([rma("Win_fence"), rma("Put", 1), rma("Win_fence"), rma("Win_free")], ""),
        ([rma("Win_lock", 1), rma("Put", 1), rma("Win_unlock", 1)], ""),
        ([rma("Win_lock_all"), rma("Get", 1), rma("Win_flush", 1), rma("Win_unlock_all")], ""),
        ([rma("Win_start"), rma("Put", 1), rma("Win_complete"), rma("Win_free")], ""),
        ([rma("Win_post"), rma("Win_wait"), rma("Win_free")], ""),
        ([rma("Win_fence"), rma("Put", 1), rma("Win_free")], "without MPI_Win_fence after"),
        ([rma("Win_fence"), rma("Win_lock", 1), rma("Put", 1), rma("Win_unlock", 1)], ""),
        ([rma("Win_lock", 1), rma("Win_lock", 2)], ""),
        ([rma("Win_lock", 1), rma("Win_lock", 1)], "is called while that lock is held"),
        ([rma("Win_start"), rma("Win_start")], "is called before MPI_Win_complete of the last"),
        ([rma("Win_lock", 1), rma("Put"), rma("Win_unlock", 1)], ""),
        ([rma("Win_lock", 1), rma("Put", 2)], "MPI_Put is called outside of an epoch"),
        ([rma("Put", 1)], "MPI_Put is called outside of an epoch"),
        ([rma("Win_unlock", 1)], "MPI_Win_unlock is called without MPI_Win_lock"),
        ([rma("Win_lock", 0), rma("Win_flush", 1)], "MPI_Win_flush is called without a lock"),
        ([rma("Win_complete")], "MPI_Win_complete is called without MPI_Win_start"),
        ([rma("Win_wait")], "MPI_Win_wait is called without MPI_Win_post"),
        ([rma("Win_lock", 1), rma("Win_free")], "MPI_Win_free is called while a lock is held"),
        ([rma("Win_post"), rma("Win_free")], "without MPI_Win_wait after MPI_Win_post"),
    ],
)
def test_one_sided_calls_outside_of_their_epochs(calls: list[Call], says: str) -> None:
    found = [
        line for line in lines({0: calls, 1: []}, end=False) if "Win_free is called," not in line
    ]
    assert len(found) == bool(says)
    assert not found or says in found[0]


def test_of_a_record_that_is_not_whole_collectives_are_not_compared() -> None:
    calls = {0: numbered(0, [BARRIER]), 1: numbered(1, [BCAST])}
    matching = Matching(library())
    matching.extend(calls, {"world": (0, 1)})
    record = Record(matching, listed(calls), 2, RankSet.of([1]))
    assert check(record) == []
    assert record.caveats()[0] == "the record of 1 is not whole: collectives were not compared"
    assert report([]) == "nothing wrong is on record"


def test_only_what_is_about_these_ranks() -> None:
    calls = {rank: numbered(rank, [BARRIER if rank else BCAST]) for rank in range(3)}
    matching = Matching(library())
    matching.extend(calls, {"world": (0, 1, 2)})
    found = check(Record(matching, listed(calls), 3))
    assert len(found) == len(concerning(found, RankSet.of([0]))) == 1
    assert concerning(found, RankSet.of([2])) == []


# ---- types and operations ------------------------------------------------------------------------


def typed(call: Call, type_: str = "MPI_INT", second: str = "", op: str = "") -> Call:
    return replace(call, types=Types(type_, second, op))


def test_a_message_that_is_received_as_another_type() -> None:
    calls = [typed(send(1))], [typed(receive(0), "MPI_FLOAT")]
    (line,) = lines(dict(enumerate(calls)))
    assert line == (
        "[1] MPI_Recv receives MPI_FLOAT, but MPI_INT comes from MPI_Send of rank 0; "
        "'goto tick 1 on 1'"
    )


@pytest.mark.parametrize("as_", ["MPI_INT", "MPI_INT32_T", "MPI_INTEGER", ""])
def test_types_of_one_kind_fit_and_so_does_what_is_not_known(as_: str) -> None:
    other = [typed(send(1), "MPI_DOUBLE")], [typed(receive(0), "MPI_C_DOUBLE_COMPLEX")]
    here = [typed(send(1)), *other[0]], [typed(receive(0), as_), *other[1]]
    assert lines(dict(enumerate(here))) == []


def test_a_message_of_no_bytes_has_no_type() -> None:
    empty = replace(typed(send(1)), bytes=0)
    assert lines({0: [empty], 1: [typed(receive(0), "MPI_FLOAT")]}) == []


def test_both_halves_of_an_exchange_have_types() -> None:
    one = Call(
        *(0, 0, "MPI_Sendrecv", Kind.SENDRECV),
        comm="world",
        peer=1,
        tag=7,
        bytes=4,
        source2=1,
        tag2=7,
    )
    other = replace(one, peer=0, source2=0)
    first, second = typed(one, "MPI_INT", "MPI_FLOAT"), typed(other, "MPI_FLOAT", "MPI_INT")
    assert lines({0: [first], 1: [second]}) == []
    (line,) = lines({0: [first], 1: [typed(other, "MPI_FLOAT", "MPI_FLOAT")]})
    assert line.startswith("[1] MPI_Sendrecv receives MPI_FLOAT, but MPI_INT comes from")


def test_a_collective_of_another_type_or_operation() -> None:
    reduce = typed(collective("MPI_Allreduce"), op="MPI_SUM")
    (line,) = lines({0: [reduce], 1: [reduce], 2: [typed(reduce, "MPI_FLOAT", op="MPI_SUM")]})
    assert line.startswith("[2] MPI_Allreduce has MPI_FLOAT, but MPI_INT in MPI_Allreduce")
    (line,) = lines({0: [reduce], 1: [reduce], 2: [typed(reduce, op="MPI_MAX")]})
    assert line.startswith("[2] MPI_Allreduce has MPI_MAX, but MPI_SUM in MPI_Allreduce")


def test_an_access_as_another_type() -> None:
    put = replace(rma("Put", 1), bytes=4, types=Types("MPI_INT", "MPI_FLOAT"))
    (line,) = lines({0: [rma("Win_fence"), put, rma("Win_fence")], 1: []}, end=False)
    assert line.startswith("[0] MPI_Put accesses MPI_FLOAT as MPI_INT")
    put = replace(put, types=Types("MPI_INT", ""))
    assert lines({0: [rma("Win_fence"), put, rma("Win_fence")], 1: []}, end=False) == []


def test_a_race_names_the_messages_of_all_that_could_have_come_first() -> None:
    got = [replace(receive(source), wild=1) for source in (1, 2, 3)]
    one, other = lines({0: got, 1: [send(0)], 2: [send(0)], 3: [send(0)]})
    says = "MPI_Recv could have got another message, that of MPI_Send of"
    assert one == f"[0] {says} ranks 2-3, instead of that of rank 1; 'goto tick 1 on 0'"
    assert other == f"[0] {says} rank 3, instead of that of rank 2; 'goto tick 2 on 0'"


def test_members_that_give_nothing_may_have_any_type() -> None:
    gather = typed(collective("MPI_Gatherv", 0))
    assert lines({0: [gather], 1: [replace(typed(gather, "MPI_FLOAT"), bytes=0)]}) == []


def test_each_number_of_a_type_fits_its_bits() -> None:
    assert len(TYPES) < 64
    assert len(OPS) + 1 == 15
    assert {name for name, _ in TYPES} == set(KIND)
    code = 1 + TYPES.index(("MPI_INT", 4)) | 1 << 6 | 3 << 12
    assert types(code << 48 | 0x7F00_1234) == Types("MPI_INT", "MPI_CHAR", "MPI_SUM")
