"""Send signals to threads and processes, and wait for their end."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence

from crdebug.base.deadline import Deadline
from crdebug.node import proc

_libc = ctypes.CDLL(None, use_errno=True)
STOP, CONT = int(signal.SIGSTOP), int(signal.SIGCONT)
_TGKILL = 234  # x86-64


def tgkill(pid: int, tid: int, number: int) -> None:
    """Send a signal to one thread. Raises ProcessLookupError when it is gone."""
    if _libc.syscall(_TGKILL, pid, tid, number) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def kill(pid: int, start: int | None, number: int = signal.SIGKILL) -> None:
    """Send a signal only to the process with this PID and start (see proc.started)."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            # The start is read after the descriptor is bound: it cannot be another process's.
            if start is None or proc.started(pid) == start:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def kill_all(pids: Iterable[int], number: int) -> None:
    """`kill` each of these processes that exists."""
    for pid in pids:
        kill(pid, None, number)


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
        os.waitpid(pid, os.WNOHANG)  # it may have been a child of ours


@contextlib.contextmanager
def listening(numbers: Sequence[int], then: Callable[[], object]) -> Iterator[None]:
    """While the block runs, call `then` on the event loop when this process gets such a signal."""
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, then)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
