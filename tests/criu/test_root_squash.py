"""Where root may not read a user's files, as on a network file system with root squash: the user
has all that he has elsewhere, and root learns why names are missing."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.node import process_tree
from crdebug.node.criu_program import find_criu
from harness import mpirun, squash, users
from harness.cli import crdebug
from harness.nobody import needs_root

pytestmark = needs_root

CALM = {"OMPI_MCA_mpi_yield_when_idle": "1"}


@pytest.fixture
def his() -> Iterator[Path]:
    with squash.home() as path:
        yield path


@pytest.mark.sweep
def test_the_user_takes_checkpoints_and_goes_back(his: Path) -> None:
    """No process of root's is asked for anything that the user has."""
    found = find_criu()
    assert found is not None
    criu = users.give_criu(his, found.path)
    script = users.give_script(his, *users.THERE_AND_BACK)
    words = ("run", "--record", "--batch", "-x", script, "--")
    job = mpirun.command(users.give_heat(his), 64, 100000, ranks=2)
    settings = {"CRDEBUG_CRIU": str(criu), "PYTHONPATH": str(users.CHECKOUT), **CALM}
    with squash.closed_to_root(his) as asked:
        argv = (sys.executable, "-m", "crdebug", *words, *job)
        ran = users.run(his, *argv, first=users.expose, env=settings)
        with pytest.raises(PermissionError):
            (his / "script").read_text()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "checkpoint heat-1:1 taken" in ran.stdout, ran.stdout
    assert "back at checkpoint heat-1:1" in ran.stdout, ran.stdout
    assert asked == [str(his / "script")]


async def test_root_looks_at_his_job_without_names(his: Path, tmp_path: Path) -> None:
    program = users.give_heat(his)
    script = tmp_path / "script"
    script.write_text("info ranks\nbacktrace\ndetach\n")
    job = subprocess.Popen(
        mpirun.command(program, 64, 100_000_000, ranks=2),
        preexec_fn=users.become,
        cwd=his,
        env=users.environment(his) | CALM,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with job, squash.closed_to_root(his) as asked:
        try:
            ranks = functools.partial(process_tree.descendants, job.pid)
            await Deadline(60).until(lambda: len(ranks()) >= 2, "the ranks to begin")
            said = (await crdebug("attach", "--batch", "-x", script, job.pid)).stdout
            assert job.poll() is None
        finally:
            job.terminate()
    assert str(program) in asked
    why = f"ranks 0-1: {program} cannot be read ({os.strerror(1)})"
    assert f"{why}, so its functions and variables have no names here; attach as" in said, said
    assert said.count(f" {program} ") >= 2 and "#0 " in said, said
