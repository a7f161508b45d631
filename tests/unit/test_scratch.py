"""Temporary directories of crdebugs that were killed are removed by the next, others are not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from crdebug.node import scratch

pytestmark = pytest.mark.unit

HOLDER = """
from crdebug.node import scratch
with scratch.directory() as path:
    (path / "file").touch()
    print(path, flush=True)
    input()
"""
LONG_AGO = 1_000_000_000


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short one, wherever pytest's are."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        monkeypatch.setenv("TMPDIR", path)
        monkeypatch.setattr(tempfile, "tempdir", path)
        yield Path(path)


def test_a_socket_fits_into_one_also_where_temporary_directories_have_long_names(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = temporary / ("x" * 90)
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with scratch.directory() as path, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path / "socket"))


def test_one_of_a_crdebug_that_was_killed_is_removed_and_no_other(temporary: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        held = Path(holder.stdout.readline().strip())
        os.utime(held, (LONG_AGO, LONG_AGO))
        scratch.sweep()
        assert (held / "file").exists()  # it is at work
        holder.kill()
        holder.wait()
        strange = temporary / f"{held.name}-link"
        strange.symlink_to(held)
        other = temporary / "crdebug-other"
        other.mkdir()
        fresh = temporary / f"{held.name}-fresh"
        fresh.mkdir()
        with scratch.directory() as own:
            assert not held.exists()
            assert {strange, other, fresh, own} == set(temporary.iterdir())
    assert not own.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_another_users_is_left_alone(temporary: Path) -> None:
    with scratch.directory() as own:
        name = own.name
    others = temporary / name
    others.mkdir()
    os.chown(others, 12345, 12345)
    os.utime(others, (LONG_AGO, LONG_AGO))
    scratch.sweep()
    assert others.exists()
