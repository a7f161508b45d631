"""crdebug.h for Python: the shim's struct in a rank's memory.

ABI must equal CRDEBUG_ABI; `Shim.parse` refuses any other, and a test compares the offsets with
the compiler's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from crdebug.base.errors import NotAvailable

ABI = 2
MAX_THREADS = 2048
DEFAULT_SIGNAL = 62
CRS_CONTINUE, CRS_RESTART = 1, 2
EXEMPT, BLOCKED, ASKED = 1, 2, 4
HELD_SHIFT = 8

_HEADER = struct.Struct("<IIiiIIiI")
_THREAD = struct.Struct("<iiII")
HEADER_SIZE = _HEADER.size
SIZE = _HEADER.size + MAX_THREADS * _THREAD.size
CRS_STATE_OFFSET = 24
ASKER_OFFSET = 28


@dataclass(frozen=True, slots=True)
class ThreadEntry:
    """A thread that is to be herded. tid: in the job's namespace. syscall: -1 if in none.

    flags: EXEMPT, BLOCKED, ASKED, and a signal's number from bit HELD_SHIFT. inside: it is in the
    waitpoint.
    """

    tid: int
    syscall: int = -1
    flags: int = 0
    inside: bool = False


@dataclass(frozen=True, slots=True)
class Shim:
    """The header of struct crdebug_shim."""

    rank: int
    signal: int
    waiting: int
    clash: bool
    crs_state: int
    asker: int

    @classmethod
    def parse(cls, data: bytes) -> Shim:
        abi, size, rank, signal, waiting, clash, crs_state, asker = _HEADER.unpack_from(data)
        if abi != ABI or size < SIZE:
            raise NotAvailable(
                f"the rank's shim has ABI version {abi}, this crdebug knows {ABI}",
                hint="use the crdebug that started the job",
            )
        return cls(rank, signal, waiting, bool(clash), crs_state, asker)


def pack_threads(entries: Iterable[ThreadEntry]) -> bytes:
    """The table of threads, with its end mark. Raises NotAvailable when there are too many."""
    packed = [_THREAD.pack(e.tid, e.syscall, e.flags, e.inside) for e in entries]
    if len(packed) > MAX_THREADS - 1:
        raise NotAvailable(f"{len(packed)} threads are more than the shim's table holds")
    return b"".join(packed) + bytes(_THREAD.size)


def unpack_threads(data: bytes) -> tuple[ThreadEntry, ...]:
    found = []
    for tid, syscall, flags, inside in _THREAD.iter_unpack(data[: MAX_THREADS * _THREAD.size]):
        if tid == 0:
            break
        found.append(ThreadEntry(tid, syscall, flags, bool(inside)))
    return tuple(found)
