"""How a test run ends on SIGTERM, and which signals its programs begin with."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from crdebug.base.deadline import Deadline

TESTS = Path(__file__).parents[1]

# Somebody's child that holds a FIFO open, as a job's ranks are of its starter; then it waits.
WAITS = """
import os, signal, subprocess, sys
from pathlib import Path
from harness.leaks import no_leaks

ORPHAN = '''
import os, sys, time
if os.fork() == 0:
    os.setsid()
    Path = __import__("pathlib").Path
    Path(sys.argv[1]).write_text(str(os.getpid()))
    time.sleep(1000)
'''

def test_fails():
    assert not "as it does here"

def test_waits():
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    pid = Path(__file__).with_name("pid")
    subprocess.run([sys.executable, "-c", ORPHAN, str(pid)], check=True)
    while not pid.exists() or not pid.read_text():
        pass
    Path(__file__).with_name("home").write_text(os.environ["CRDEBUG_HOME"])
    signal.pause()
"""
LOOKS = """
import signal, subprocess, sys

LOOK = "import signal; print([n for n in (1, 2, 3) if signal.getsignal(n) is signal.SIG_IGN])"

def test_looks():
    ran = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran
"""


def start(directory: Path, text: str, *options: str) -> subprocess.Popen[str]:
    shutil.copy(TESTS / "conftest.py", directory)
    shutil.copytree(TESTS / "harness", directory / "harness")
    (directory / "unit").mkdir()
    (directory / "unit" / "test_one.py").write_text(text)
    argv = [sys.executable, "-m", "pytest", "-c", str(TESTS.parent / "pyproject.toml"), "-q"]
    argv += ["--rootdir", str(directory), "-p", "no:cacheprovider", *options, str(directory)]
    return subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=_as_nohup_in_the_background,
    )


def _as_nohup_in_the_background() -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)


@pytest.mark.parametrize("workers", ["0", "2"])
async def test_sigterm_ends_it_with_all_that_it_started(tmp_path: Path, workers: str) -> None:
    with start(tmp_path, WAITS, "-n", workers) as run:
        home = tmp_path / "unit" / "home"
        limit = Deadline(100)

        def waits() -> bool:
            return home.exists() and home.read_text() != ""

        await limit.until(lambda: run.poll() is not None or waits(), "the test to wait")
        assert run.poll() is None, run.stdout and run.stdout.read()
        orphan = psutil.Process(int((tmp_path / "unit" / "pid").read_text()))
        below = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(signal.SIGTERM)
        await limit.until(lambda: run.poll() is not None, "the run to end")
        assert run.stdout is not None
        said = run.stdout.read()
    if workers == "0":  # else it may not have been heard of yet
        assert "failed by then:" in said and "as it does here" in said.rpartition("test_fails")[2]
    assert run.returncode == -signal.SIGTERM
    psutil.wait_procs([orphan, *below], timeout=limit.left)
    assert not [each for each in (orphan, *below) if each.is_running()]
    assert not Path(home.read_text()).exists()


def test_what_it_starts_ignores_nothing(tmp_path: Path) -> None:
    with start(tmp_path, LOOKS) as run:
        assert run.stdout is not None
        said = run.stdout.read()
    assert run.returncode == 0, said
