"""The MPI layer repeats what it recorded: a second run gives the first one's result."""

from __future__ import annotations

from pathlib import Path

import pytest

from crdebug.timeline.messages import messages, unmatched
from crdebug.timeline.recorded import Recorded
from harness.layered import Layered
from harness.matcher import library

# the program, and how long its ranks wait at random between messages
PROGRAMS = {"wildcard": 2, "testsome": 3, "master": 12, "persistent": 15}


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_recorded_result_comes_again(tmp_path: Path, program: str, thorough: bool) -> None:
    job = Layered(tmp_path / "time", program, "--rounds", PROGRAMS[program], "--jitter-us", 1500)
    recorded = job.run()
    ends = [(job.log(rank).tail_now, job.log(rank).records) for rank in range(job.ranks)]
    for _ in range(20 if thorough else 4):
        assert job.run() == recorded
    assert ends == [(job.log(rank).tail_now, job.log(rank).records) for rank in range(job.ranks)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_without_enforcement_it_does_not(tmp_path: Path, program: str) -> None:
    """Otherwise the test above could not fail."""
    job = Layered(tmp_path / "time", program, "--rounds", PROGRAMS[program], "--jitter-us", 1500)
    recorded = job.run()
    assert any(job.run({"CRDEBUG_ENFORCE": "0"}) != recorded for _ in range(8))


def test_tags_that_have_no_room_in_a_record_come_again(tmp_path: Path) -> None:
    """Tags as PETSc chooses them, from the upper end of the range that MPI allows."""
    job = Layered(tmp_path / "time", "tagged", ranks=2)
    recorded = job.run()
    ends = [job.log(rank).records for rank in range(job.ranks)]
    assert job.run() == recorded
    assert [job.log(rank).records for rank in range(job.ranks)] == ends
    record = Recorded(library())
    record.read((tmp_path / "time").iterdir())
    tags = [0x7FFFFFD8 + step for step in range(3) for _ in range(3)]
    assert [m.tag for m in messages(record.matching)] == tags
    assert not [*unmatched(record.matching)]
    assert [*record.logs[0].calls][2].tag == tags[0]


def test_tests_that_the_log_answers_leave_the_mpi_alone(tmp_path: Path) -> None:
    """Each might give the processor away: on a busy machine a repeat would take minutes."""
    job = Layered(tmp_path / "time", "impatient", ranks=2, flags=("-rdynamic",))
    assert int(job.run()) == 0
    assert 0 < int(job.run()) < 20000 / 10
