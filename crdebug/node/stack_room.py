"""Is there room on a thread's stack for a signal handler?

Where the kernel cannot write the handler's frame, it ends the process by SIGSEGV (signal(7)): so a
waitpoint signal would end a rank whose stack has overflown.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator, Sequence

from crdebug.node import proc
from crdebug.node.proc import Mapping

Range = tuple[int, int]  # of addresses, the second one outside
_RED_ZONE = 128  # bytes below the stack pointer that belong to the function (System V ABI, x86-64)
_HANDLER = 2048  # what our handler needs itself
_FRAMES = 2  # the signal may come once more, in the waitpoint
# Between the main thread's stack and what lies below it (stack_guard_gap in mm/mmap.c).
_GAP = 256 * 4096
_AT_MINSIGSTKSZ = 51  # the size of a frame, with the processor's registers (getauxval(3))
_USUAL_FRAME = 2048  # of a kernel older than 5.14, which does not tell; MINSIGSTKSZ


def threads_without_room(pid: int) -> tuple[proc.Thread, ...]:
    """The threads at whose stack pointer no handler can begin. Only of threads that stand still is
    the stack pointer known; all others are taken to have room."""
    room = writable(proc.maps(pid), _stack_limit(pid))
    needed = _RED_ZONE + _FRAMES * _frame_size(pid) + _HANDLER

    def lacks(thread: proc.Thread) -> bool:
        pointer = _stack_pointer(pid, thread.tid)
        return pointer is not None and not has_room(room, pointer, needed)

    return tuple(filter(lacks, proc.threads(pid)))


def has_room(room: Sequence[Range], pointer: int, needed: int) -> bool:
    """Can the `needed` bytes below the stack pointer be written?"""
    return any(begin <= pointer - needed and pointer <= end for begin, end in room)


def writable(mappings: Sequence[Mapping], limit: int | None) -> tuple[Range, ...]:
    """What of a process's memory can be written, or grow until it can; neighbours are one.

    mappings: all of them, by address. limit: how large the main thread's stack may become, in
    bytes; None: as large as there is room. Only that one grows ("[stack]").
    """
    return tuple(_writable(mappings, limit))


def _writable(mappings: Sequence[Mapping], limit: int | None) -> Iterator[Range]:
    first, end = 0, 0
    below = 0  # where the mapping before ends, if it may be accessed
    for each in mappings:
        start = each.start
        if each.path == "[stack]":
            start = min(start, max(below + _GAP, each.end - (limit or each.end)))
        below = each.end if each.access[:3] != "---" else below
        if "w" not in each.access:
            continue
        if start > end:
            yield first, end
            first = start
        end = each.end
    yield first, end


def _stack_limit(pid: int) -> int | None:
    told = (proc.PROC / str(pid) / "limits").read_text()
    soft = re.search(r"^Max stack size +(\d+)", told, re.MULTILINE)
    return int(soft[1]) if soft else None


def _frame_size(pid: int) -> int:
    with contextlib.suppress(OSError):
        words = struct.iter_unpack("QQ", (proc.PROC / str(pid) / "auxv").read_bytes())
        for key, value in words:
            if key == _AT_MINSIGSTKSZ:
                return int(value)
    return _USUAL_FRAME


def _stack_pointer(pid: int, tid: int) -> int | None:
    """Of a thread that stands still: /proc/PID/task/TID/syscall (proc(5)) ends with the stack and
    the instruction pointer."""
    try:
        words = (proc.PROC / str(pid) / "task" / str(tid) / "syscall").read_text().split()
    except OSError:  # gone, or not for us to see
        return None
    return int(words[-2], 16) if len(words) > 2 else None
