"""Follow files as they grow (inotify(7))."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import AsyncIterator
from pathlib import Path

from crdebug.node import proc

_libc = ctypes.CDLL(None, use_errno=True)
_IN_MODIFY = 0x2
_IN_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC


def _checked(result: int, path: Path | None = None) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), path)
    return result


class Follower:
    """Reads the data that is appended to some files of a directory, from given offsets on.

    writer: the process that writes them, if its end is an end of the changes too.

    Owns descriptors until `close`. A file that does not exist yet counts as empty. Raises
    FileNotFoundError if the directory does not exist.
    """

    def __init__(self, files: dict[Path, int], writer: tuple[int, int] | None = None) -> None:
        self._offsets = dict(files)
        self._changed = asyncio.Event()
        self._changed.set()  # for data that is there already
        self._descriptor = _checked(_libc.inotify_init1(_IN_NONBLOCK_CLOEXEC))
        try:
            for directory in {path.parent for path in files}:
                # Watch the directory, since files may be created later.
                name = os.fsencode(directory)
                _checked(_libc.inotify_add_watch(self._descriptor, name, _IN_MODIFY), directory)
        except OSError:
            os.close(self._descriptor)
            raise
        asyncio.get_running_loop().add_reader(self._descriptor, self._wake)
        self._over = False
        self._writer = None if writer is None else self._watch(*writer)

    @property
    def offsets(self) -> dict[Path, int]:
        """How far each file has been read."""
        return dict(self._offsets)

    def _watch(self, pid: int, start: int) -> int | None:
        """A descriptor that becomes readable when the process ends (pidfd_open(2)); None if it has
        ended."""
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            if proc.is_alive(pid, start):
                asyncio.get_running_loop().add_reader(descriptor, self._end)
                return descriptor
            os.close(descriptor)
        self._over = True
        return None

    def _end(self) -> None:
        assert self._writer is not None
        asyncio.get_running_loop().remove_reader(self._writer)
        self._over = True
        self._changed.set()

    def _wake(self) -> None:
        try:
            os.read(self._descriptor, 65536)
        except BlockingIOError:
            return
        self._changed.set()

    def read(self) -> list[tuple[Path, bytes]]:
        """New data since the last read, without waiting."""
        found = []
        for path, offset in self._offsets.items():
            try:
                with open(path, "rb") as file:
                    file.seek(offset)
                    data = file.read()
            except FileNotFoundError:
                continue
            if data:
                self._offsets[path] = offset + len(data)
                found.append((path, data))
        return found

    async def changes(self) -> AsyncIterator[list[tuple[Path, bytes]]]:
        """New data whenever there is some: for ever, or until the writer has ended and everything
        has been read."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            over = self._over
            news = self.read()
            if news:
                yield news
            if over:
                return

    def close(self) -> None:
        for descriptor in (self._descriptor, self._writer):
            if descriptor is not None:
                asyncio.get_running_loop().remove_reader(descriptor)
                os.close(descriptor)
