"""Taking a dead debugger's breakpoints out of a process.

A debugger writes a trap over the first byte of an instruction while its process runs, and takes it
out again when it lets go. One that is killed does not: the traps stay, and a thread that reaches
one dies of SIGTRAP. Code is mapped from files, so what belongs there can be read from them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from crdebug.node import proc

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TRAP = 0xCC  # int3, x86-64
# Bits of /proc/PID/pagemap (Linux: Documentation/admin-guide/mm/pagemap.rst)
_PRESENT, _SWAPPED, _OF_FILE = 1 << 63, 1 << 62, 1 << 61


def remove_breakpoints(pid: int) -> int:
    """Put back what the files have wherever a trap was left; returns how many there were.

    For a process that nothing traces. Raises ProcessLookupError when it is gone.
    """
    found = 0
    for mapping in proc.maps(pid):
        if "x" in mapping.access and "p" in mapping.access and mapping.path.startswith("/"):
            for address, byte in list(_traps(pid, mapping)):
                proc.write_memory(pid, address, bytes([byte]))
                found += 1
    return found


def _traps(pid: int, mapping: proc.Mapping) -> Iterator[tuple[int, int]]:
    """The addresses of traps that the file does not have, with what it has there."""
    pages = list(_own_pages(pid, mapping))
    if not pages:
        return
    # This name leads to the file whatever became of its own (proc(5), map_files).
    name = f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}"
    with open(name, "rb", buffering=0) as file:
        for address in pages:
            now = proc.read_memory(pid, address, _PAGE)
            offset = mapping.offset + address - mapping.start
            true = os.pread(file.fileno(), _PAGE, offset).ljust(_PAGE, b"\0")
            at = now.find(_TRAP)
            while at >= 0:
                if true[at] != _TRAP:
                    yield address + at, true[at]
                at = now.find(_TRAP, at + 1)


def _own_pages(pid: int, mapping: proc.Mapping) -> Iterator[int]:
    """The pages of a private mapping of a file that are not the file's any more."""
    count = (mapping.end - mapping.start) // _PAGE
    with open(proc.PROC / str(pid) / "pagemap", "rb", buffering=0) as pagemap:
        data = os.pread(pagemap.fileno(), count * 8, mapping.start // _PAGE * 8)
    for number, (entry,) in enumerate(struct.iter_unpack("<Q", data)):
        if entry & (_PRESENT | _SWAPPED) and not entry & _OF_FILE:
            yield mapping.start + number * _PAGE
