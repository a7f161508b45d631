"""Clears what a killed CRIU leaves in the processes that it was dumping.

A CRIU that fails takes everything back itself, and one that was killed holds no process any more.
It leaves TCP connections in repair mode (tcp(7) does not have it; CRIU's soccr/), over which
nothing is sent any more; and in the process that CRIU's own code was in when it died, the SIGPIPE
that this code got for its last word to CRIU. Signals are blocked as long as it runs, so the process
gets that one when it is itself again, and dies of it, unless it blocks signals, as in a waitpoint.
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
_MOMENT = 10.0  # seconds; it takes CRIU's code some microseconds to go, if the machine lets it

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class _Signals:
    """Of one thread. pending: in its own queue."""

    blocked: int
    pending: int


class Before:
    """The processes of a job as they are before a dump. pid: of its first."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = _signals(pid)

    async def restore(self) -> None:
        """Clear what a killed CRIU has left; nothing to do if it was not killed."""
        with contextlib.suppress(DeadlineExpired):
            await Deadline(_MOMENT).until(lambda: not self._inhabited(), "CRIU's code to leave")
        for tid, now in _signals(self._pid).items():
            before = self._before.get(tid)
            if before is not None and now.pending & ~before.pending & _SIGPIPE:
                # Gone, or held by a debugger: that one sees the signal, and its user decides.
                with contextlib.suppress(OSError):
                    ptrace.drop_signal(tid, signal.SIGPIPE)
        for connection in _tcp_sockets(self._pid):
            with connection, contextlib.suppress(OSError):
                if connection.getsockopt(socket.IPPROTO_TCP, _TCP_REPAIR):
                    connection.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 0)

    def _inhabited(self) -> bool:
        """Is CRIU's code in one of them? It blocks every signal, which nothing else does: the C
        library keeps two for itself."""
        return any(
            now.blocked == _ALL and self._before.get(tid, now).blocked != _ALL
            for tid, now in _signals(self._pid).items()
        )


@contextlib.contextmanager
def forgetting_connections(pid: int) -> Iterator[None]:
    """The TCP connections of a job that is ended in the block are closed silently, as CRIU closes
    its own.

    Otherwise the kernel keeps an address for a minute (TIME_WAIT), and nothing can be restored
    there.
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
        return ()  # all over


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
    """Every one of the processes', as a descriptor of ours."""
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
