"""An ordinary user has what root has: other files of this tier, run by a user that the harness
makes, who may read this checkout and no more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crdebug.node.criu_program import find_criu
from harness import mpirun, users
from harness.nobody import needs_root
from harness.users import home as home

pytestmark = needs_root

HERE = Path(__file__).parent
SHARED_PROCESSORS = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
# In `make test` one that takes checkpoints with and without debuggers on either side.
FILES = (
    "test_always_usable.py",
    *(
        pytest.param(f"test_{name}.py", marks=pytest.mark.sweep)
        for name in (
            "same_state",
            "signals_held",
            "faults_criu",
            "faults_processes",
            "files",
            "branches",
            "travel_truth",
            "travel_reverse",
            "half_back",
            "every_mpi",
        )
    ),
)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("file", FILES)
def test_the_tests_pass_as_an_ordinary_user(home: Path, file: str) -> None:
    found = find_criu()
    assert found is not None
    criu = users.give_criu(home, found.path)
    ran = users.run(
        home,
        *(sys.executable, "-m", "pytest", "-n0", "-q", "--tb=short", "-p", "no:cacheprovider"),
        *("--rootdir", users.CHECKOUT, "-c", users.CHECKOUT / "pyproject.toml", HERE / file),
        first=users.expose,
        env={"CRDEBUG_CRIU": str(criu), "PYTHONDONTWRITEBYTECODE": "1"},
        patience=1700,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"criu: \d+ passed", ran.stdout), ran.stdout


def test_two_users_run_jobs_of_the_same_name(home: Path, tmp_path: Path) -> None:
    """At once, each with a checkpoint that is restarted."""
    found = find_criu()
    assert found is not None
    criu = users.give_criu(home, found.path)
    script = home / "script"
    script.write_text("break relax if step == 20\ncontinue\ncheckpoint\ndelete\nrestart\nkill\n")
    script.chmod(0o644)
    heat = users.CHECKOUT / "examples/heat/heat.c"
    program = home / "heat"
    subprocess.run(["mpicc", "-g", "-O1", "-o", program, heat, "-lm"], check=True)
    program.chmod(0o755)
    words = ("run", "--batch", "-x", script, "--name", "same", "--")
    argv = (sys.executable, "-m", "crdebug", *words, *mpirun.command(program, 64, 100000, ranks=2))
    with ThreadPoolExecutor() as pool:
        settings = {"CRDEBUG_CRIU": str(criu), **SHARED_PROCESSORS}
        his = pool.submit(users.run, home, *argv, first=users.expose, env=settings)
        ours = mpirun.run([str(each) for each in argv], extra={"CRDEBUG_HOME": str(tmp_path)})
        ran = his.result()
    for status, said in (
        (ran.returncode, ran.stdout + ran.stderr),
        (ours.status, ours.stdout + ours.stderr),
    ):
        assert status == 0, said
        assert "checkpoint same:1 taken" in said and "back at checkpoint same:1" in said, said


@pytest.mark.sweep
def test_one_user_runs_twenty_jobs(home: Path) -> None:
    found = find_criu()
    assert found is not None
    criu = users.give_criu(home, found.path)
    settings = {"CRDEBUG_CRIU": str(criu), **SHARED_PROCESSORS}
    job = mpirun.command("/bin/hostname", ranks=1)

    def one(number: int) -> subprocess.CompletedProcess[str]:
        words = ("run", "--no-debugger", "--name", f"job-{number}", "--", *job)
        argv = (sys.executable, "-m", "crdebug", *words)
        return users.run(home, *argv, first=users.expose, env=settings, patience=600)

    with ThreadPoolExecutor(20) as pool:
        for ran in pool.map(one, range(20)):
            assert ran.returncode == 0, ran.stdout + ran.stderr
            assert os.uname().nodename in ran.stdout, ran.stdout + ran.stderr
