"""Another user of the machine, `nobody`, without access to root's files, in a separate process."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def become() -> None:
    """In a child, before it executes what it was made for."""
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setresgid(*[nobody.pw_gid] * 3)
    os.setresuid(*[nobody.pw_uid] * 3)


def start(argv: Sequence[object]) -> subprocess.Popen[str]:
    """A program of this user, whose output can be read."""
    return subprocess.Popen(
        list(map(str, argv)), preexec_fn=become, cwd="/", stdout=subprocess.PIPE, text=True
    )


def does(script: str, *arguments: object) -> None:
    """Have him run a shell script that succeeds."""
    argv = ["sh", "-ec", script, "sh", *map(str, arguments)]
    subprocess.run(argv, preexec_fn=become, cwd="/", check=True, timeout=60)


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory of his own; pytest's are its user's only."""
    with tempfile.TemporaryDirectory() as path:
        shutil.chown(path, "nobody")
        yield Path(path)
