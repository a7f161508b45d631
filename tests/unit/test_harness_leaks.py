"""The leak check itself: it finds leaks, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from harness import leaks
from harness.leaks import MARK, Footprint

pytestmark = pytest.mark.unit
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")

ORPHAN = """
import os, sys
if os.fork() == 0:
    os.setsid()
    print(os.getpid(), flush=True)
    os.close(1)
    os.read(int(sys.argv[1]), 1)  # until the test closes its end
"""


def take(home: Path, mark: str = "none") -> Footprint:
    return Footprint.take(mark, home)


def test_nothing_is_left_when_nothing_happened(tmp_path: Path) -> None:
    assert take(tmp_path).left_since(take(tmp_path)) == ()


def test_a_descriptor_and_a_directory_are_reported(tmp_path: Path) -> None:
    before = take(tmp_path)
    (tmp_path / "jobs" / "one" / "deep").mkdir(parents=True)
    with Path("/dev/null").open() as file:
        left = take(tmp_path).left_since(before)
        assert left == (
            f"descriptor {file.fileno()}: /dev/null",
            f"directory {tmp_path}/jobs",
            f"directory {tmp_path}/jobs/one",
        )


@pytest.fixture
def orphan(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The PID of a marked process whose parent has ended; it ends with the test."""
    monkeypatch.setenv(MARK, "orphan")
    reader, writer = os.pipe()
    ran = subprocess.run(
        [sys.executable, "-c", ORPHAN, str(reader)],
        stdout=subprocess.PIPE,
        pass_fds=[reader],
        check=True,
    )
    os.close(reader)
    yield int(ran.stdout)
    os.close(writer)
    leaks.wait_ended(take(Path("/nonexistent"), "orphan").processes, Deadline(10))


def test_an_orphan_is_known_by_its_mark(tmp_path: Path, orphan: int) -> None:
    assert [process.pid for process in take(tmp_path, "orphan").processes] == [orphan]
    assert take(tmp_path, "another").processes == frozenset()


def test_a_child_is_reported_until_it_has_been_waited_for(tmp_path: Path) -> None:
    before = take(tmp_path)
    argv = [sys.executable, "-u", "-c", "print(); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None and child.stdout.readline()  # it has its arguments
        (process,) = take(tmp_path).processes - before.processes
        assert process.pid == child.pid
        assert process.what.endswith("-c print(); input()")
        child.kill()
        leaks.wait_ended(frozenset({process}), Deadline(10))
        (process,) = take(tmp_path).processes - before.processes
        assert process.what.endswith("ended and not waited for")
    assert take(tmp_path).processes == before.processes


SERVER = """
import os, time
child = os.fork()
if child == 0:
    input()
    os._exit(0)
print(child, flush=True)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
time.sleep(0.3)
os.waitpid(child, 0)
print(flush=True)
input()
"""


def test_who_has_ended_is_waited_for_by_its_own_parent(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=pipe, stdout=pipe) as server:
        assert server.stdin is not None and server.stdout is not None
        pid = int(server.stdout.readline())
        (child,) = (process for process in take(tmp_path).processes if process.pid == pid)
        server.stdin.write(b"\n")
        server.stdin.flush()
        leaks.wait_ended(frozenset({child}), Deadline(10))
        leaks.wait_reaped(frozenset({child}), Deadline(10))
        assert pid not in {process.pid for process in take(tmp_path).processes}
        server.stdin.close()
        server.kill()


WATCHER = """
import sys
from pathlib import Path
from harness import leaks

leaks.own_mounts()
home = Path("/nonexistent")
before = leaks.Footprint.take("none", home)
for line in sys.stdin:
    print(*leaks.Footprint.take("none", home).left_since(before), flush=True)
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """A directory whose mounts are shared with others, as most machines' are."""
    path = tmp_path / "machine"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(path)], check=True)
    subprocess.run(["mount", "--make-shared", str(path)], check=True)
    yield path
    subprocess.run(["umount", "--recursive", str(path)], check=True)


@needs_root
def test_ones_own_mount_is_reported_and_foreign_mounts_are_not(
    machine: Path, tmp_path: Path
) -> None:
    argv = [sys.executable, "-c", WATCHER]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    before = take(tmp_path / "home")
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as watcher:
        asks, answers = watcher.stdin, watcher.stdout
        assert asks is not None and answers is not None

        def look() -> str:
            asks.write("look\n")
            asks.flush()
            return answers.readline()

        assert look() == "\n"
        (machine / "theirs").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(machine / "theirs")], check=True)
        assert look() == "\n"
        asks.close()
    assert take(tmp_path / "home").left_since(before) == (f"mount {machine / 'theirs'}",)


FORGETFUL = """
import subprocess, sys
from harness.leaks import no_leaks

def test_one():
    global child
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

def test_two():
    pass
"""


def test_the_fixture_fails_the_test_that_leaks_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "test_forgetful.py").write_text(FORGETFUL)
    tests = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(tests), "CRDEBUG_HOME": str(tmp_path / "home")}
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    ran = subprocess.run(
        [*argv, "-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**environment, "CRDEBUG_TEST_GRACE": "0.1"},
        check=False,
    )
    assert ran.returncode == 1, ran.stdout
    assert "2 passed, 1 error" in ran.stdout
    assert "the test left behind:\n  process " in ran.stdout
