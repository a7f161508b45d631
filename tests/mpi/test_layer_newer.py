"""Calls that are new in MPI-4, on each MPI that has them: recorded, repeated, and matched."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from crdebug.base.instant import Cut, Instant
from crdebug.native.recorder.clock import Refused
from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.cuts import latest_cut
from crdebug.timeline.matching import Matching
from crdebug.timeline.messages import (
    collective_of,
    made_ready,
    messages,
    pending,
    received_by,
    sent_by,
    unmatched,
)
from crdebug.timeline.recorded import Recorded
from harness.layered import Layered
from harness.matcher import library
from harness.mpis import MPIS, Mpi
from harness.programs import CompileFailed, build

NEWER = [mpi for mpi in MPIS if not mpi.name.startswith("Open MPI 4")]
FORTRAN = [mpi for mpi in NEWER if "Fortran" in mpi.languages]
RANKS, ROUNDS = 3, 3
EXCHANGED, ANYBODYS, REPLACED, AHEAD, STARTED, DIVIDED = range(
    11, 17
)  # tags in tests/programs/newer.c
CALLS = {
    EXCHANGED: {("MPI_Isendrecv",) * 2},
    ANYBODYS: {("MPI_Isendrecv",) * 2},
    REPLACED: {("MPI_Isendrecv_replace",) * 2},
    AHEAD: {("MPI_Isend", "MPI_Irecv")},
    STARTED: {("MPI_Start",) * 2, ("MPI_Startall",) * 2},
    DIVIDED: {("MPI_Pready_list", "MPI_Start")},
}
COLLECTIVES = tuple(
    f"MPI_{name}_init" for name in ("Allreduce", "Bcast", "Allgatherv", "Neighbor_allgather")
)
each_newer = pytest.mark.parametrize("mpi", NEWER, ids=[mpi.name for mpi in NEWER])


def _starts_belong_together(matching: Matching, calls: dict[int, dict[int, Call]]) -> None:
    """The starts of each persistent collective, whatever a rank starts in between."""
    starts = [each for name, each in matching.successions.items() if name != each.comm]
    assert Counter(each.name(0) for each in starts) == dict.fromkeys(COLLECTIVES, 1)
    for each in starts:
        assert each.members == tuple(range(RANKS))
        for number in range(ROUNDS):
            found = each.instance(number)
            assert not found.missing and set(found.completed) == set(range(RANKS))
            for rank, tick in found.entered.items():
                assert calls[rank][tick].name == f"MPI_Start{'all' * (number % 2)}"
                assert tick in calls[rank][found.completed[rank]].completes
                call = calls[rank][tick]
                if number % 2 == 0:
                    assert call.kind is Kind.POST_COLLECTIVE
                    assert collective_of(matching, call) == found


def _whom_they_wait_for(matching: Matching, ends: Cut) -> None:
    """While a rank is before its part, the other one is inside the call that waits for it."""
    for m in messages(matching):
        if m.tag == DIVIDED:
            assert m.received and m.posted and m.send_done
            before_ready = latest_cut(matching, m.sender, Instant.before(m.sent), ends)
            assert before_ready[m.receiver] <= Instant.within(m.received)
            before_start = latest_cut(matching, m.receiver, Instant.before(m.posted), ends)
            assert before_start[m.sender] <= Instant.within(m.send_done)
    for name, each in matching.successions.items():
        if name != each.comm and each.name(0) == "MPI_Allreduce_init":
            found = each.instance(1)
            cut = latest_cut(matching, 0, Instant.before(found.entered[0]), ends)
            done = found.completed
            assert all(cut[rank] <= Instant.within(done[rank]) for rank in range(1, RANKS))


@each_newer
def test_all_of_mpi_4_is_recorded_and_comes_again(tmp_path: Path, mpi: Mpi) -> None:
    directory = tmp_path / "time"
    job = Layered(directory, "newer", "--rounds", ROUNDS, "--jitter-us", 1500, ranks=RANKS, mpi=mpi)
    said = job.run()
    length = [(job.log(rank).tail_now, job.log(rank).records) for rank in range(job.ranks)]
    recorded = Recorded(library())
    recorded.read(directory.iterdir())
    assert {log.refused for log in recorded.logs.values()} == {Refused.NO}
    matching = recorded.matching
    assert not [*unmatched(matching)]
    ends = tuple(log.tail_now for _, log in sorted(recorded.logs.items()))
    assert not [*pending(matching, ends)]
    calls = {rank: {c.tick: c for c in log.calls} for rank, log in recorded.logs.items()}
    tags: Counter[int] = Counter()
    for m in messages(matching):
        tags[m.tag] += 1
        sent, posted = calls[m.sender][m.sent], calls[m.receiver][m.posted or 0]
        assert {(sent.name, posted.name)} <= CALLS[m.tag]
        # the call that completed each end names it, and its other end
        done = calls[m.sender][m.send_done or 0], calls[m.receiver][m.received or 0]
        assert m.posted in done[1].completes and m in received_by(matching, done[1])
        assert m in sent_by(matching, sent)
        assert m.tag == DIVIDED or (m.sent in done[0].completes and m in sent_by(matching, done[0]))
    assert tags == dict.fromkeys(CALLS, 9) | {DIVIDED: 18}
    _starts_belong_together(matching, calls)
    _whom_they_wait_for(matching, ends)
    for rank, log in recorded.logs.items():
        # a partition has arrived only after the last that it is made of was ready
        asked = [c for c in log.calls if c.name == "MPI_Parrived" and c.kind is Kind.PROBE]
        assert len(asked) == ROUNDS
        for number, call in enumerate(asked):
            sender, tick = made_ready(matching, call) or (-1, -1)
            ready = [c for c in recorded.logs[sender].calls if c.name == "MPI_Pready_range"]
            assert (sender, tick) == ((rank - 1) % RANKS, ready[2 * number].tick)
    for _ in range(4):
        assert job.run() == said
    assert length == [(job.log(rank).tail_now, job.log(rank).records) for rank in range(job.ranks)]
    assert any(job.run({"CRDEBUG_ENFORCE": "0"}) != said for _ in range(8))


@pytest.mark.skipif(not FORTRAN, reason="no mpifort of an MPI that has what MPI-4 adds")
def test_from_fortran_each_is_recorded_once_where_the_program_calls_it(tmp_path: Path) -> None:
    mpi = FORTRAN[0]
    try:
        program = build("modern", compiler=mpi.tool("mpifort"))
    except CompileFailed as error:
        if "no specific subroutine for the generic" not in str(error):
            raise
        pytest.skip(f"{mpi.origin}: its Fortran module declares partitions without their types")
    job = Layered(tmp_path / "time", program, ranks=2, mpi=mpi)
    said = job.run()
    assert job.run() == said
    log = job.log(1)
    assert log.refused is Refused.NO
    calls = [call for call in log.calls if call.kind is not Kind.NOTHING]
    assert [call.name.removeprefix("MPI_") for call in calls] == [
        *("Init", "Isendrecv", "Wait", "Allreduce_init", "Start", "Wait", "Psend_init"),
        *("Precv_init", "Start", "Start", "Pready", "Pready_range", "Parrived", "Wait", "Wait"),
        "Finalize",
    ]
    sites = [call.site for call in calls[1:-1]]
    assert sites == sorted(set(sites))  # one after the other in the program, not in the binding
