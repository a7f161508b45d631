"""Files that the job writes to: they go back with it.

A restart that leaves the output in the future is no restart, and the CRS refuses a file whose size
is not what it was. A file opened for appending is cut to its length; of any other, and of what is
mapped shared and writable, the content is kept. What lies on a mount of the container's own is in
the image already.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from crdebug.errors import StoreError
from crdebug.node import proc

# Where the container's own file systems are; the job's stdout and stderr are kept apart.
_OWN = ("/proc/", "/dev/", "/run/crdebug/", "/sys/")
_SHARED_MEMORY = "/dev/shm/"
_BLOCK = 1 << 20
_TAIL = 4096
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
            shared = not container and file.path.startswith(_SHARED_MEMORY)
            if file.deleted or (file.path.startswith(_OWN) and not shared):
                continue
            appending[file.path] = appending.get(file.path, True) and file.append
            sizes[file.path] = file.size
    return tuple(
        SavedFile(path, sizes[path], "" if appending[path] else f"{number}")
        for number, path in enumerate(sorted(sizes))
    )


def save(files: Iterable[SavedFile], target: Path) -> tuple[SavedFile, ...]:
    """Copy what has to be kept into `target`; returns the files with what else tells them again.

    Raises StoreError.
    """
    target.mkdir(mode=0o700, exist_ok=True)
    return tuple(_save(file, target) for file in files)


def _save(file: SavedFile, target: Path) -> SavedFile:
    try:
        with open(file.path, "rb", buffering=0) as source:
            mode = stat.S_IMODE(os.fstat(source.fileno()).st_mode)
            if not file.saved:
                return replace(file, mode=mode, tail=_tail(source.fileno(), file.size))
            with open(target / file.saved, "wb", buffering=0) as copy:
                _copy(source.fileno(), copy.fileno())
            return replace(file, mode=mode)
    except OSError as error:
        raise StoreError(f"cannot save {file.path}: {error.strerror}") from None


def _tail(file: int, size: int) -> str:
    start = max(0, size - _TAIL)
    return hashlib.sha256(os.pread(file, size - start, start)).hexdigest()


def _copy(source: int, target: int, start: int = 0, to: int = 0) -> None:
    """Give `target`, from `to` on, what `source` holds from `start` on; holes stay holes."""
    end = os.fstat(source).st_size
    os.ftruncate(target, to)
    os.ftruncate(target, to + end - start)
    at = start
    while at < end:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # nothing but a hole is left
            raise
        hole = min(end, os.lseek(source, at, os.SEEK_HOLE))
        while at < hole:
            data = memoryview(os.pread(source, min(_BLOCK, hole - at), at))
            while data:
                written = os.pwrite(target, data, to + at - start)
                data, at = data[written:], at + written


@dataclass(frozen=True, slots=True)
class _Step:
    """A file that is about to be changed. mode: what it has now; None: it is not there.

    What will be taken away from one that is there has been kept.
    """

    file: SavedFile
    mode: int | None


class RollBack:
    """Puts files back to what they were, in a way that can itself be undone.

    Files keep their inode and owner: something may hold them open. Whoever does must not write
    meanwhile. What is taken away is kept in the directory `undo`, with a journal,
    until `undo` or `forget`; so it is not lost if we die, see `recover`.
    """

    def __init__(self, files: Iterable[SavedFile], source: Path, undo: Path) -> None:
        self._files = tuple(files)
        self._source = source
        self._undo = undo

    @property
    def broken_off(self) -> bool:
        """Is there one before us that was?"""
        return self._undo.exists()

    def recover(self) -> None:
        """If a roll back before us was broken off, undo it. Raises StoreError."""
        if self.broken_off:
            self.undo()

    def apply(self) -> None:
        """Raises StoreError, with everything as before, when one of them cannot be."""
        try:
            self._undo.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot roll back into {self._undo}: {error.strerror}") from None
        try:
            for number, file in enumerate(self._files):
                self._put_back(file, number)
        except BaseException:
            self.undo()
            raise

    def forget(self) -> None:
        """It is not to be undone any more."""
        shutil.rmtree(self._undo, ignore_errors=True)

    def _put_back(self, file: SavedFile, number: int) -> None:
        path = Path(file.path)
        try:
            mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
            if not file.saved:
                _require_grown(file)
            if mode is not None:
                with (
                    open(path, "rb", buffering=0) as now,
                    open(self._undo / str(number), "wb", buffering=0) as kept,
                ):
                    # Of a file that only grew, what is about to be cut off.
                    _copy(now.fileno(), kept.fileno(), 0 if file.saved else file.size)
            self._note(_Step(file, mode))
            if file.saved:
                path.parent.mkdir(parents=True, exist_ok=True)
                with (
                    open(self._source / file.saved, "rb", buffering=0) as source,
                    _writable(path, file.mode) as target,
                ):
                    _copy(source.fileno(), target)
            else:
                os.truncate(path, file.size)
            if mode != file.mode:
                path.chmod(file.mode)  # whatever the umask; the CRS compares
        except OSError as error:
            raise StoreError(f"cannot roll back {path}: {error.strerror}") from None

    def _note(self, step: _Step) -> None:
        with open(self._undo / _JOURNAL, "ab") as journal:
            journal.write(msgspec.json.encode(step) + b"\n")

    def _steps(self) -> list[_Step]:
        """What was begun, by the journal; a line that is not whole was not begun."""
        try:
            lines = (self._undo / _JOURNAL).read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        whole = [line for line in lines if line.endswith(b"\n")]
        return [msgspec.json.decode(line, type=_Step) for line in whole]

    def undo(self) -> None:
        """Put back what was there before `apply`.

        Raises StoreError when that fails for some, which does not keep it from the others: what
        they held is kept, and named.
        """
        failed = []
        for number, step in enumerate(self._steps()):
            kept = self._undo / str(number)
            try:
                if step.mode is not None:
                    start = 0 if step.file.saved else step.file.size
                    with (
                        open(kept, "rb", buffering=0) as source,
                        _writable(Path(step.file.path), step.mode) as target,
                    ):
                        _copy(source.fileno(), target, to=start)
                        os.fchmod(target, step.mode)
                else:
                    Path(step.file.path).unlink(missing_ok=True)
            except OSError as error:
                failed.append(f"{step.file.path}: {error.strerror}; what it held is in {kept}")
        if failed:
            raise StoreError(f"cannot put back {' | '.join(failed)}")
        self.forget()


def _require_grown(file: SavedFile) -> None:
    """Is a file that was opened for appending still what it was, and more? Raises StoreError."""
    hint = "put the file back, or restart from another checkpoint"
    now = ""
    try:
        with open(file.path, "rb", buffering=0) as opened:
            size = os.fstat(opened.fileno()).st_size
            if size < file.size:
                now = f"has {size} bytes, and had {file.size} bytes at the checkpoint"
            elif file.tail and _tail(opened.fileno(), file.size) != file.tail:
                now = "was written anew since the checkpoint"
    except FileNotFoundError:
        now = f"is missing, and had {file.size} bytes at the checkpoint"
    if now:
        raise StoreError(f"{file.path} {now}", hint=hint)


@contextlib.contextmanager
def _writable(path: Path, mode: int) -> Iterator[int]:
    """A descriptor to write to the file, which is made if it is not there yet."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
