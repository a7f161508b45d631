"""Open a file by a path without symbolic links, whoever owns the directories.

The kernel gives the path of an open file without links. Whoever may write to one of the directories
can put a link there later, between a check and the opening. So we open each name in the directory
opened before it, and follow no link (as openat2(2) does with RESOLVE_NO_SYMLINKS, which not every
kernel has).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISLNK


@contextlib.contextmanager
def parent(path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """The directory of an absolute path, open for looking up names in it, and the last name.

    make: make missing directories. Raises OSError: ELOOP for a symbolic link.
    """
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    directory = os.open("/", flags)
    try:
        *names, last = Path(path).parts[1:]
        for name in names:
            try:
                below = os.open(name, flags, dir_fd=directory)
            except FileNotFoundError:
                if not make:
                    raise
                os.mkdir(name, dir_fd=directory)
                below = os.open(name, flags, dir_fd=directory)
            os.close(directory)
            directory = below
            if S_ISLNK(os.fstat(directory).st_mode):
                raise OSError(errno.ELOOP, "a symbolic link is on the way", path)
        yield directory, last
    finally:
        os.close(directory)


def open_file(path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """open(2), but never waits for the other end of a FIFO. Raises OSError."""
    with parent(path) as (directory, name):
        more = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(name, flags | more, mode, dir_fd=directory)


def stat(path: str) -> os.stat_result:
    """stat(2) of the path; of a symbolic link, not of its target. Raises OSError."""
    with parent(path) as (directory, name):
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
