"""Calls that are new in MPI-4, on each MPI that has them: recorded, repeated, and matched."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from crdebug.native.clock import Refused
from crdebug.timeline.messages import messages, pending, received_by, sent_by, unmatched
from crdebug.timeline.recorded import Recorded
from harness.layered import Layered
from harness.mpis import MPIS, Mpi

NEWER = [mpi for mpi in MPIS if mpi.name != "Open MPI 4.1"]
RANKS, ROUNDS = 3, 3
EXCHANGED, ANYBODYS, REPLACED, AHEAD = range(11, 15)  # tags in tests/programs/newer.c
CALLS = {
    EXCHANGED: ("MPI_Isendrecv",) * 2,
    ANYBODYS: ("MPI_Isendrecv",) * 2,
    REPLACED: ("MPI_Isendrecv_replace",) * 2,
    AHEAD: ("MPI_Isend", "MPI_Irecv"),
}
each_newer = pytest.mark.parametrize("mpi", NEWER, ids=[mpi.name for mpi in NEWER])


@each_newer
def test_all_of_mpi_4_is_recorded_and_comes_again(tmp_path: Path, mpi: Mpi) -> None:
    directory = tmp_path / "time"
    job = Layered(directory, "newer", "--rounds", ROUNDS, "--jitter-us", 1500, ranks=RANKS, mpi=mpi)
    said = job.run()
    length = [(job.log(rank).tail_now, job.log(rank).records) for rank in range(job.ranks)]
    recorded = Recorded()
    recorded.read(directory.iterdir())
    assert {log.refused for log in recorded.logs.values()} == {Refused.NO}
    matching = recorded.matching
    assert not [*unmatched(matching)]
    assert not [*pending(matching, [log.tail_now for _, log in sorted(recorded.logs.items())])]
    calls = {rank: {c.tick: c for c in log.calls} for rank, log in recorded.logs.items()}
    tags: Counter[int] = Counter()
    for m in messages(matching):
        tags[m.tag] += 1
        sent, posted = calls[m.sender][m.sent], calls[m.receiver][m.posted or 0]
        assert (sent.name, posted.name) == CALLS[m.tag]
        # each end is told of by the call that completed it, and so is the other end by that
        ends = calls[m.sender][m.send_done or 0], calls[m.receiver][m.received or 0]
        assert m.sent in ends[0].completes and m.posted in ends[1].completes
        assert m in sent_by(matching, ends[0]) and m in received_by(matching, ends[1])
    assert tags == {EXCHANGED: 9, ANYBODYS: 9, REPLACED: 9, AHEAD: 9}
    for _ in range(4):
        assert job.run() == said
    assert length == [(job.log(rank).tail_now, job.log(rank).records) for rank in range(job.ranks)]
