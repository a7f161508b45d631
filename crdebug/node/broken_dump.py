"""Clean up the processes that a CRIU was dumping when it was killed.

A CRIU that fails undoes everything itself; one that is killed at least holds no process any longer.
But it leaves TCP connections in repair mode (not in tcp(7); see CRIU's soccr/), in which they send
no data. And if CRIU's own code was inside a process at that time, that process has a SIGPIPE, which
this code got for its last message to CRIU. CRIU's code blocks signals, so the process gets the
SIGPIPE when it runs its own code again, and dies, unless it blocks signals, as in a waitpoint.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from crdebug.base.deadline import Deadline
from crdebug.base.errors import DeadlineExpired
from crdebug.node import proc, process_tree, ptrace

_TCP_REPAIR = 19  # <linux/tcp.h>
_PIDFD_GETFD = 438  # <asm/unistd.h>
_ALL = (1 << 64) - 1 & ~(1 << signal.SIGKILL - 1) & ~(1 << signal.SIGSTOP - 1)
_SIGPIPE = 1 << signal.SIGPIPE - 1
_MOMENT = 10.0  # seconds; CRIU's code needs some microseconds to leave, if it gets a processor

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class _Signals:
    """The signals of one thread. pending: in its own queue."""

    blocked: int
    pending: int


class Before:
    """The state of a job's processes before a dump. pid: of its first process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = _signals(pid)

    async def restore(self) -> None:
        """Clean up after a CRIU; changes nothing if it was not killed."""
        with contextlib.suppress(DeadlineExpired):
            await Deadline(_MOMENT).until(lambda: not self._inhabited(), "CRIU's code to leave")
        for tid, now in _signals(self._pid).items():
            before = self._before.get(tid)
            if before is not None and now.pending & ~before.pending & _SIGPIPE:
                # Gone, or held by a debugger: the debugger sees the signal, and its user decides.
                with contextlib.suppress(OSError):
                    ptrace.drop_signal(tid, signal.SIGPIPE)
        for connection in _tcp_sockets(self._pid):
            with connection, contextlib.suppress(OSError):
                if connection.getsockopt(socket.IPPROTO_TCP, _TCP_REPAIR):
                    connection.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 0)

    def _inhabited(self) -> bool:
        """Is CRIU's code in one of them? Only that blocks every signal: the C library keeps two for
        itself."""
        return any(
            now.blocked == _ALL and self._before.get(tid, now).blocked != _ALL
            for tid, now in _signals(self._pid).items()
        )


@contextlib.contextmanager
def forgetting_connections(pid: int) -> Iterator[None]:
    """If the job ends inside the block, its TCP connections close silently, as CRIU closes its own.

    Otherwise the kernel keeps their addresses for a minute (TIME_WAIT), and CRIU cannot restore
    them.
    """
    with contextlib.ExitStack() as stack:
        for connection in _tcp_sockets(pid):
            stack.enter_context(connection)
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
        yield


def _processes(pid: int) -> tuple[int, ...]:
    try:
        return process_tree.of_job(pid)
    except OSError:
        return ()  # the job has ended


def _signals(pid: int) -> Mapping[int, _Signals]:
    """By TID."""
    found = {}
    for process in _processes(pid):
        with contextlib.suppress(OSError):
            for tid in proc.tids(process):
                fields = proc.status(process, tid)
                found[tid] = _Signals(int(fields["SigBlk"], 16), int(fields["SigPnd"], 16))
    return found


def _tcp_sockets(pid: int) -> Iterator[socket.socket]:
    """Every TCP socket of the processes, as a descriptor of ours."""
    for process in _processes(pid):
        try:
            handle = os.pidfd_open(process)
        except OSError:
            continue
        try:
            for descriptor in proc.sockets(process):
                ours = _libc.syscall(_PIDFD_GETFD, handle, descriptor, 0)
                if ours < 0:
                    continue
                found = socket.socket(fileno=ours)
                if found.family in (socket.AF_INET, socket.AF_INET6) and (
                    found.type == socket.SOCK_STREAM
                ):
                    yield found
                else:
                    found.close()
        finally:
            os.close(handle)
