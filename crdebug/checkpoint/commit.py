"""A plan for the CRS's action script, which carries it out whoever dies (native/starter/commit.c).

The new incarnation is whole by then, and none of it has run. The old one is ended, then the files
that the job writes to are put back, then the record is published: a plan that was begun can be
carried out again from its start, and before it nothing of the job's has been touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crdebug.base.errors import StoreError
from crdebug.checkpoint.open_files import SavedFile


@dataclass(frozen=True, slots=True)
class Plan:
    """kill: processes, each with its start (see proc.started).  files: with the paths of their
    copies, "" for those that only grew.  rename: the record, from and to.  binds: by path, what the
    new job sees there instead."""

    kill: Mapping[int, int] = field(default_factory=dict)
    files: tuple[tuple[SavedFile, str], ...] = ()
    rename: tuple[Path, Path] | None = None
    binds: Mapping[str, str] = field(default_factory=dict)

    def words(self) -> Iterable[str]:
        for pid, start in self.kill.items():
            yield from ("kill", str(pid), str(start))
        for file, copy in self.files:
            yield from ("file", file.path, copy, str(file.size), f"{file.mode:o}")
        for path, copy in self.binds.items():
            yield from ("bind", copy, path)
        if self.rename is not None:
            yield from ("rename", *map(str, self.rename))

    def write(self, path: Path) -> Path:
        """Returns the path. Raises StoreError."""
        data = b"".join(os.fsencode(word) + b"\0" for word in (*self.words(), "end"))
        try:
            path.write_bytes(data)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from None
        return path
