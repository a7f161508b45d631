"""Who are the ranks? Read from a starter's MPIR symbols.

"The MPIR Process Acquisition Interface", version 1.0 (MPI Forum, 2010), sections 6 and 9. The
symbols are read from the starter's memory, which needs neither its cooperation nor a debugger.
"""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import dataclass, replace

from crdebug.acquire.symbols import find_symbols
from crdebug.base.errors import NotAvailable
from crdebug.node import proc

# MPIR_PROCDESC: char *host_name; char *executable_name; int pid; padded to 24 bytes.
_ENTRY = struct.Struct("<QQi4x")
_INNER = struct.Struct("<iI")  # struct rank of starter.c
_NAMES = ("MPIR_proctable", "MPIR_proctable_size", "crdebug_ranks")
_LONGEST = 4096
# A table is somebody else's memory, and may say anything: no machine has so many processes, and the
# names in it take so many bytes at most.
_MOST_RANKS = 1 << 17
_MOST_TEXT = 64 << 20


@dataclass(frozen=True, slots=True)
class ProcDesc:
    """An entry of the process table; its place in the table is the rank in MPI_COMM_WORLD.

    pid: as this machine's processes are numbered here, outside any container.
    """

    rank: int
    host: str
    executable: str
    pid: int


@dataclass(frozen=True, slots=True)
class Table:
    """A process table and where it is.

    address: of the first entry in the starter.  inner: the PIDs in the starter's own PID
    namespace, empty for a starter that is not ours.
    """

    entries: tuple[ProcDesc, ...]
    address: int
    inner: tuple[int, ...]


def _text(pid: int, address: int) -> str:
    data = b""
    while b"\0" not in data and len(data) < _LONGEST:
        # Up to the page's end: the next page may not be mapped.
        at = address + len(data)
        data += proc.read_memory(pid, at, 4096 - at % 4096) or b"\0"
    return data.partition(b"\0")[0].decode(errors="replace")


def _integer(pid: int, address: int) -> int:
    return int.from_bytes(proc.read_memory(pid, address, 4), "little", signed=True)


def is_here(host: str) -> bool:
    """Is it this machine, by the name that a launcher has for it?

    Names without a domain stand for any domain. Not to be asked of a starter in a container: that
    may have been brought back from another machine, whose name its table then has.
    """
    own = os.uname().nodename
    if host in ("localhost", "127.0.0.1", own):
        return True
    same = host.partition(".")[0] == own.partition(".")[0]
    return same and not ("." in host and "." in own)


def is_starter(pid: int) -> bool:
    """Has the process the symbols of an MPIR starter, and a table of ranks?

    Open MPI 4.1 has the symbols in a library that its ranks load too.
    """
    try:
        read_table(pid)
    except (NotAvailable, OSError):
        return False
    return True


def read_table(pid: int) -> Table:
    """The process table of a starter, with PIDs as the starter sees them.

    Raises NotAvailable when there is none (yet), ProcessLookupError when the starter is gone.
    """
    symbols = find_symbols(pid, _NAMES)
    if not {"MPIR_proctable", "MPIR_proctable_size"} <= symbols.keys():
        raise NotAvailable(
            f"process {pid} is not an MPIR starter: it has no MPIR_proctable",
            hint="name the launcher (mpirun), or a job of 'crdebug jobs'",
        )
    size = _integer(pid, symbols["MPIR_proctable_size"])
    pointer = int.from_bytes(proc.read_memory(pid, symbols["MPIR_proctable"], 8), "little")
    if size > _MOST_RANKS:
        raise _damaged(pid, f"{size} entries")
    if size <= 0 or pointer == 0:
        raise NotAvailable(
            f"the process table of process {pid} is empty",
            hint="its ranks are not started yet; try again",
        )
    data = proc.read_memory(pid, pointer, size * _ENTRY.size)
    entries, told = [], 0
    for rank, (host, executable, rank_pid) in enumerate(_ENTRY.iter_unpack(data)):
        entry = ProcDesc(rank, _text(pid, host), _text(pid, executable), rank_pid)
        told += len(entry.host) + len(entry.executable)
        if rank_pid <= 0 or told > _MOST_TEXT:
            what = f"process {rank_pid} as rank {rank}" if rank_pid <= 0 else "names without an end"
            raise _damaged(pid, what)
        entries.append(entry)
    inner: tuple[int, ...] = ()
    if "crdebug_ranks" in symbols:
        ranks = int.from_bytes(proc.read_memory(pid, symbols["crdebug_ranks"], 8), "little")
        pairs = _INNER.iter_unpack(proc.read_memory(pid, ranks, size * _INNER.size))
        inner = tuple(inner_pid for inner_pid, _ in pairs)
    return Table(tuple(entries), pointer, inner)


def _damaged(pid: int, what: str) -> NotAvailable:
    return NotAvailable(
        f"the process table of process {pid} cannot be right: it has {what}",
        hint="name one of the ranks instead",
    )


def acquire(pid: int) -> tuple[ProcDesc, ...]:
    """The process table of a starter, with PIDs as numbered here; ranks that have ended are left
    out. About those on other machines only the table is known.

    A starter in a PID namespace of its own knows the PIDs there; they are translated. The table of
    our own starter is corrected too, so that any MPIR tool outside reads PIDs that it can use.

    Raises NotAvailable when the table is missing, or all of its ranks have ended.
    """
    return acquire_of(pid)[0]


def acquire_of(pid: int) -> tuple[tuple[ProcDesc, ...], int]:
    """`acquire`, and how many ranks the job has."""
    table = read_table(pid)
    inner: tuple[int, ...] = ()
    if proc.namespace(pid, "pid") != proc.namespace(os.getpid(), "pid"):
        inner = table.inner or tuple(entry.pid for entry in table.entries)
    entries = table.entries
    if inner:
        entries = _translated(pid, entries, inner)
        if table.inner:
            _correct(pid, table.address, entries)
    alive = tuple(
        entry
        for entry in entries
        if (not inner and not is_here(entry.host)) or proc.is_alive(entry.pid)
    )
    if not alive:
        raise NotAvailable("all ranks have ended already")
    return alive, len(table.entries)


def _translated(
    pid: int, entries: tuple[ProcDesc, ...], inner: tuple[int, ...]
) -> tuple[ProcDesc, ...]:
    outside: dict[int, int] = {}
    for each in proc.processes_in_namespace_of(pid):
        with contextlib.suppress(ProcessLookupError):
            outside[proc.inner_pid(each)] = each
    return tuple(
        replace(entry, pid=outside[inside])
        for entry, inside in zip(entries, inner, strict=True)
        if inside in outside
    )


def _correct(pid: int, address: int, entries: tuple[ProcDesc, ...]) -> None:
    for entry in entries:
        at = address + entry.rank * _ENTRY.size + 16
        proc.write_memory(pid, at, entry.pid.to_bytes(4, "little"))
