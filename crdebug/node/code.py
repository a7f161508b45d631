"""Remove a dead debugger's breakpoints from a process.

A debugger writes a trap over the first byte of an instruction while its process runs, and removes
it when it detaches. If the debugger is killed, the traps stay, and a thread that reaches one dies
of SIGTRAP. Code is mapped from files, so we can read the original bytes there.

But programs change their code, too: UCX, for example, writes jumps into the C library's functions
for memory, and a byte of a jump's distance may well have a trap's value. A debugger changes nothing
but single bytes; so where other bytes nearby differ from the file as well, we change nothing.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from io import FileIO
from itertools import groupby

from crdebug.node import proc
from crdebug.node.leaderless import shared

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TRAP = 0xCC  # int3, x86-64
_LONGEST = 15  # bytes of an instruction, x86-64
# Bits of /proc/PID/pagemap (Linux: Documentation/admin-guide/mm/pagemap.rst)
_PRESENT, _SWAPPED, _OF_FILE = 1 << 63, 1 << 62, 1 << 61


def remove_breakpoints(pid: int) -> int:
    """Restore the files' bytes wherever a trap is left; returns the number of traps.

    The process must not be traced. Raises ProcessLookupError when it has ended.
    """
    found = 0
    for start, now, true in list(_own_code(pid)):
        for at in traps(now, true):
            proc.write_memory(pid, start + at, true[at : at + 1])
            found += 1
    return found


def traps(now: bytes, true: bytes) -> Iterator[int]:
    """Where a debugger has left traps in code. true: the same code in its file."""
    at = now.find(_TRAP)
    while at >= 0:
        near = slice(max(at - _LONGEST + 1, 0), at + _LONGEST)
        pairs = zip(now[near], true[near], strict=True)
        if true[at] != _TRAP and all(byte in (before, _TRAP) for byte, before in pairs):
            yield at
        at = now.find(_TRAP, at + 1)


def _own_code(pid: int) -> Iterator[tuple[int, bytes, bytes]]:
    """The pages of code that the process has written to: the address of each run of them, its
    content, and that of its file."""
    start, now, true = 0, b"", b""
    for mapping in proc.maps(pid):
        if "x" in mapping.access and "p" in mapping.access and mapping.path.startswith("/"):
            for address, own, in_file in _own_pages(pid, mapping):
                if address != start + len(now):
                    yield start, now, true
                    start, now, true = address, b"", b""
                now, true = now + own, true + in_file
    yield start, now, true


def _own_pages(pid: int, mapping: proc.Mapping) -> Iterator[tuple[int, bytes, bytes]]:
    """`_own_code` for one private file mapping."""
    spans = list(_own_spans(pid, mapping))
    if not spans:
        return
    with _file_of(pid, mapping) as file:
        if file is None:
            return
        for start, size in spans:
            own = proc.read_memory(pid, start, size)
            in_file = os.pread(file.fileno(), size, mapping.offset + start - mapping.start)
            yield start, own, in_file.ljust(size, b"\0")[: len(own)]


@contextlib.contextmanager
def _file_of(pid: int, mapping: proc.Mapping) -> Iterator[FileIO | None]:
    """A mapped file; None if its name is gone, or another file's by now, and only root could still
    open it."""
    file: FileIO | None = None
    try:
        # This name leads to the file even if its own name is gone (proc(5), map_files).
        file = FileIO(f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}")
    except PermissionError:
        with contextlib.suppress(FileNotFoundError):
            file = FileIO(proc.root(pid) / mapping.path[1:])
    with file or contextlib.nullcontext():
        same = file is not None and os.fstat(file.fileno()).st_ino == mapping.inode
        yield file if same else None


def _own_spans(pid: int, mapping: proc.Mapping) -> Iterator[tuple[int, int]]:
    """The address and size of each run of pages that the process has written to."""
    count = (mapping.end - mapping.start) // _PAGE
    data = _pagemap(pid, mapping.start // _PAGE * 8, count * 8)
    start = mapping.start
    for own, run in groupby(struct.iter_unpack("<Q", data), _is_own):
        size = sum(_PAGE for _ in run)
        if own:
            yield start, size
        start += size


@shared
def _pagemap(pid: int, offset: int, size: int) -> bytes:
    with open(proc.PROC / str(pid) / "pagemap", "rb", buffering=0) as pagemap:
        return os.pread(pagemap.fileno(), size, offset)


def _is_own(entry: tuple[int]) -> bool:
    return bool(entry[0] & (_PRESENT | _SWAPPED)) and not entry[0] & _OF_FILE
