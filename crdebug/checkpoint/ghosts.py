"""Files that a job has open and that have no name any more: "ghosts", to CRIU.

To bring one back it makes a file under a name of its own beside the old one, has it opened wherever
it was open, and takes the name away again (criu/files-reg.c). If it is killed in between, the name
stays, and nobody could bring the job back any more: it is taken.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from crdebug.checkpoint.images import fields, messages, named
from crdebug.checkpoint.open_files import is_in_container
from crdebug.node import plain_paths

_FILES, _RENAMED = "files.img", "remap-fpath.img"
# FileEntry.reg, RegFileEntry.id, .name; RemapFilePathEntry.orig_id, .remap_id, .remap_type
_REGULAR, _ID, _NAME = 3, 1, 6
_ORIGINAL, _NUMBER, _KIND = 1, 2, 3
_GHOST = 1


def forget(images: Path, *, container: bool) -> None:
    """Take away the names that a CRIU may have left that brought these images back, and has ended.

    container: the job has one. Raises StoreError.
    """
    for path in _names(images):
        if not is_in_container(path, container=container):
            with contextlib.suppress(OSError), plain_paths.parent(path) as (directory, name):
                os.unlink(name, dir_fd=directory)


def _names(images: Path) -> Iterator[str]:
    renamed = images / _RENAMED
    if not renamed.exists():
        return
    with named(renamed):
        entries = [dict(fields(each)) for each in messages(renamed)]
        ghosts = {each[_ORIGINAL]: each[_NUMBER] for each in entries if each.get(_KIND) == _GHOST}
    with named(images / _FILES):
        for message in messages(images / _FILES):
            regular = dict(fields(message)).get(_REGULAR)
            entry = dict(fields(regular)) if isinstance(regular, bytes) else {}
            number, name = ghosts.get(entry.get(_ID, b"")), entry.get(_NAME)
            if isinstance(number, int) and isinstance(name, bytes):
                yield _beside(Path(os.fsdecode(name)), f".cr.{number:x}.ghost")


def _beside(path: Path, more: str) -> str:
    """Where its directory is gone as well, it is the one above."""
    there = next((above for above in path.parents if above.is_dir()), Path("/"))
    return str(there / (path.name + more))
