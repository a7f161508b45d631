"""Holding a process for a moment, to change its memory and queue signals (ptrace(2)).

Every thread is stopped between two of its own instructions, and none executes one before the
changes are complete: what is queued meanwhile is what each of them sees first.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

from crdebug.node import proc

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long
_DETACH, _SEIZE, _INTERRUPT = 17, 0x4206, 0x4207
_WALL = 0x40000000


def _ptrace(request: int, tid: int, data: int = 0) -> None:
    if _libc.ptrace(request, tid, None, data) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


@contextlib.contextmanager
def held(pid: int) -> Iterator[None]:
    """Hold all threads of a process while the block runs.

    Raises ProcessLookupError when it is gone, PermissionError when something else traces it.
    Short blocks only: it must be entered and left in one thread of ours.
    """
    seized: dict[int, int] = {}  # TID -> signal that it stopped for, to be passed on
    try:
        while True:
            # A thread not yet stopped may start another: until all that there are were seen.
            new = [tid for tid in proc.tids(pid) if tid not in seized]
            if not new:
                break
            for tid in new:
                with contextlib.suppress(ProcessLookupError):
                    _ptrace(_SEIZE, tid)
                    seized[tid] = 0
                    _ptrace(_INTERRUPT, tid)
                    _, status = os.waitpid(tid, _WALL)
                    stop_event = status >> 16
                    if os.WIFSTOPPED(status) and stop_event == 0:
                        seized[tid] = os.WSTOPSIG(status)
        yield
    finally:
        for tid, number in seized.items():
            with contextlib.suppress(ProcessLookupError):
                _ptrace(_DETACH, tid, number)
