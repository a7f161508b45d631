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

from crdebug.base.settings import data_home
from crdebug.node.criu_program import find_criu
from harness import mpirun, users
from harness.mpis import MPIS, ONLY, Mpi
from harness.nobody import needs_root
from harness.users import home as home

pytestmark = needs_root

HERE = Path(__file__).parent
SHARED_PROCESSORS = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
SWEEP = "from crdebug.node import scratch; scratch.sweep()"
# One short test of each kind, for `make test`; those with "{}" for each MPI.
SHORT_ONES = (
    "test_same_state.py::test_at_a_signal_that_is_yet_to_be_delivered[{}]",
    "test_always_usable.py::test_three_restarts_of_one_checkpoint_end_as_an_undisturbed_run"
    "[{}-to_bare-debugged]",
    "test_signals_held.py::test_signals_that_are_blocked_when_a_job_without_a_debugger_is_frozen"
    "[{}-to_debugged]",
    "test_faults_criu.py::test_a_job_that_is_killed_while_it_is_dumped_goes_on_from_the_one_before"
    "[{}]",
    "test_branches.py::test_a_branch_that_cannot_be_brought_back_leaves_the_job_where_it_is",
    "test_travel_truth.py::test_a_tick_is_the_same_at_each_visit_from_any_place"
    "[persistent-5-20-steps4-0-15]",
)
# Files whose tests have a column in docs/mpis.md, and others.
WITH_EVERY_MPI = (
    *("always_usable", "same_state", "signals_held", "signals_queued"),
    *("faults_criu", "faults_processes", "faults_crdebug", "every_mpi"),
)
OTHERS = (
    *("files", "branches", "travel_truth", "travel_reverse", "half_back", "faults_keeper"),
    *("demo", "lammps", "batch", "app", "plain_gdb", "requested", "terminal", "../mpi/test_api"),
)


def _run(home: Path, *arguments: str, mpi: Mpi | None = None) -> None:
    """Have him run these tests, all of which pass; nothing is left in his home but in directories
    of crdebug's own."""
    found = find_criu()
    assert found is not None
    criu = users.give_criu(home, found.path)
    his = set(os.listdir(home))
    # The demo's program is in the checkout, which he may only read.
    subprocess.run(["make", "--silent", "-C", users.CHECKOUT / "examples/heat"], check=True)
    env = {
        "CRDEBUG_CRIU": str(criu),
        "CRDEBUG_DATA": str(data_home()),  # other MPIs, a newer GDB
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(users.CHECKOUT),
        # scripts/setup finds the Python that made .venv.
        "PATH": f"{sys.base_prefix}/bin:{users.environment(home)['PATH']}",
    }
    ran = users.run(
        home,
        *(sys.executable, "-m", "pytest", "-n0", "-q", "--tb=short", "-p", "no:cacheprovider"),
        *("--rootdir", users.CHECKOUT, "-c", users.CHECKOUT / "pyproject.toml", *arguments),
        first=users.expose,
        env=env if mpi is None else {**env, ONLY: mpi.tool("mpirun")},
        patience=3500,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"(mpi|criu): \d+ passed", ran.stdout), ran.stdout
    assert set(os.listdir(home)) == his | {".cache"}
    assert os.listdir(home / ".cache") == ["crdebug"]
    # A crdebug that was killed leaves a directory, for a CRIU that may be at work; the next one
    # removes it a minute later.
    for each in (home / "tmp").glob("crdebug-scratch-*"):
        os.utime(each, (0, 0))
    users.run(home, sys.executable, "-c", SWEEP, first=users.expose, env=env).check_returncode()
    assert all(each.startswith("pytest-of-") for each in os.listdir(home / "tmp"))


@pytest.mark.timeout(3600)
@pytest.mark.every_mpi("as a user", up_to=1)
def test_one_of_each_kind_passes_as_an_ordinary_user(home: Path, mpi: Mpi) -> None:
    names = [each for each in SHORT_ONES if "{}" in each or mpi == MPIS[0]]
    _run(home, *(str(HERE / each.format(mpi.name)) for each in names), mpi=mpi)


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.every_mpi("as a user")
@pytest.mark.parametrize("file", WITH_EVERY_MPI)
def test_with_every_mpi_whole_files_pass_as_an_ordinary_user(
    home: Path, mpi: Mpi, file: str
) -> None:
    _run(home, "--all", str(HERE / f"test_{file}.py"), mpi=mpi)


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("file", OTHERS)
def test_whole_files_pass_as_an_ordinary_user(home: Path, file: str) -> None:
    name = f"{file}.py" if "/" in file else f"test_{file}.py"
    _run(home, "--all", str((HERE / name).resolve()))


def test_two_users_run_jobs_of_the_same_name(home: Path, tmp_path: Path) -> None:
    """At once, each with a checkpoint that is restarted."""
    found = find_criu()
    assert found is not None
    criu = users.give_criu(home, found.path)
    script = users.give_script(home, *users.THERE_AND_BACK)
    program = users.give_heat(home)
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
