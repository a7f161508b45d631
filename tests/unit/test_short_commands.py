"""What commands that are over in a moment leave unloaded: to load it takes longer than they do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_record import a_job

from crdebug.node import proc

pytestmark = pytest.mark.unit

# Of packages: also what is in them.
DEBUGGER = {
    *("crdebug.session", "crdebug.attached", "crdebug.travel", "crdebug.debugger.target"),
    *("crdebug.mi", "crdebug.commands.settings", "crdebug.commands.results", "crdebug.ui.render"),
    *("prompt_toolkit", "pygdbmi", "plotille"),
}
IMAGES = {
    *("crdebug.checkpoint.protocol", "crdebug.checkpoint.criu", "crdebug.job.imaging"),
    *("crdebug.job.launch", "crdebug.native.build", "crdebug.node.probes"),
}
RECORD = {"crdebug.job.clocks", "crdebug.timeline.log", "crdebug.native.matcher"}
ALL_OF_JOBS = {"asyncio", "msgspec", "crdebug.job", "crdebug.checkpoint", "crdebug.detached"}

_RUN = """
import sys
from crdebug.cli import main
try:
    main(sys.argv[1:], prog_name="crdebug")
finally:
    print("loaded", *sys.modules, file=sys.stderr)
"""


def loaded(code: str, *arguments: str, says: str = "") -> set[str]:
    """The modules that a Python has loaded which ran this; with the packages that they are in."""
    argv = [sys.executable, "-c", code, *arguments]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert says in ran.stdout + ran.stderr, ran.stdout + ran.stderr
    modules = ran.stderr.splitlines()[-1].split()
    assert modules[0] == "loaded", ran.stderr
    return set(modules[1:])


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """The PID 1 of job `heat`, which runs, and has no rank yet."""
    monkeypatch.setenv("CRDEBUG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CRDEBUG_CONFIG", str(tmp_path / "config.toml"))
    with subprocess.Popen(["sleep", "1000"]) as process:
        a_job("heat", pid=process.pid, start=proc.started(process.pid)).new_run(1)
        yield process
        process.kill()


@pytest.mark.parametrize(
    "arguments, says",
    [(("--help",), "Usage: crdebug"), (("completion", "bash"), "complete "), (("checkpoint",), "")],
)
def test_help_and_completion_know_nothing_of_jobs(arguments: tuple[str, ...], says: str) -> None:
    modules = loaded(_RUN, *arguments, says=says)
    assert not modules & (DEBUGGER | IMAGES | RECORD | ALL_OF_JOBS)


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    "arguments, says",
    [
        (("jobs",), "heat  running"),
        (("jobs", "--json"), '"state": "running"'),
        (("checkpoints",), "there are no checkpoints"),
        (("delete", "heat:7"), "heat:7"),
    ],
)
def test_who_looks_at_jobs_needs_neither_a_debugger_nor_images(
    arguments: tuple[str, ...], says: str
) -> None:
    modules = loaded(_RUN, *arguments, says=says)
    assert "crdebug.job.directory" in modules
    assert not modules & (DEBUGGER | IMAGES | RECORD | {"rich.console"})


def test_who_ends_a_job_does_not_either(job: subprocess.Popen[bytes]) -> None:
    modules = loaded(_RUN, "kill", "heat", says="job heat was killed")
    assert job.wait(timeout=60) != 0
    assert not modules & (DEBUGGER | IMAGES | RECORD)


def test_impossible_operations_on_an_ended_job_are_refused_without_its_ranks(
    job: subprocess.Popen[bytes],
) -> None:
    job.kill()
    job.wait()
    for command in ("release", "checkpoint"):
        modules = loaded(_RUN, command, "heat", says="job 'heat' has ended")
        assert not modules & (DEBUGGER | IMAGES), command


@pytest.mark.parametrize(
    "module", ["crdebug.detached.checkpoint", "crdebug.detached.batch", "crdebug.ui.detached"]
)
def test_jobs_without_a_debugger_do_without_its_code(module: str) -> None:
    modules = loaded(f"import sys, {module}; print('loaded', *sys.modules, file=sys.stderr)")
    assert module in modules
    assert not modules & DEBUGGER


def test_a_running_job_is_found_without_the_tests_packages() -> None:
    """They are not there where crdebug is only used."""
    code = "import sys, crdebug.session, crdebug.ui.console, crdebug.ui.conversation"
    modules = loaded(f"{code}; print('loaded', *sys.modules, file=sys.stderr)")
    assert "crdebug.session" in modules
    assert not modules & {"pexpect", "hypothesis", "pytest"}
