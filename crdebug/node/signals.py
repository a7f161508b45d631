"""Signals to threads and processes, and waiting for their end."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator

from crdebug.deadline import Deadline
from crdebug.node import proc

_libc = ctypes.CDLL(None, use_errno=True)
_TGKILL = 234  # x86-64


def tgkill(pid: int, tid: int, number: int) -> None:
    """Send a signal to one thread. Raises ProcessLookupError when it is gone."""
    if _libc.syscall(_TGKILL, pid, tid, number) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def kill(pid: int, start: int | None, number: int = signal.SIGKILL) -> None:
    """Send a signal to the process that has this PID and start (see proc.started), to no other."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            # The start is read after the descriptor is bound: it cannot be another process's.
            if start is None or proc.started(pid) == start:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


async def ended(pid: int, deadline: Deadline, what: str) -> None:
    """Wait until a process has ended; it need not be a child. Raises DeadlineExpired."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    loop.add_reader(descriptor, done.set)
    try:
        await deadline.wait(done.wait(), what)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # if it was a child of ours after all


def number_of(text: str) -> int:
    """A signal by number, or by name as in signal(7): "SIGTSTP", "SIGRTMIN+4", "SIGRTMAX-2".

    Raises ValueError.
    """
    name = text.upper()
    if name.isdigit():
        number = int(name)
    elif name.startswith(("SIGRTMIN", "SIGRTMAX")):
        number = int(signal.Signals[name[:8]]) + int(name[8:] or 0)
    else:
        try:
            number = int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
        except KeyError:
            raise ValueError(f"'{text}' is not a signal") from None
    if number not in signal.valid_signals():
        raise ValueError(f"'{text}' is not a signal that a program can use")
    return number


@contextlib.contextmanager
def children_come_to_us() -> Iterator[None]:
    """While this lasts, orphans among our descendants become our children (prctl(2),
    PR_SET_CHILD_SUBREAPER), so that PID 1 of a container is not left to a host's init that may
    never reap it."""
    _libc.prctl(36, 1, 0, 0, 0)
    try:
        yield
    finally:
        _libc.prctl(36, 0, 0, 0, 0)
