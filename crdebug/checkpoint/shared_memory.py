"""The files of a container's /dev/shm: they are saved with the job while it is frozen, and are put
back into the /dev/shm of a new container before the CRS brings the job back there. The CRS opens
what the job has mapped, and saves none of it.

The data of all files is one file, without their holes: shared memory is large and sparse, and a
checkpoint is hashed.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from crdebug.base.errors import StoreError
from crdebug.checkpoint.holes import data_ranges
from crdebug.node import files_used
from crdebug.node.container import JOB_DIRECTORY

INDEX, CONTENT = "index.json", "content"
DIRECTORY = "shared-memory"  # among what a checkpoint has of the job's own directory
ASIDE = ".crdebug"  # crdebug/native/shim/aside.c

type_of: dict[int, Literal["directory", "file", "link", "fifo"]] = {
    stat.S_IFDIR: "directory",
    stat.S_IFREG: "file",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, directory, symbolic link or FIFO.

    path: below /dev/shm.  owner, group: numbers of this machine's.  accessed, modified: in ns.
    size, data: of a file; the start and end of each part that is no hole, as they follow each other
    in the content.  target: of a symbolic link; of a file, the path of the same one that came
    before ("" if there is none).
    """

    path: bytes
    kind: Literal["directory", "file", "link", "fifo"]
    mode: int
    owner: int
    group: int
    accessed: int
    modified: int
    size: int = 0
    data: tuple[tuple[int, int], ...] = ()
    target: bytes = b""


def size_of(root: Path) -> int:
    """Bytes of memory that the files have: `save` copies about as many. Raises StoreError."""
    files = {
        (details.st_dev, details.st_ino): details.st_blocks
        for _, details in _found(root)
        if stat.S_ISREG(details.st_mode)
    }
    return 512 * sum(files.values())


def save(root: Path, target: Path) -> int:
    """Copy what is in `root` into the new directory `target`; returns the bytes written.

    root: a container's /dev/shm, whose processes stand still. What vanishes nonetheless is left
    out, and so are sockets, which the CRS binds anew. Raises StoreError.
    """
    entries: list[Entry] = []
    first: dict[tuple[int, int], bytes] = {}
    try:
        target.mkdir(mode=0o700)
        with open(target / CONTENT, "xb", buffering=0) as content:
            for path, details in _found(root):
                with contextlib.suppress(FileNotFoundError):
                    entry = _saved(path, root, details, first, content.fileno())
                    entries.append(entry)
                    if entry.kind == "file":
                        first.setdefault((details.st_dev, details.st_ino), entry.path)
            written = content.tell()
        index = msgspec.json.encode(entries)
        (target / INDEX).write_bytes(index)
    except OSError as error:
        raise _cannot("save", error.filename or target, error) from None
    return written + len(index)


def _found(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """All that is to be saved: a directory comes before its content."""
    waiting = [root]
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as found:
                names = sorted(each.name for each in found)
            for name in names:
                path = directory / name
                if path == root / Path(JOB_DIRECTORY).name:  # a mount
                    continue
                with contextlib.suppress(FileNotFoundError):
                    details = path.lstat()
                    if stat.S_IFMT(details.st_mode) in type_of:
                        yield path, details
                    if stat.S_ISDIR(details.st_mode):
                        waiting.append(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _cannot("save", directory, error) from None


def _saved(
    path: Path,
    root: Path,
    details: os.stat_result,
    first: dict[tuple[int, int], bytes],
    content: int,
) -> Entry:
    entry = Entry(
        path=os.fsencode(path.relative_to(root)),
        kind=type_of[stat.S_IFMT(details.st_mode)],
        mode=stat.S_IMODE(details.st_mode),
        owner=details.st_uid,
        group=details.st_gid,
        accessed=details.st_atime_ns,
        modified=details.st_mtime_ns,
    )
    if entry.kind == "link":
        return replace(entry, target=os.fsencode(os.readlink(path)))
    if entry.kind != "file":
        return entry
    same = first.get((details.st_dev, details.st_ino))
    if same is not None:
        return replace(entry, target=same)
    with _opened(path, os.O_RDONLY) as file:
        size = os.fstat(file).st_size
        data = []
        for start, end in data_ranges(file, size):
            data.append((start, _append(file, start, end, content, path)))
    return replace(entry, size=size, data=tuple(data))


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def _append(file: int, at: int, end: int, content: int, path: Path) -> int:
    """Copy a part of a file to the end of the content; returns how far it went, if somebody has
    shortened the file meanwhile."""
    while at < end:
        try:
            count = os.sendfile(content, file, at, end - at)
        except OSError as error:
            raise _cannot("save", path, error) from None
        if count == 0:
            break
        at += count
    return at


def put_back(source: Path, root: Path) -> None:
    """Make what `save` has copied to `source` in `root`, the empty /dev/shm of a new container.

    Owners are set where we may. Raises StoreError.
    """
    entries = _read(source)
    try:
        with open(source / CONTENT, "rb", buffering=0) as content:
            for entry in entries:
                path = root / os.fsdecode(entry.path)
                try:
                    _make(entry, path, root, content.fileno())
                except OSError as error:
                    raise _cannot("put back", path, error) from None
    except OSError as error:
        raise _cannot("read", source / CONTENT, error) from None
    # Only now: what is made in a directory changes it, and needs the right to.
    for entry in entries:
        path = root / os.fsdecode(entry.path)
        try:
            _dress(entry, path)
        except OSError as error:
            raise _cannot("put back", path, error) from None


def _read(source: Path) -> list[Entry]:
    try:
        return msgspec.json.decode((source / INDEX).read_bytes(), type=list[Entry])
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(f"{source / INDEX} cannot be read: {error}") from None


def _make(entry: Entry, path: Path, root: Path, content: int) -> None:
    match entry.kind:
        case "directory":
            path.mkdir(mode=0o700)
        case "link":
            os.symlink(os.fsdecode(entry.target), path)
        case "fifo":
            os.mkfifo(path, 0o600)
        case "file" if entry.target:
            os.link(root / os.fsdecode(entry.target), path, follow_symlinks=False)
        case "file":
            with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
                os.ftruncate(file, entry.size)
                for start, end in entry.data:
                    os.lseek(file, start, os.SEEK_SET)
                    _fill(file, end - start, content)


def _fill(file: int, left: int, content: int) -> None:
    while left > 0:
        # The content's own offset moves on: its parts are read in the order of the index.
        count = os.sendfile(file, content, None, left)
        if count == 0:
            raise StoreError("the saved content of /dev/shm ends too early")
        left -= count


def _dress(entry: Entry, path: Path) -> None:
    with contextlib.suppress(PermissionError):
        os.chown(path, entry.owner, entry.group, follow_symlinks=False)
    if entry.kind != "link":
        os.chmod(path, entry.mode)
    os.utime(path, ns=(entry.accessed, entry.modified), follow_symlinks=False)


def sweep_aside(pids: Iterable[int], root: Path) -> int:
    """Remove the files that the shim has put aside (see crdebug/native/shim/aside.c) and that none
    of these processes has open or mapped; returns the bytes of memory that they had.

    pids: all that could use them. If we may not look at one of these, nothing is removed.
    """
    freed = 0
    try:
        used = files_used.by(pids)
        with os.scandir(root / ASIDE) as found:
            for each in found:
                with contextlib.suppress(FileNotFoundError):
                    details = each.stat(follow_symlinks=False)
                    identity = (details.st_dev, details.st_ino)
                    if stat.S_ISREG(details.st_mode) and identity not in used:
                        os.unlink(each.path)
                        freed += 512 * details.st_blocks
    except (FileNotFoundError, PermissionError):
        return freed
    except OSError as error:
        raise _cannot("sweep", root / ASIDE, error) from None
    return freed


def _cannot(what: str, path: str | bytes | Path, error: OSError) -> StoreError:
    return StoreError(f"cannot {what} {os.fsdecode(path)}: {error.strerror}")
