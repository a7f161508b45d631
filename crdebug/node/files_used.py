"""Which files processes have open or mapped, by device and inode: names may have changed."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable

from crdebug.node import proc

_FILE = re.compile(r"^\S+ \S+ \S+ (\w+):(\w+) (\d+)", re.M)


def by(pids: Iterable[int]) -> set[tuple[int, int]]:
    """The device and inode of each file in use. A process that has ended uses none.

    Raises PermissionError if we may not look at one of them.
    """
    found: set[tuple[int, int]] = set()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            found |= _mapped(pid)
            for tid in proc.tids(pid):
                found |= _open(pid, tid)
    return found


def _mapped(pid: int) -> set[tuple[int, int]]:
    return {
        (os.makedev(int(major, 16), int(minor, 16)), int(inode))
        for major, minor, inode in _FILE.findall(proc.maps_text(pid))
        if inode != "0"
    }


def _open(pid: int, tid: int) -> set[tuple[int, int]]:
    """Each thread may have a table of its own (unshare(2), CLONE_FILES)."""
    found = set()
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        directory = proc.PROC / str(pid) / "task" / str(tid) / "fd"
        for name in os.listdir(directory):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                details = os.stat(directory / name)
                found.add((details.st_dev, details.st_ino))
    return found
