"""What waits in the sockets of stopped processes: looked at; in TCP dropped, and sent again.

A process does not notice any of it: it goes by duplicates of its descriptors (pidfd_getfd(2)).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Iterator

from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused
from crdebug.node.in_flight import taken

_PIECE = 1 << 16
_SO_PEEK_OFF = 42  # of socket(7), which Python does not name
_SENDING = 5.0  # seconds


def peek(pid: int, descriptor: int, size: int) -> bytes:
    """The next bytes that the process will receive there. Raises ProcessLookupError, Refused if the
    kernel does not show all of them."""
    with _connection(pid, descriptor) as own:
        data = own.recv(size, socket.MSG_PEEK | socket.MSG_DONTWAIT) if size else b""
    if len(data) != size:
        raise Refused(f"only {len(data)} of {size} bytes on their way can be read")
    return data


def datagrams(pid: int, descriptor: int) -> tuple[bytes, ...]:
    """All that wait in a socket of unix(7). Raises ProcessLookupError."""
    found = []
    with _connection(pid, descriptor) as own:
        before = own.getsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF)
        own.setsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF, 0)
        try:
            with contextlib.suppress(BlockingIOError):
                while True:
                    found.append(own.recv(_PIECE, socket.MSG_PEEK | socket.MSG_DONTWAIT))
                    if not found[-1]:
                        break  # an empty one is looked at again and again
        finally:
            own.setsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF, before)
    return tuple(found)


def drop(pid: int, descriptor: int) -> None:
    """Receive everything that is there, in place of the process. Raises ProcessLookupError."""
    with _connection(pid, descriptor) as own, contextlib.suppress(BlockingIOError):
        while own.recv(_PIECE, socket.MSG_DONTWAIT):
            pass


def send(pid: int, descriptor: int, data: bytes) -> None:
    """Send this in place of the process. Raises ProcessLookupError, Refused if the other end does
    not take it."""
    limit = Deadline(_SENDING)
    with _connection(pid, descriptor) as own:
        while data:
            with contextlib.suppress(BlockingIOError):
                data = data[own.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) :]
                continue
            ready = select.poll()
            ready.register(own, select.POLLOUT)
            if not ready.poll(1000 * limit.left) or not limit.left:
                raise Refused(f"{len(data)} bytes cannot be sent again")


@contextlib.contextmanager
def _connection(pid: int, descriptor: int) -> Iterator[socket.socket]:
    pidfd = os.pidfd_open(pid)
    try:
        with taken(pidfd, descriptor) as own, socket.socket(fileno=os.dup(own)) as connection:
            yield connection
    finally:
        os.close(pidfd)
