"""Stopping a traced process by SIGSTOP, and seeing whether such a stop is still on its way.

SIGSTOP cannot be blocked, caught or waited for by the application (signal(7)), so that it stops a
process whose threads all block SIGINT, which is what GDB's own interrupt sends. It is sent to
one thread (tgkill(2)): then the kernel keeps at most one of them, and proc(5) shows it.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from typing import Protocol

_STOP_BIT = 1 << (signal.SIGSTOP - 1)
_libc = ctypes.CDLL(None, use_errno=True)


class StopSignals(Protocol):
    """The part of a node that a target needs to stop its rank."""

    def send_stop(self, pid: int) -> int | None:
        """Send SIGSTOP to one thread. Returns its LWP id, None if the process has gone."""
        ...

    def pending_stops(self, pid: int) -> tuple[int, ...]:
        """LWP ids of the threads for which a SIGSTOP is queued and not yet delivered."""
        ...


class LocalStopSignals:
    """StopSignals for processes of this machine."""

    def send_stop(self, pid: int) -> int | None:
        """Prefers the main thread, unless it has ended or sleeps uninterruptibly.

        Raises PermissionError for a process of somebody else's.
        """
        for thread in _stoppable(pid):
            if _libc.tgkill(pid, thread, signal.SIGSTOP) == 0:
                return thread
            error = ctypes.get_errno()
            if error == 1:  # EPERM
                raise PermissionError(error, os.strerror(error), f"process {pid}")
        return None

    def pending_stops(self, pid: int) -> tuple[int, ...]:
        found = []
        for thread in _threads(pid):
            fields = _status(pid, thread)
            if int(fields.get("SigPnd", "0"), 16) & _STOP_BIT:
                found.append(thread)
        return tuple(found)


def _threads(pid: int) -> list[int]:
    """The LWP ids, the main thread's first; empty if the process has gone."""
    try:
        return sorted(int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _stoppable(pid: int) -> list[int]:
    """Threads that will take a signal soon; those that may take long come last, dead ones not."""
    soon: list[int] = []
    late: list[int] = []
    for thread in sorted(_threads(pid), key=lambda thread: thread != pid):
        state = _status(pid, thread).get("State", "X")[:1]
        if state not in "ZX":
            (late if state == "D" else soon).append(thread)
    return soon + late


def _status(pid: int, thread: int) -> dict[str, str]:
    """proc(5), /proc/PID/task/TID/status; empty if the thread has gone."""
    try:
        text = Path(f"/proc/{pid}/task/{thread}/status").read_text(errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}
