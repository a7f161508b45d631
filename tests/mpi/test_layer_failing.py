"""Calls that fail: how is on record, and a repeat fails alike or is another run."""

from __future__ import annotations

from pathlib import Path

import pytest

from crdebug.native.recorder.clock import Held
from crdebug.timeline.messages import messages, unmatched
from crdebug.timeline.recorded import Recorded
from harness.layered import Layered
from harness.matcher import library
from harness.mpis import MPIS, Mpi


@pytest.mark.parametrize("mpi", MPIS, ids=[mpi.name for mpi in MPIS])
def test_how_a_call_failed_is_on_record_and_comes_again(tmp_path: Path, mpi: Mpi) -> None:
    job = Layered(tmp_path / "time", "failing", ranks=2, mpi=mpi)
    told = job.run()
    assert told.count("truncated") == 6
    assert told.endswith("MPI_Waitall: right\nstatus: right\nstatus: right\n")
    assert job.run() == told
    recorded = Recorded(library())
    recorded.read((tmp_path / "time").iterdir())
    calls = recorded.logs[0].calls
    failed = [(call.name, call.failed.removeprefix("MPI_ERR_")) for call in calls if call.failed]
    assert failed == [
        *(("MPI_Send", "RANK"), ("MPI_Irecv", "RANK")),
        *(("MPI_Recv", "TRUNCATE"), ("MPI_Recv", "TRUNCATE"), ("MPI_Wait", "TRUNCATE")),
        *(("MPI_Test", "TRUNCATE"), ("MPI_Waitall", "IN_STATUS")),
    ]
    # Those that were too short have got their messages; the others are no calls for anybody.
    assert not [*unmatched(recorded.matching)]
    assert [(m.sender, m.receiver) for m in messages(recorded.matching)] == [(1, 0)] * 8


def test_a_call_that_fails_otherwise_than_recorded_is_another_one(tmp_path: Path) -> None:
    job = Layered(tmp_path / "time", "failing", ranks=2)
    job.run()
    (tmp_path / "time" / "1").unlink()  # the sender records again
    again = Layered(tmp_path / "time", "failing", "--fit", 1, ranks=2)
    with again.running() as run:
        rank = run.find()[0]
        run.wait(lambda: rank.clock().held is Held.AT_DIVERGENCE, "rank 0 diverges")
        clock = rank.clock()
        assert (clock.expected_failed, clock.actual_failed) == ("MPI_ERR_TRUNCATE", "")
