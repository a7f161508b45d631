"""Reads threads, memory and open files from the CRS's images.

CRIU writes one `core-TID.img` for each thread: two magic numbers, a length, and a protobuf message
(criu: images/core.proto, images/core-x86.proto). Only the registers are read here. And one
`pagemap-ID.img` for each address space or shared memory: a head, then an entry for each run of
pages, wherever they are kept (images/pagemap.proto). And `files.img` with every file that a process
has open or mapped (images/fdinfo.proto, images/regfile.proto).
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from crdebug.base.errors import StoreError
from crdebug.checkpoint.open_files import SavedFile

_EINTR = 4
_WORD = 1 << 64
# Field numbers: CoreEntry.thread_info, ThreadInfoX86.gpregs, UserX86RegsEntry.*
_THREAD_INFO, _GPREGS, _AX, _ORIG_AX, _IP, _SP = 2, 2, 11, 16, 17, 20
# Of PagemapEntry; the older field has 32 bits, and one of them is there.
_OLD_PAGES, _PAGES = 2, 5
_PAGE = 4096
_REGULAR, _NAME = 3, 6  # FileEntry.reg, RegFileEntry.name
# CoreEntry.tc, .thread_core; TaskCoreEntry.blk_sigset, ThreadCoreEntry.blk_sigset
_TASK, _THREAD, _TASK_BLOCKED, _THREAD_BLOCKED = 3, 4, 5, 6


@dataclass(frozen=True, slots=True)
class CoreThread:
    """A thread in an image. tid: in the job's PID namespace. blocked: the signals that it blocks,
    bit n - 1 for signal n."""

    tid: int
    pc: int
    sp: int
    rax: int
    orig_rax: int
    blocked: int

    @property
    def interrupted_call(self) -> int:
        """The number of the system call that the CRS broke off with EINTR, or -1.

        It does so to calls that only the kernel's restart block could resume (poll, nanosleep, a
        timed futex, …), and epoll_wait ends so whenever its thread is stopped.
        """
        inside = self.orig_rax < 1 << 32
        return self.orig_rax if inside and self.rax == _WORD - _EINTR else -1


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError("a number has more than 64 bits")


def slice_of(data: bytes, at: int, length: int) -> bytes:
    if at + length > len(data):
        raise IndexError(f"{at + length - len(data)} bytes are missing")
    return data[at : at + length]


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message, by number (protobuf.dev: "Encoding")."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = varint(data, at)
            yield number, value
        elif wire == 2:
            length, at = varint(data, at)
            yield number, slice_of(data, at, length)
            at += length
        else:
            at += {1: 8, 5: 4}[wire]


def message(data: bytes, wanted: int) -> bytes:
    for number, value in fields(data):
        if number == wanted and isinstance(value, bytes):
            return value
    raise KeyError(wanted)


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Errors about an image name it. Raises StoreError."""
    try:
        yield
    except (KeyError, IndexError, struct.error, OSError) as error:
        raise StoreError(f"cannot read the image {path.name}: {error!r}") from None


def messages(path: Path) -> list[bytes]:
    """The content of an image after two magic numbers: messages, each after its length."""
    data, at, found = path.read_bytes(), 8, []
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        found.append(slice_of(data, at + 4, length))
        at += 4 + length
    return found


def _blocked(core: bytes) -> int:
    """A process's first thread has it in the process's part (criu: cr-dump.c, dump_one_thread)."""
    parts = {number: value for number, value in fields(core) if isinstance(value, bytes)}
    for part, field in ((_THREAD, _THREAD_BLOCKED), (_TASK, _TASK_BLOCKED)):
        value = dict(fields(parts.get(part, b""))).get(field)
        if isinstance(value, int):
            return value
    return 0


def read_threads(images: Path) -> tuple[CoreThread, ...]:
    """Every thread of every process in the image. Raises StoreError when one cannot be read."""
    found = []
    for path in sorted(images.glob("core-*.img")):
        with named(path):
            core = messages(path)[0]
            registers = message(message(core, _THREAD_INFO), _GPREGS)
            values = {n: v for n, v in fields(registers) if isinstance(v, int)}
            found.append(
                CoreThread(
                    tid=int(path.stem.removeprefix("core-")),
                    pc=values[_IP],
                    sp=values[_SP],
                    rax=values[_AX],
                    orig_rax=values[_ORIG_AX],
                    blocked=_blocked(core),
                )
            )
    return tuple(found)


def memory(images: Path) -> int:
    """Bytes of memory that are in the images and in what they build on. Raises StoreError."""
    total = 0
    for path in images.glob("pagemap-*.img"):
        with named(path):
            for entry in map(dict, map(fields, messages(path)[1:])):
                pages = entry.get(_PAGES, entry.get(_OLD_PAGES))
                total += _PAGE * pages if isinstance(pages, int) else 0
    return total


def require_open(images: Path, saved: Iterable[SavedFile]) -> None:
    """Raises StoreError unless the image has all of these open: no other file is ever put back."""
    wanted = {file.path for file in saved}
    strange = wanted - open_files(images) if wanted else wanted
    if strange:
        raise StoreError(
            f"the image has no {min(strange)} open, which the manifest would have put back",
            hint="it was tampered with; delete the checkpoint",
        )


def open_files(images: Path) -> frozenset[str]:
    """The paths of all regular files that are open or mapped in the images, for any purpose.

    Raises StoreError when that cannot be read.
    """
    found = set()
    path = images / "files.img"
    with named(path):
        for entry in messages(path):
            for number, value in fields(entry):
                if number == _REGULAR and isinstance(value, bytes):
                    found.add(os.fsdecode(message(value, _NAME)))
    return frozenset(found)
