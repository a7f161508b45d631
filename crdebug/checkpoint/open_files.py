"""Files that the job writes to: they go back with it.

A restart that leaves the output in the future is no restart, and the CRS refuses a file whose size
has changed. A file opened for appending is cut to its old length; all other files, and those that
are mapped shared and writable, get back their content. Files on the container's own mounts are in
the image already.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Literal

import msgspec

from crdebug.base.errors import StoreError
from crdebug.checkpoint.holes import data_ranges
from crdebug.node import plain_paths, proc

# Where the container's own file systems are; the job's stdout and stderr are kept apart.
_OWN = ("/proc/", "/dev/", "/sys/")
_SHARED_MEMORY = "/dev/shm/"
_BLOCK = 1 << 20
_LARGE = 16 << 20
_TAIL = 4096
_FICLONE = 0x40049409  # linux/fs.h
_JOURNAL = "journal"


@dataclass(frozen=True, slots=True)
class SavedFile:
    """path: of the application's file.  size, mode: what they were.

    saved: the name of the copy in the checkpoint, or "" if the file only grew; then tail is the
    hash of the last bytes that it had.
    """

    path: str
    size: int
    saved: str = ""
    mode: int = 0o600
    tail: str = ""


def is_in_container(path: str, *, container: bool = True) -> bool:
    """Does it lie in a mount of the container's own? container: there is one."""
    return path.startswith(_OWN) and (container or not path.startswith(_SHARED_MEMORY))


def find_open_files(pids: Iterable[int], *, container: bool = True) -> tuple[SavedFile, ...]:
    """The files that these processes write to, each once, without copies yet.

    container: they have shared memory and the job's output in mounts of their own.
    """
    appending: dict[str, bool] = {}
    sizes: dict[str, int] = {}
    for pid in pids:
        try:
            files = proc.files_open_for_writing(pid) + proc.files_mapped_for_writing(pid)
        except (ProcessLookupError, PermissionError):
            continue
        for file in files:
            if file.deleted or is_in_container(file.path, container=container):
                continue
            appending[file.path] = appending.get(file.path, True) and file.append
            sizes[file.path] = file.size
    return tuple(
        SavedFile(path, sizes[path], "" if appending[path] else f"{number}")
        for number, path in enumerate(sorted(sizes))
    )


def size_of(files: Iterable[SavedFile]) -> int:
    """Bytes on the disk of the files whose content has to be kept: `save` copies them."""
    total = 0
    for file in files:
        if file.saved:
            with contextlib.suppress(OSError):
                total += 512 * os.stat(file.path).st_blocks
    return total


def copy_ahead(files: Iterable[SavedFile], target: Path) -> dict[str, Path]:
    """Copies, made while the job still runs, of large files whose content has to be kept; by the
    files' paths, for `save` to bring up to date. They are of no use where blocks can be shared or
    much is holes; a file that cannot be copied is left to `save`."""
    target.mkdir(mode=0o700, exist_ok=True)
    copies: dict[str, Path] = {}
    for file in files:
        copy = target / f"ahead-{len(copies)}"
        with contextlib.suppress(OSError), _opened(file.path) as source:
            now = os.fstat(source.fileno())
            if not file.saved or now.st_size < _LARGE or 512 * now.st_blocks < now.st_size:
                continue
            with open(copy, "wb", buffering=0) as opened:
                if not _clone(source.fileno(), opened.fileno()):
                    copies[file.path] = copy
                    _copy(source.fileno(), opened.fileno())
                    continue
            copy.unlink()
    return copies


def save(
    files: Iterable[SavedFile], target: Path, ahead: Mapping[str, Path] | None = None
) -> tuple[SavedFile, ...]:
    """Copy the content that has to be kept into `target`; returns the files, with the facts by
    which they are known again.

    ahead: see `copy_ahead`. Raises StoreError.
    """
    target.mkdir(mode=0o700, exist_ok=True)
    ahead = ahead or {}
    saved = tuple(_save(file, target, ahead.get(file.path)) for file in files)
    for copy in ahead.values():  # of files that are not open any more
        copy.unlink(missing_ok=True)
    return saved


def _save(file: SavedFile, target: Path, ahead: Path | None) -> SavedFile:
    try:
        with _opened(file.path) as source:
            mode = stat.S_IMODE(os.fstat(source.fileno()).st_mode)
            if not file.saved:
                return replace(file, mode=mode, tail=_tail(source.fileno(), file.size))
            if ahead is not None:
                ahead.rename(target / file.saved)
                with open(target / file.saved, "r+b", buffering=0) as copy:
                    _update(source, copy)
                return replace(file, mode=mode)
            with open(target / file.saved, "wb", buffering=0) as copy:
                _copy(source.fileno(), copy.fileno())
            return replace(file, mode=mode)
    except OSError as error:
        raise StoreError(f"cannot save {file.path}: {error.strerror}") from None


def _tail(file: int, size: int) -> str:
    start = max(0, size - _TAIL)
    return hashlib.sha256(os.pread(file, size - start, start)).hexdigest()


def _copy(source: int, target: int, most: int | None = None) -> None:
    """Give `target` what `source` holds, at most so many bytes; holes stay holes.

    A source that somebody shortens meanwhile is copied as far as it goes.
    """
    if most is None and _clone(source, target):
        return
    end = os.fstat(source).st_size
    end = end if most is None else min(end, most)
    os.ftruncate(target, end)
    for start, hole in data_ranges(source, end):
        at = start
        while at < hole:
            data = memoryview(os.pread(source, min(_BLOCK, hole - at), at))
            if not data:
                os.ftruncate(target, at)
                return
            while data:
                written = os.pwrite(target, data, at)
                data, at = data[written:], at + written


def _update(source: FileIO, copy: FileIO) -> None:
    """Bring a copy up to date: comparing is several times as fast as writing."""
    os.ftruncate(copy.fileno(), os.fstat(source.fileno()).st_size)
    new, old = memoryview(bytearray(_BLOCK)), memoryview(bytearray(_BLOCK))
    at = 0
    while count := os.preadv(source.fileno(), [new], at):
        had = os.preadv(copy.fileno(), [old], at)
        if had < count or new[:count] != old[:count]:
            data, place = new[:count], at
            while data:
                written = os.pwrite(copy.fileno(), data, place)
                data, place = data[written:], place + written
        at += count


def _clone(source: int, target: int) -> bool:
    """Make an empty file share the other's blocks, where the file system can (ioctl_ficlone(2))."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Made:
    """A file that was missing and was made. modified: in ns; 0 while it is being filled."""

    path: str
    inode: int
    modified: int
    size: int


class RollBack:
    """Files that get back the content that they had at a checkpoint.

    They keep their inode and owner: something may hold them open. `prepare` changes no existing
    file; carrying the plan out does (see crdebug.checkpoint.commit). Missing files are made
    beforehand, since the CRS opens them, and noted in the file `made`, so that `give_up` finds them
    also if we die.
    """

    def __init__(self, files: Iterable[SavedFile], source: Path, made: Path) -> None:
        self.files = tuple(files)
        self._source = source
        self._made = made

    def steps(self) -> tuple[tuple[SavedFile, str], ...]:
        """The work to do: each file with the path of its copy, "" if it only grew."""
        return tuple((file, self._copy_of(file)) for file in self.files)

    def _copy_of(self, file: SavedFile) -> str:
        return str(self._source / file.saved) if file.saved else ""

    def prepare(self) -> None:
        """Raises StoreError, with everything as before, when one of them cannot be put back."""
        missing = []
        for file in self.files:
            try:
                if not file.saved:
                    _require_grown(file)
                elif not _is_file(file):
                    missing.append(file)
                    os.stat(self._copy_of(file))
            except OSError as error:
                raise _cannot(file, error) from None
        self._require_space(set(self.files) - set(missing))
        try:
            for file in missing:
                self._make(file)
        except BaseException:
            self.give_up()
            raise

    def _require_space(self, there: Iterable[SavedFile]) -> None:
        """The space on each file system that the copies take beyond that of the files."""
        needed: dict[int, int] = {}
        for file in there:
            if file.saved:
                try:
                    now = plain_paths.stat(file.path)
                    then = os.stat(self._copy_of(file))
                    more = 512 * max(0, then.st_blocks - now.st_blocks)
                    needed[now.st_dev] = needed.get(now.st_dev, 0) + more
                    free = shutil.disk_usage(os.path.dirname(file.path)).free
                except OSError as error:
                    raise _cannot(file, error) from None
                if more and needed[now.st_dev] > free:
                    raise StoreError(
                        f"cannot roll back {file.path}: that takes {needed[now.st_dev] >> 10} KiB "
                        f"more than the files have there, {free >> 10} KiB are free"
                    )

    def _make(self, file: SavedFile) -> None:
        try:
            with plain_paths.parent(file.path, make=True):
                pass
            with (
                open(self._copy_of(file), "rb", buffering=0) as source,
                _opened(file.path, "xb") as target,
            ):
                inode = os.fstat(target.fileno()).st_ino
                self._note(_Made(file.path, inode, 0, 0))
                os.fchmod(target.fileno(), file.mode)  # whatever the umask
                _copy(source.fileno(), target.fileno())
                now = os.fstat(target.fileno())
                self._note(_Made(file.path, inode, now.st_mtime_ns, now.st_size))
        except OSError as error:
            raise _cannot(file, error) from None

    def _note(self, made: _Made) -> None:
        with open(self._made, "ab") as notes:
            notes.write(msgspec.json.encode(made) + b"\n")

    def give_up(self) -> None:
        """Remove the files that `prepare` has made, here or in a crdebug that died; unless somebody
        else has made or written them since."""
        try:
            lines = self._made.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return
        whole = (msgspec.json.decode(line, type=_Made) for line in lines if line.endswith(b"\n"))
        for made in {each.path: each for each in whole}.values():
            with contextlib.suppress(OSError), plain_paths.parent(made.path) as (directory, name):
                now = os.stat(name, dir_fd=directory, follow_symlinks=False)
                same = (now.st_ino, now.st_mtime_ns, now.st_size) == (
                    made.inode,
                    made.modified or now.st_mtime_ns,
                    made.size if made.modified else now.st_size,
                )
                if same:
                    os.unlink(name, dir_fd=directory)
        self._made.unlink()

    def copy_into(self, directory: Path) -> dict[str, Path]:
        """Copies of the files as they were, by the files' paths. Raises StoreError."""
        directory.mkdir(mode=0o700)
        copies = {}
        for number, file in enumerate(self.files):
            copy = copies[file.path] = directory / str(number)
            try:
                if not file.saved:
                    _require_grown(file)
                own = self._copy_of(file)
                with (
                    open(own, "rb", buffering=0) if own else _opened(file.path) as source,
                    open(copy, "xb", buffering=0) as target,
                ):
                    os.fchmod(target.fileno(), file.mode)
                    _copy(source.fileno(), target.fileno(), file.size)
            except OSError as error:
                raise StoreError(f"cannot copy {file.path}: {error.strerror}") from None
        return copies


def _opened(path: str, mode: Literal["rb", "xb"] = "rb") -> FileIO:
    """Open a file of the job, by a path that nobody has redirected since the kernel gave it."""

    def opener(path: str, flags: int) -> int:
        return plain_paths.open_file(path, flags, 0o600)  # until it has its own mode

    return open(path, mode, buffering=0, opener=opener)


def _is_file(file: SavedFile) -> bool:
    """Is it there? Raises StoreError when something else is, OSError."""
    try:
        there = plain_paths.stat(file.path)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(there.st_mode):
        what = "a symbolic link now" if stat.S_ISLNK(there.st_mode) else "no file any more"
        raise StoreError(f"cannot roll back {file.path}: it is {what}")
    return True


def _cannot(file: SavedFile, error: OSError) -> StoreError:
    return StoreError(f"cannot roll back {file.path}: {error.strerror}")


def _require_grown(file: SavedFile) -> None:
    """Is a file that was opened for appending still what it was, and more? Raises StoreError."""
    hint = "put the file back, or restart from another checkpoint"
    now = ""
    try:
        with _opened(file.path) as opened:
            size = os.fstat(opened.fileno()).st_size
            if size < file.size:
                now = f"has {size} bytes, and had {file.size} bytes at the checkpoint"
            elif file.tail and _tail(opened.fileno(), file.size) != file.tail:
                now = "was rewritten since the checkpoint"
    except FileNotFoundError:
        now = f"is missing, and had {file.size} bytes at the checkpoint"
    if now:
        raise StoreError(f"{file.path} {now}", hint=hint)
