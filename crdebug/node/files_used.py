"""Which files processes have open or mapped, by device and inode: names may have changed."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crdebug.node import proc

# The first segment of System V's shared memory in an IPC namespace has inode 0, as what is no file.
_INODE = r"([1-9]\d*|0(?= +/SYSV))"
_OF_A_THREAD = re.compile(r"^/proc/(\d+)/task/(?!\1\b)\d+(/|$)")
_FILE = re.compile(rf"^(\w+)-(\w+) \S{{3}}(\S) (\w+) (\w+):(\w+) {_INODE} *(.*)", re.M)


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A mapping of a file. name: in the process's own mounts, as the kernel shows it.

    file: its device and inode.  shared: what the process writes goes to the file.
    """

    start: int
    end: int
    offset: int
    shared: bool
    file: tuple[int, int]
    name: str


def by(pids: Iterable[int]) -> set[tuple[int, int]]:
    """The device and inode of each file in use. A process that has ended uses none.

    Raises PermissionError if we may not look at one of them.
    """
    found: set[tuple[int, int]] = set()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            found.update(each.file for each in mapped(pid))
            found.update(opened(pid))
    return found


def mapped(pid: int) -> Iterator[MappedFile]:
    """A process's mappings of files, by their addresses."""
    for each in _FILE.finditer(proc.maps_text(pid)):
        start, end, access, offset, major, minor, inode, name = each.groups()
        yield MappedFile(
            start=int(start, 16),
            end=int(end, 16),
            offset=int(offset, 16),
            shared=access == "s",
            file=(os.makedev(int(major, 16), int(minor, 16)), int(inode)),
            name=name,
        )


def opened(pid: int) -> set[tuple[int, int]]:
    """The device and inode of all that a process has open. Each thread may have a table of its own
    (unshare(2), CLONE_FILES)."""
    found = set()
    for tid in proc.tids(pid):
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            directory = proc.PROC / str(tid) / "fd"
            for name in map(str, proc.descriptors(tid)):
                with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                    details = os.stat(directory / name)
                    found.add((details.st_dev, details.st_ino))
    return found


def links(pid: int) -> Iterator[tuple[int, str]]:
    """The descriptors of a process, and what each leads to, by the names that it knows."""
    for number in proc.descriptors(pid):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            yield number, os.readlink(f"{proc.PROC}/{pid}/fd/{number}")


def of_threads(pid: int) -> list[str]:
    """The files below /proc/PID/task/TID that a process has open. Those of a process's first thread
    do not count: it is there when a restart opens them."""
    return [name for _, name in links(pid) if _OF_A_THREAD.match(name)]
