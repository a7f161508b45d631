"""crdebug.h for Python: the shim's struct in a rank's memory.

gdbscripts/wire.py has the part of it that other debuggers' GDBs need, too. SHIM_ABI must equal
CRDEBUG_ABI; `Shim.parse` refuses any other, and a test compares the offsets with the compiler's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crdebug.base.errors import NotAvailable
from crdebug.gdbscripts.wire import (
    ASKED,
    ASKER_OFFSET,
    BLOCKED,
    CRS_STATE_OFFSET,
    DEFAULT_SIGNAL,
    EXEMPT,
    HELD_SHIFT,
    NO_CALL,
    SHIM_ABI,
    SHIM_HEADER,
    SHIM_THREAD,
    UNKNOWN_CALL,
)

__all__ = (
    "ASKED",
    "ASKER_OFFSET",
    "BLOCKED",
    "CRS_CONTINUE",
    "CRS_RESTART",
    "CRS_STATE_OFFSET",
    "DEFAULT_SIGNAL",
    "EXEMPT",
    "HEADER_SIZE",
    "HELD_SHIFT",
    "MAX_THREADS",
    "NO_CALL",
    "SHIM_ABI",
    "SIZE",
    "UNKNOWN_CALL",
    "Shim",
    "ThreadEntry",
    "call_offset",
    "pack_threads",
    "unpack_threads",
)

MAX_THREADS = 2048
CRS_CONTINUE, CRS_RESTART = 1, 2
HEADER_SIZE = SHIM_HEADER.size
SIZE = SHIM_HEADER.size + MAX_THREADS * SHIM_THREAD.size


@dataclass(frozen=True, slots=True)
class ThreadEntry:
    """A thread to herd. tid: in the job's namespace. syscall: NO_CALL if it is in none,
    UNKNOWN_CALL if it may have run since we looked: the handler finds the call by the code.

    flags: EXEMPT, BLOCKED, ASKED, and a signal's number from bit HELD_SHIFT. inside: it is in the
    waitpoint.
    """

    tid: int
    syscall: int = NO_CALL
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
        abi, size, rank, signal, waiting, clash, crs_state, asker = SHIM_HEADER.unpack_from(data)
        if abi != SHIM_ABI or size < SIZE:
            raise NotAvailable(
                f"the rank's shim has ABI version {abi}, this crdebug knows {SHIM_ABI}",
                hint="use the crdebug that started the job",
            )
        return cls(rank, signal, waiting, bool(clash), crs_state, asker)


def call_offset(number: int) -> int:
    """The offset of the system call in an entry of the table, from the beginning of the struct."""
    return HEADER_SIZE + number * SHIM_THREAD.size + 4


def pack_threads(entries: Iterable[ThreadEntry]) -> bytes:
    """The table of threads, with its end mark. Raises NotAvailable when there are too many."""
    packed = [SHIM_THREAD.pack(e.tid, e.syscall, e.flags, e.inside) for e in entries]
    if len(packed) > MAX_THREADS - 1:
        raise NotAvailable(f"{len(packed)} threads are more than the shim's table holds")
    return b"".join(packed) + bytes(SHIM_THREAD.size)


def unpack_threads(data: bytes) -> tuple[ThreadEntry, ...]:
    found = []
    for tid, syscall, flags, inside in SHIM_THREAD.iter_unpack(
        data[: MAX_THREADS * SHIM_THREAD.size]
    ):
        if tid == 0:
            break
        found.append(ThreadEntry(tid, syscall, flags, bool(inside)))
    return tuple(found)
