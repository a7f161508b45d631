"""A wild store of the program can reach its rank's log: damage is refused, or shown as it is; never
an exception of Python's, an endless loop, or unlimited memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from crdebug.base.instant import Instant
from crdebug.job import beginning, clocks
from crdebug.timeline.cuts import latest_cut
from crdebug.timeline.kept import keep
from crdebug.timeline.recorded import Recorded
from harness import damaged_logs
from harness.layered import Layered
from harness.matcher import library
from harness.mpis import MPIS

TOP = Path(__file__).parents[2]
SMALL = {"CRDEBUG_TIME_RECORDS": str(1 << 16)}  # each damage maps the whole log again


def outcomes(logs: Path, work: Path, count: int) -> dict[str, int]:
    """What came of so many damages, each of one of these logs."""
    work.mkdir()
    argv = [sys.executable, *map(str, (damaged_logs.__file__, logs, work, 7, count))]
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    ran = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=1200)
    assert ran.returncode == 0, ran.stderr[-2000:]  # the last damage that it names
    found: dict[str, int] = json.loads(ran.stdout)
    return found


def require_read_or_refused(logs: Path, work: Path, count: int) -> None:
    found = outcomes(logs, work, count)
    assert set(found) == {"read", "refused"}, found
    assert sum(found.values()) == count


@pytest.mark.parametrize("program", ["wildcard", "persistent"])
def test_a_damaged_log_is_refused_or_read(tmp_path: Path, program: str) -> None:
    job = Layered(tmp_path / "time", program, "--rounds", 2)
    job.run(SMALL)
    require_read_or_refused(job.directory, tmp_path / "damaged", 100)


@pytest.mark.parametrize(
    "program",
    [
        "wildcard",
        *(pytest.param(each, marks=pytest.mark.sweep) for each in ("persistent", "collectives")),
    ],
)
def test_so_is_damage_to_the_kept_part_of_dropped_calls(tmp_path: Path, program: str) -> None:
    job = Layered(tmp_path / "time", program, "--rounds", 4)
    job.run(SMALL)
    given_up(tmp_path)
    require_read_or_refused(job.directory, tmp_path / "damaged", 500)


def given_up(run: Path) -> None:
    """The first half of a record."""
    recorded = Recorded(library())
    recorded.read(clocks.logs(run).iterdir())
    last = tuple(log.tail_now for _, log in sorted(recorded.logs.items()))
    cut = latest_cut(recorded.matching, 0, Instant(last[0].tick), last)
    kept = keep(recorded.matching, recorded.logs, cut)
    assert kept is not None
    beginning.begin_at(run, kept)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("program", "ranks"),
    [("collectives", 4), ("testsome", 4), ("onesided", 2), ("futures", 4), ("pingpong", 2)],
)
def test_damaged_logs_of_all_kinds_of_calls(tmp_path: Path, program: str, ranks: int) -> None:
    arguments = ("--rounds", 2) if program in ("collectives", "testsome", "pingpong") else ()
    job = Layered(tmp_path / "time", program, *arguments, ranks=ranks)
    job.run(SMALL)
    require_read_or_refused(job.directory, tmp_path / "damaged", 500)


@pytest.mark.sweep
def test_damaged_logs_of_mpi_4_calls(tmp_path: Path) -> None:
    job = Layered(
        tmp_path / "time", "newer", mpi=next(mpi for mpi in MPIS if mpi.name == "Open MPI 5.0")
    )
    job.run(SMALL)
    require_read_or_refused(job.directory, tmp_path / "damaged", 500)
