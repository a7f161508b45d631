"""A call that is not the recorded one: the error says how it differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from crdebug.native.recorder.clock import Held
from crdebug.timeline.differing import difference
from crdebug.timeline.log import read_log
from harness.layered import Layered
from harness.matcher import library

OTHERS = (
    ("MPI_Send", "tag 7", "tag 5"),
    ("MPI_Send", "4 bytes", "8 bytes"),
    ("MPI_Send", "destination 1", "destination MPI_PROC_NULL"),
    ("MPI_Send", "communicator world", "communicator world#2"),
    ("", "MPI_Send", "MPI_Ssend"),
    ("MPI_Sendrecv", "tag 7 of what is sent", "tag 5 of what is sent"),
    ("MPI_Wait", "the request 1 before the last", "the last request"),
    ("MPI_Startall", "tag 0 of request 0", "tag 1 of request 0"),
    ("MPI_Bcast", "root 0", "root 1"),
    ("MPI_Recv", "source 1", "source MPI_ANY_SOURCE"),
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logs = tmp_path_factory.mktemp("differing") / "time"
    Layered(logs, "differing", ranks=2).run()
    (logs / "1").unlink()
    return logs


@pytest.mark.parametrize("other", range(1, len(OTHERS) + 1))
def test_a_divergence_names_the_difference(recorded: Path, other: int) -> None:
    job = Layered(recorded, "differing", "--other", other, ranks=2)
    with job.running() as run:
        rank = run.find()[0]
        run.wait(lambda: rank.clock().held is Held.AT_DIVERGENCE, "rank 0 diverges")
        clock = rank.clock()
    log = read_log(recorded / "0", library())
    call, before, now = OTHERS[other - 1]
    if call:
        before, now = f"{call} with {before}", f"{call} with {now}"
    told = difference(clock, lambda number: log.comm_name(number, clock.cursor))
    assert told == f"{before} was recorded, and {now} came"
    (recorded / "1").unlink()  # a rank that has not diverged records again
