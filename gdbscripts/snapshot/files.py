"""Regular files that the process has open: its position in each, and the content of those that it
writes. Both go back with a snapshot, because programs print between two MPI calls.

All threads of the process must be stopped by GDB.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time

from ..wire import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Identity = tuple[int, int]
    Blocks = tuple[bytes, ...]
    Descriptor = tuple[str, str, "FileState | None"]
    Descriptors = dict[int, Descriptor]

LARGEST = 32 << 20  # bytes: we do not keep the content of larger files
BLOCK = 1 << 16
# Nanoseconds: another change this soon after the last one may leave the file's time as it is.
SAME_TIME = 50_000_000
ELSEWHERE = ("/dev/", "/memfd:")  # memory, terminals, and what crdebug records
SEEK_CALL = 8
POSITION = re.compile(r"^pos:\s*(\d+)\n", re.M)
FLAGS = re.compile(r"^flags:\s*(\d+)", re.M)


class FileState(NamedTuple):
    """A regular file. blocks: its content; None if that is not kept."""

    identity: Identity
    position: int
    size: int
    changed: int
    writable: bool
    blocks: Blocks | None


# the content of files when they were last read: identity -> (size, changed, blocks)
contents: dict[Identity, tuple[int, int | None, Blocks]] = {}


def regular(link: str, info: str) -> tuple[FileState | None, str]:
    """The state of a regular file (None for others), and its fdinfo without the position."""
    details = os.stat(link)
    if not stat.S_ISREG(details.st_mode):
        return None, info
    writable = is_writable(info)
    identity, size, changed = file_key(details)
    blocks = None
    if writable and size <= LARGEST and not os.readlink(link).startswith(ELSEWHERE):
        with contextlib.suppress(OSError):
            blocks = content(link, details)
    place = POSITION.search(info)
    assert place is not None
    position = int(place[1])
    return FileState(identity, position, size, changed, writable, blocks), POSITION.sub("", info)


def is_writable(info: str) -> bool:
    """Is a descriptor with this fdinfo open for writing?"""
    flags = FLAGS.search(info)
    return flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY


def file_key(details: os.stat_result) -> tuple[Identity, int, int]:
    return (details.st_dev, details.st_ino), details.st_size, details.st_mtime_ns


def content(link: str, details: os.stat_result) -> Blocks:
    """A file's content, in blocks; unchanged blocks are the same objects as the last time."""
    identity, size, changed = file_key(details)
    known_size, known_change, known = contents.get(identity, (-1, None, ()))
    if (known_size, known_change) == (size, changed):
        return known
    settled = time.time_ns() - changed > SAME_TIME
    blocks: list[bytes] = []
    with open(link, "rb", buffering=0) as file:
        while data := os.read(file.fileno(), BLOCK):
            at = len(blocks)
            same = at < len(known) and known[at] == data
            blocks.append(known[at] if same else data)
    contents[identity] = (size, changed if settled else None, tuple(blocks))
    return tuple(blocks)


def moved(then: FileState | None, now: FileState | None) -> str | None:
    """Why the file cannot be made what it was; None if it can, or has not changed."""
    if then is None or now is None:
        return None if then is now else "is another file"
    if then.identity != now.identity:
        return "is another file"
    if then.blocks is None or now.blocks is None:
        same = not then.writable or (then.size, then.changed) == (now.size, now.changed)
        return None if same else "was written to, and is too large to be put back"
    if then.blocks == now.blocks:
        return None
    # Only the process's own writing moves its position. (If others have the file open for writing
    # too, see shared_files.)
    if then.position == now.position:
        return "was written to"
    return None


def other_writers(pid: int, identity: Identity) -> list[int]:
    """Processes besides this one that have a file open for writing."""
    found = []
    for other in filter(str.isdigit, os.listdir("/proc")):
        if int(other) == pid:
            continue
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{other}/fd"):
                if writes(f"/proc/{other}", number, identity):
                    found.append(int(other))
                    break
    return found


def writes(process: str, number: str, identity: Identity) -> bool:
    with contextlib.suppress(OSError):
        details = os.stat(f"{process}/fd/{number}")
        if (details.st_dev, details.st_ino) == identity:
            with open(f"{process}/fdinfo/{number}") as file:
                return is_writable(file.read())
    return False


def shared_files(pid: int, then: Descriptors, now: Descriptors) -> Iterator[str]:
    """Problems: files that have to be put back, but that other processes write too."""
    for number, (name, _, state) in then.items():
        present = now[number][2] if number in now else None
        if state is None or present is None:
            continue
        if state.blocks != present.blocks and other_writers(pid, state.identity):
            yield f"file descriptor {number} ({name}) was written to, and not by this process alone"


def put_back_files(pid: int, then: Descriptors, now: Descriptors, call: Callable[..., int]) -> None:
    """Make files what they were. call: makes a system call in the process."""
    for number, (_, _, state) in then.items():
        present = now[number][2] if number in now else None
        if state is None or present is None:
            continue
        if (
            state.blocks is not None
            and present.blocks is not None
            and state.blocks != present.blocks
        ):
            put_back_content(f"/proc/{pid}/fd/{number}", state.blocks, state.size, present.blocks)
        if state.position != present.position:
            call(SEEK_CALL, number, state.position, os.SEEK_SET)


def put_back_content(link: str, then: Blocks, size: int, blocks: Blocks) -> None:
    file = os.open(link, os.O_WRONLY | os.O_CLOEXEC)
    try:
        for at, data in enumerate(then):
            same = at < len(blocks) and blocks[at] == data
            if not same and os.pwrite(file, data, at * BLOCK) != len(data):
                raise OSError(28, f"{link}: not all of it could be written")
        os.ftruncate(file, size)
    finally:
        os.close(file)
