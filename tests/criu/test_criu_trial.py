"""The trial distinguishes a CRIU that works from one that does not, and leaves nothing behind.

The failing CRIUs are the working one with a program in front of it.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.node import criu_trial, proc
from crdebug.node.criu_program import TRIAL, find_criu
from harness import users
from harness.nobody import needs_root


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for the trial's files; it must be empty afterwards, or the test fails in
    `trial`."""
    path = tmp_path / "scratch"
    path.mkdir()
    monkeypatch.setenv("TMPDIR", str(path))
    return path


def criu() -> str:
    found = find_criu()
    assert found is not None
    return found.path


def in_front(path: Path, script: str) -> str:
    """A CRIU that does what the script says, in which $verb is the command for the real one."""
    path.write_text(f"#!/bin/sh\nverb=$1\nreal='{criu()}'\n{script}\n")
    path.chmod(0o755)
    return str(path)


def trial(program: str, scratch: Path) -> tuple[int, str]:
    """As scripts/setup runs it before the package is installed."""
    ran = subprocess.run(
        [sys.executable, "-I", "-S", str(TRIAL), program],
        cwd=scratch,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not list(scratch.iterdir())
    assert ran.stdout.count("\n") == 1
    return ran.returncode, ran.stdout.strip() + ran.stderr


def test_the_criu_that_checkpoints_are_taken_with_works(scratch: Path) -> None:
    assert trial(criu(), scratch) == (0, "processes dumped and restored, with their TCP connection")


FAULTS = {
    "it is not there": (None, "dump: cannot start"),
    "it only says that it works": ("exit 0", "restore: there is no restored process"),
    "it cannot dump": ('[ $verb != dump ] || exit 7; exec "$real" "$@"', "dump: exit status 7"),
    "it says why it cannot dump": (
        "echo 'Error (criu/sockets.c:1): sockets: cannot'; exit 1",
        "dump: sockets: cannot",
    ),
    "it does not know an option": (
        'exec "$real" "$@" --no-such-option',
        "dump: ",
    ),
    "it kills what it dumps": (
        'if [ $verb = dump ]; then "$real" "$@" && kill -9 "$3"; else exec "$real" "$@"; fi',
        "dump: the process ends with -9",
    ),
    "it cannot restore": (
        '[ $verb != restore ] || exit 7; exec "$real" "$@"',
        "restore: exit status 7",
    ),
    "it restores what then dies": (
        # the first process of a container, as in the one that was dumped
        '"$real" "$@" || exit; [ $verb != restore ] || kill -9 20001',
        "restore: the process ends with -9",
    ),
    "it restores other memory": (
        "[ $verb != restore ] || echo other >/dev/shm/crdebug-trial; "
        'truncate -s 4096 /dev/shm/crdebug-trial; exec "$real" "$@"',
        "restore: restored memory has changed",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_criu_that_does_not_work_is_found_out(fault: str, tmp_path: Path, scratch: Path) -> None:
    script, complaint = FAULTS[fault]
    program = str(tmp_path / "none") if script is None else in_front(tmp_path / "criu", script)
    status, said = trial(program, scratch)
    assert status == 1
    assert said.startswith(complaint)
    assert len(said) > len("restore: ")


def hanging(verb: str, tmp_path: Path) -> tuple[str, Path]:
    """A CRIU that tells a pipe its PID in the container, and hangs."""
    here = tmp_path / "here"
    os.mkfifo(here)
    hangs = f'[ $verb != {verb} ] || {{ echo $$ >"{here}"; exec sleep 1000; }}; exec "$real" "$@"'
    return in_front(tmp_path / "criu", hangs), here


@pytest.mark.parametrize("verb", ["dump", "restore"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_trial_that_is_interrupted_leaves_nothing(
    verb: str, number: signal.Signals, tmp_path: Path, scratch: Path
) -> None:
    program, here = hanging(verb, tmp_path)
    with subprocess.Popen(
        [sys.executable, str(TRIAL), program],
        cwd=scratch,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as started:
        assert here.read_text()
        assert proc.is_alive(started.pid)
        started.send_signal(number)
        assert started.wait(Deadline(60).left) != 0
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("verb", ["dump", "restore"])
def test_the_containers_of_a_trial_that_is_killed_end(
    verb: str, tmp_path: Path, scratch: Path
) -> None:
    program, here = hanging(verb, tmp_path)
    reader, writer = os.pipe()  # it ends with the last process that has it open
    with subprocess.Popen(
        [sys.executable, str(TRIAL), program],
        cwd=scratch,
        stdout=writer,
        stderr=subprocess.DEVNULL,
    ) as started:
        os.close(writer)
        assert here.read_text()
        started.kill()
    with open(reader, "rb") as all_of_it:
        assert select.select([all_of_it], [], [], Deadline(60).left)[0]
        assert all_of_it.read() == b""


@needs_root
def test_in_a_chroot_whose_root_is_no_mount_point_it_says_so(tmp_path: Path) -> None:
    """The mounts there cannot be made the job's own; nor can the starter's."""
    root = tmp_path / "root"
    for name in ("usr", "proc", "tmp"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    shutil.copy(criu_trial.__file__, root / "trial.py")
    mounts = " && ".join(f"mount --rbind /{name} {root}/{name}" for name in ("usr", "proc"))
    inside = f"chroot {root} /usr/bin/python3 /trial.py /usr/bin/true"
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{mounts} && {inside}"],
        capture_output=True,
        text=True,
        check=False,
    )
    said = f"cannot make a container: {criu_trial.NO_MOUNT_POINT}"
    assert (ran.returncode, ran.stdout.strip()) == (1, said), ran.stderr


@needs_root
def test_without_permission_it_says_so(scratch: Path) -> None:
    """Root without capabilities, as in a container."""
    ran = subprocess.run(
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, str(TRIAL), criu()],
        cwd=scratch,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stdout == "cannot make a container: namespaces: Operation not permitted\n"
    assert not list(scratch.iterdir())


# ---- an ordinary user ---------------------------------------------------------------------------


@pytest.fixture
def their() -> Iterator[Path]:
    """A user's home, with the trial and a copy of the CRIU that he may read."""
    with users.clean_home() as home:
        shutil.copy(TRIAL, home / "trial.py")
        users.give_criu(home, criu())
        yield home


def users_trial(home: Path, program: object, first: Callable[[], None] | None = None) -> list[str]:
    """The trial's status, and its line."""
    argv = (users.PYTHON, "-I", "-S", home / "trial.py", program)
    ran = users.run(home, *argv, first=first)
    assert not ran.stderr and not list((home / "tmp").iterdir())
    return [str(ran.returncode), *ran.stdout.splitlines()]


@needs_root
def test_a_user_can_have_processes_dumped_and_restored(their: Path) -> None:
    works = "processes dumped and restored, with their TCP connection"
    assert users_trial(their, their / "criu") == ["0", works]


@needs_root
@pytest.mark.parametrize("fault", ["it cannot dump", "it restores other memory"])
def test_a_user_is_told_of_a_criu_that_does_not_work(fault: str, their: Path) -> None:
    script, complaint = FAULTS[fault]
    front = their / "front"
    front.write_text(f"#!/bin/sh\nverb=$1\nreal='{their}/criu'\n{script}\n")
    front.chmod(0o755)
    assert users_trial(their, front) == ["1", complaint]


@needs_root
@pytest.mark.parametrize("program", ["criu", "--container"])
def test_a_user_who_may_make_no_user_namespace_is_told_so(program: str, their: Path) -> None:
    """He gets ENOSPC then (unshare(2))."""
    argument = their / "criu" if program == "criu" else program
    why = "cannot make a container: namespaces of a user: No space left on device"
    assert users_trial(their, argument, users.refuse_namespaces) == ["1", why]
