"""The trial distinguishes a CRIU that works from one that does not, and leaves nothing behind.

The failing CRIUs are the working one with a program in front of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.node import criu_trial, proc
from crdebug.node.criu_program import TRIAL, find_criu


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
        cwd="/",
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
    "it is not there": (None, "cannot start"),
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
        '"$real" "$@" || exit; [ $verb != restore ] || '
        'for word; do [ "${word##*/}" != pid ] || kill -9 "$(cat "$word")"; done',
        "restore: the process ends with -9",
    ),
    "it restores a network without its loopback device": (
        # the action script is the last word
        "[ $verb != restore ] || for word; do case $word in */action) "
        'printf "#!/bin/sh\\n" >"$word" ;; esac; done; exec "$real" "$@"',
        "restore: ",
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


@pytest.mark.parametrize("verb", ["dump", "restore"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_trial_that_is_interrupted_leaves_nothing(
    verb: str, number: signal.Signals, tmp_path: Path, scratch: Path
) -> None:
    here = tmp_path / "here"
    os.mkfifo(here)
    hangs = f'[ $verb != {verb} ] || {{ echo here >"{here}"; exec sleep 1000; }}; exec "$real" "$@"'
    program = in_front(tmp_path / "criu", hangs)
    with subprocess.Popen(
        [sys.executable, str(TRIAL), program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as started:
        assert here.read_text() == "here\n"
        assert proc.is_alive(started.pid)
        started.send_signal(number)
        assert started.wait(Deadline(60).left) != 0
    assert not list(scratch.iterdir())


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
    said = f"cannot start processes to be dumped: {criu_trial.NO_MOUNT_POINT}"
    assert (ran.returncode, ran.stdout.strip()) == (1, said), ran.stderr


def test_without_permission_it_says_so(scratch: Path) -> None:
    """Root without capabilities, as in a container."""
    ran = subprocess.run(
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, str(TRIAL), criu()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert (
        ran.stdout == "cannot start processes to be dumped: namespaces: Operation not permitted\n"
    )
    assert not list(scratch.iterdir())
