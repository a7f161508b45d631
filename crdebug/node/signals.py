"""Send signals to threads and processes, and wait for their end."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput
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


_NAME = re.compile(r"(?:SIG)?(?:(RTMIN|RTMAX)([+-]\d+)?|([A-Z0-9]+))\Z", re.ASCII)
# Signals that a program cannot catch, that the kernel sends for its faults and children, that stop
# and continue it, and one for which GDB has no name.
_UNUSABLE = ("KILL", "STOP", "ILL", "TRAP", "ABRT", "BUS", "FPE", "SEGV", "SYS", "CHLD", "CONT")
_NOT_FOR_US = frozenset(getattr(signal, f"SIG{name}") for name in (*_UNUSABLE, "STKFLT"))


def number_of(text: str) -> int:
    """A signal by number, or by name as in signal(7): "SIGTSTP", "TSTP", "SIGRTMIN+4".

    Raises ValueError.
    """
    match = _NAME.match(text.upper())
    number = 0
    if text.isascii() and text.isdigit():
        number = int(text)
    elif match is not None and match[1]:
        number = int(signal.Signals[f"SIG{match[1]}"]) + int(match[2] or 0)
    elif match is not None:
        number = int(signal.Signals.__members__.get(f"SIG{match[3]}", 0))
    if number not in signal.valid_signals():
        raise ValueError(f"'{text}' is not a signal")
    return number


def name_of(number: int) -> str:
    """The name in signal(7); a real-time signal by its distance from the nearer end of the
    range."""
    first, last = int(signal.SIGRTMIN), int(signal.SIGRTMAX)
    if not first < number < last:
        return signal.Signals(number).name
    near_first = number - first <= last - number
    return f"SIGRTMIN+{number - first}" if near_first else f"SIGRTMAX-{last - number}"


def require_usable(number: int) -> None:
    """Raises BadInput for a signal that cannot lead threads into a waitpoint."""
    if number in _NOT_FOR_US or number not in signal.valid_signals():
        known = number in signal.valid_signals()
        raise BadInput(
            f"signal {name_of(number) if known else number} cannot be the waitpoint signal",
            hint="choose one that programs may catch, such as SIGRTMAX-2 or SIGTSTP",
        )
