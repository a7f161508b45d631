"""The example's job script: when it submits itself again, and when it leaves it at that."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

SCRIPT = Path(__file__).parents[2] / "examples" / "slurm" / "job.sh"


class Cluster:
    """A crdebug that ends with a status at once, and a Slurm that notes what is submitted."""

    def __init__(self, home: Path) -> None:
        self._home = home
        (home / "bin").mkdir()
        (home / "state").mkdir()
        for name, text in (("crdebug", 'exit "$STATUS"'), ("sbatch", f'echo "$1" >> {home}/again')):
            path = home / "bin" / name
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)

    def piece(self, status: int) -> str:
        """What a piece says that ends so."""
        path = f"{self._home / 'bin'}:{os.environ['PATH']}"
        state = str(self._home / "state")
        words = {"PATH": path, "STATUS": str(status), "STATE": state, "LIMIT": ""}
        more = {**os.environ, **words, "SLURM_JOB_ID": "7", "NAME": "heat"}
        ran = subprocess.run(["sh", SCRIPT], env=more, capture_output=True, text=True, timeout=60)
        assert (ran.returncode, ran.stderr) == (status, "")
        return ran.stdout.strip()

    @property
    def submitted(self) -> int:
        noted = self._home / "again"
        return len(noted.read_text().splitlines()) if noted.exists() else 0


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_it_is_resubmitted_while_its_time_limit_is_the_cause(cluster: Cluster) -> None:
    for number in range(1, 6):
        assert cluster.piece(75) == "heat: to be continued"
        assert cluster.submitted == number
    assert cluster.piece(0) == "heat: done"
    assert cluster.submitted == 5


@pytest.mark.parametrize("status", [143, 1, 2, 70])
def test_it_does_not_go_on_after_crdebug_kill_nor_an_error(cluster: Cluster, status: int) -> None:
    said = cluster.piece(status)
    assert said == (
        "heat: ended by crdebug kill" if status == 143 else f"heat: failed with status {status}"
    )
    assert not cluster.submitted


def test_one_that_is_killed_again_and_again_is_not_submitted_for_ever(cluster: Cluster) -> None:
    """Too large for the machine, say; a piece that reached its time limit restarts the count."""
    for status in (137, 137, 75, 137, 137):
        assert cluster.piece(status) == "heat: to be continued"
    assert cluster.piece(137) == "heat: killed 3 times in a row: not continued"
    assert cluster.submitted == 5
