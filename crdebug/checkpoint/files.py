"""Files that the job has open for writing: they go back with it.

A restart that leaves the output in the future is no restart, and the CRS refuses a file whose size
is not what it was. A file opened for appending is cut to its length; of any other the content is
kept. What lies on a mount of the container's own is in the image already.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from crdebug.errors import StoreError
from crdebug.node import proc

# Where the container's own file systems are; the job's stdout and stderr are kept apart.
_OWN = ("/proc/", "/dev/", "/run/crdebug/", "/sys/")


@dataclass(frozen=True, slots=True)
class SavedFile:
    """path: of the application's file.  size: what it was.

    saved: the name of the copy in the checkpoint, or "" if the file only grew.
    """

    path: str
    size: int
    saved: str = ""


def find_open_files(pids: Iterable[int]) -> tuple[SavedFile, ...]:
    """The files that these processes have open for writing, each once, without copies yet."""
    appending: dict[str, bool] = {}
    sizes: dict[str, int] = {}
    for pid in pids:
        try:
            files = proc.files_open_for_writing(pid)
        except (ProcessLookupError, PermissionError):
            continue
        for file in files:
            if file.deleted or file.path.startswith(_OWN):
                continue
            appending[file.path] = appending.get(file.path, True) and file.append
            sizes[file.path] = file.size
    return tuple(
        SavedFile(path, sizes[path], "" if appending[path] else f"{number}")
        for number, path in enumerate(sorted(sizes))
    )


def save(files: Iterable[SavedFile], target: Path) -> None:
    """Copy what has to be kept into `target`. Raises StoreError."""
    target.mkdir(mode=0o700, exist_ok=True)
    for file in files:
        if file.saved:
            try:
                shutil.copyfile(file.path, target / file.saved)
            except OSError as error:
                raise StoreError(f"cannot save {file.path}: {error.strerror}") from None


class RollBack:
    """Puts files back to what they were, in a way that can itself be undone.

    Files keep their inode, owner and mode: something may hold them open.
    """

    def __init__(self, files: Iterable[SavedFile], source: Path, undo: Path) -> None:
        self._files = tuple(files)
        self._source = source
        self._undo = undo
        self._done: list[SavedFile] = []

    def apply(self) -> None:
        """Raises StoreError, with everything as before, when one of them cannot be."""
        try:
            self._undo.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot roll back into {self._undo}: {error.strerror}") from None
        try:
            for number, file in enumerate(self._files):
                self._put_back(file, self._undo / str(number))
        except BaseException:
            self.undo()
            raise

    def _put_back(self, file: SavedFile, kept: Path) -> None:
        path = Path(file.path)
        try:
            size = path.stat().st_size if path.exists() else -1
            if not file.saved and size < file.size:
                now = "is missing" if size < 0 else f"has {size} bytes"
                raise StoreError(
                    f"{path} {now}, and had {file.size} bytes at the checkpoint",
                    hint="put the file back, or restart from an earlier checkpoint",
                )
            if size >= 0:
                self._keep(path, file, kept)
            self._done.append(file)
            if file.saved:
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "ab") as target, open(self._source / file.saved, "rb") as source:
                    os.truncate(target.fileno(), 0)
                    shutil.copyfileobj(source, target)
            else:
                os.truncate(path, file.size)
        except OSError as error:
            raise StoreError(f"cannot roll back {path}: {error.strerror}") from None

    @staticmethod
    def _keep(path: Path, file: SavedFile, kept: Path) -> None:
        with open(path, "rb") as source, open(kept, "wb") as target:
            if not file.saved:
                source.seek(file.size)  # only what is about to be cut off
            shutil.copyfileobj(source, target)

    def undo(self) -> None:
        """Put back what was there before `apply`."""
        for number, file in enumerate(self._done):
            kept = self._undo / str(number)
            if not kept.exists():
                Path(file.path).unlink(missing_ok=True)
                continue
            with open(file.path, "ab") as target, open(kept, "rb") as source:
                os.truncate(target.fileno(), 0 if file.saved else file.size)
                shutil.copyfileobj(source, target)
        self._done.clear()
