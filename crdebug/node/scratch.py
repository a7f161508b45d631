"""Temporary directories that do not stay even if we are killed: the next crdebug removes them.

The owner of a directory holds a lock on it (flock(2)), which ends with the process, however it
dies, and works across PID namespaces.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "crdebug-scratch-"
_FRESH = 60.0  # seconds; a younger one may not be locked yet
# The name of a Unix socket has 107 bytes at most (unix(7)), ours among them 40.
_LONGEST = 107 - 40
_SHORT = "/tmp"  # instead of a longer one


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """An empty directory of our own while the block runs. Its path is short, even if $TMPDIR is
    long, so that it may hold sockets."""
    sweep()
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=_place()) as path:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Path(path)
        finally:
            os.close(descriptor)


def _place() -> str:
    place = tempfile.gettempdir()
    return place if len(os.fsencode(place)) <= _LONGEST else _SHORT


def sweep() -> None:
    """Remove the directories that killed crdebugs of this user have left."""
    place = _place()
    with contextlib.suppress(OSError):
        for name in os.listdir(place):
            if name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_nobodys(Path(place) / name)


def _remove_if_nobodys(path: Path) -> None:
    details = path.lstat()
    if not stat.S_ISDIR(details.st_mode) or details.st_uid != os.geteuid():
        return
    if time.time() - details.st_mtime < _FRESH:
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: somebody's
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)
