"""Remove a dead debugger's breakpoints from a process.

A debugger writes a trap over the first byte of an instruction while its process runs, and removes
it when it detaches. If the debugger is killed, the traps stay, and a thread that reaches one dies
of SIGTRAP. Code is mapped from files, so we can read the original bytes there.
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
    """Restore the files' bytes wherever a trap is left; returns the number of traps.

    The process must not be traced. Raises ProcessLookupError when it has ended.
    """
    found = 0
    for mapping in proc.maps(pid):
        if "x" in mapping.access and "p" in mapping.access and mapping.path.startswith("/"):
            for address, byte in list(_traps(pid, mapping)):
                proc.write_memory(pid, address, bytes([byte]))
                found += 1
    return found


def _traps(pid: int, mapping: proc.Mapping) -> Iterator[tuple[int, int]]:
    """The addresses of traps that are not in the file, with the file's byte there."""
    pages = list(_own_pages(pid, mapping))
    if not pages:
        return
    # This name leads to the file even if its own name is gone (proc(5), map_files).
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
    """The pages of a private file mapping that the process has written to."""
    count = (mapping.end - mapping.start) // _PAGE
    with open(proc.PROC / str(pid) / "pagemap", "rb", buffering=0) as pagemap:
        data = os.pread(pagemap.fileno(), count * 8, mapping.start // _PAGE * 8)
    for number, (entry,) in enumerate(struct.iter_unpack("<Q", data)):
        if entry & (_PRESENT | _SWAPPED) and not entry & _OF_FILE:
            yield mapping.start + number * _PAGE
