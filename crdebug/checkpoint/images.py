"""What the CRS's images say about the threads and the memory in them.

CRIU writes one `core-TID.img` for each thread: two magic numbers, a length, and a protobuf message
(criu: images/core.proto, images/core-x86.proto). Only the registers are read here. And one
`pagemap-ID.img` for each address space or shared memory: a head, then an entry for each run of
pages, wherever they are kept (images/pagemap.proto).
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crdebug.errors import StoreError

_EINTR = 4
_WORD = 1 << 64
# Field numbers: CoreEntry.thread_info, ThreadInfoX86.gpregs, UserX86RegsEntry.*
_THREAD_INFO, _GPREGS, _AX, _ORIG_AX, _IP, _SP = 2, 2, 11, 16, 17, 20
# Of PagemapEntry; the older field has 32 bits, and one of them is there.
_OLD_PAGES, _PAGES = 2, 5
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class CoreThread:
    """A thread's registers in an image. tid: in the job's PID namespace."""

    tid: int
    pc: int
    sp: int
    rax: int
    orig_rax: int

    @property
    def interrupted_call(self) -> int:
        """The number of the system call that the CRS broke off with EINTR, or -1.

        It does so to the calls that only the kernel's restart block could take up again (poll,
        nanosleep, a timed futex, …), and epoll_wait ends so whenever its thread is stopped.
        """
        inside = self.orig_rax < 1 << 32
        return self.orig_rax if inside and self.rax == _WORD - _EINTR else -1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _slice(data: bytes, at: int, length: int) -> bytes:
    if at + length > len(data):
        raise IndexError(f"{at + length - len(data)} bytes are missing")
    return data[at : at + length]


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message, by number (protobuf.dev: "Encoding")."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire == 2:
            length, at = _varint(data, at)
            yield number, _slice(data, at, length)
            at += length
        else:
            at += {1: 8, 5: 4}[wire]


def _message(data: bytes, wanted: int) -> bytes:
    for number, value in _fields(data):
        if number == wanted and isinstance(value, bytes):
            return value
    raise KeyError(wanted)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """What is wrong with an image is said with its name. Raises StoreError."""
    try:
        yield
    except (KeyError, IndexError, struct.error, OSError) as error:
        raise StoreError(f"cannot read the image {path.name}: {error!r}") from None


def _messages(path: Path) -> list[bytes]:
    """What an image holds behind two magic numbers: messages, each behind its length."""
    data, at, found = path.read_bytes(), 8, []
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        found.append(_slice(data, at + 4, length))
        at += 4 + length
    return found


def read_threads(images: Path) -> tuple[CoreThread, ...]:
    """Every thread of every process in the image. Raises StoreError when one cannot be read."""
    found = []
    for path in sorted(images.glob("core-*.img")):
        with _named(path):
            registers = _message(_message(_messages(path)[0], _THREAD_INFO), _GPREGS)
            values = {n: v for n, v in _fields(registers) if isinstance(v, int)}
            found.append(
                CoreThread(
                    tid=int(path.stem.removeprefix("core-")),
                    pc=values[_IP],
                    sp=values[_SP],
                    rax=values[_AX],
                    orig_rax=values[_ORIG_AX],
                )
            )
    return tuple(found)


def memory(images: Path) -> int:
    """Bytes of memory that are in the images and in what they build on. Raises StoreError."""
    total = 0
    for path in images.glob("pagemap-*.img"):
        with _named(path):
            for entry in map(dict, map(_fields, _messages(path)[1:])):
                pages = entry.get(_PAGES, entry.get(_OLD_PAGES))
                total += _PAGE * pages if isinstance(pages, int) else 0
    return total
