"""Data in a process's sockets and pipes that was sent and not yet received.

Only the kernel has such data: whoever takes processes back to an earlier state has to keep it, or
to do so only while there is none. The process must not be running; it does not notice the look.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import socket
import stat
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from crdebug.node import files_used

_libc = ctypes.CDLL(None, use_errno=True)
_PIDFD_GETFD = 438  # x86-64, since Linux 5.6
_FIONREAD, _SIOCOUTQ = 0x541B, 0x5411
_INTERNET = (socket.AF_INET, socket.AF_INET6)


@dataclass(frozen=True, slots=True)
class Channel:
    """A socket, or the reading end of a pipe. unread: bytes not yet received here.

    unsent: bytes that the other end has not received (a TCP peer: not acknowledged) yet.
    ends: of a TCP connection, the addresses here and there, as texts.
    datagrams: is it one for datagrams on this host, unix(7)?
    """

    descriptor: int
    name: str  # socket:[INODE], pipe:[INODE]
    unread: int
    unsent: int
    ends: tuple[str, str] | None = None
    datagrams: bool = False

    def __str__(self) -> str:
        parts = []
        if self.unread:
            parts.append(f"{self.unread} bytes to read")
        if self.unsent:
            parts.append(f"{self.unsent} bytes on their way")
        return f"file descriptor {self.descriptor} ({self.name}) has {' and '.join(parts)}"


def in_flight(pid: int) -> tuple[Channel, ...]:
    """The sockets and pipes of a process with data in flight, and all its TCP connections.

    Raises ProcessLookupError, PermissionError.
    """
    found = []
    pidfd = os.pidfd_open(pid)
    try:
        for number, name in _channels(pid):
            with (
                contextlib.suppress(FileNotFoundError, BlockingIOError),
                taken(pidfd, number) as own,
            ):
                channel = _look(own, number, name)
                if channel is not None and (channel.unread or channel.unsent or channel.ends):
                    found.append(channel)
    finally:
        os.close(pidfd)
    return tuple(found)


def flush_terminals(pid: int) -> None:
    """Make the kernel pass on all that was written to the pseudo-terminals whose masters a process
    has: if the process waits for it, it is awake when this returns.

    A worker of the kernel passes such data on, a little later; a poll of the master waits for that
    worker (n_tty_poll in Linux: drivers/tty/n_tty.c). Raises ProcessLookupError, PermissionError.
    """
    pidfd = os.pidfd_open(pid)
    try:
        for number, name in files_used.links(pid):
            if name == "/dev/ptmx" or name.endswith("/pts/ptmx"):
                with contextlib.suppress(FileNotFoundError), taken(pidfd, number) as own:
                    look = select.poll()
                    look.register(own, select.POLLIN)
                    look.poll(0)
    finally:
        os.close(pidfd)


def channels(pid: int) -> Mapping[int, str]:
    """The names of a process's sockets and pipes, by descriptor; both ends of a pipe share one."""
    return dict(_channels(pid))


def _channels(pid: int) -> Iterator[tuple[int, str]]:
    for number, name in files_used.links(pid):
        if name.startswith(("socket:", "pipe:")):
            yield number, name


@contextlib.contextmanager
def taken(pidfd: int, number: int) -> Iterator[int]:
    """The same open file of a process as a descriptor of ours (pidfd_getfd(2)). Raises
    FileNotFoundError if it is closed by now."""
    own = _libc.syscall(_PIDFD_GETFD, pidfd, number, 0)
    if own < 0:
        error = ctypes.get_errno()
        if error == 9:  # EBADF: closed
            raise FileNotFoundError(error, os.strerror(error))
        raise OSError(error, os.strerror(error))
    try:
        yield own
    finally:
        os.close(own)


def _look(own: int, number: int, name: str) -> Channel | None:
    if stat.S_ISFIFO(os.fstat(own).st_mode):
        writes_only = fcntl.fcntl(own, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
        return None if writes_only else Channel(number, name, _count(own, _FIONREAD), 0)
    unread, unsent = _count(own, _FIONREAD), _count(own, _SIOCOUTQ)
    channel = Channel(number, name, unread, unsent)
    copy = os.dup(own)
    try:
        found = socket.socket(fileno=copy)
    except OSError:  # of a family that Python cannot ask for an address (AF_XDP)
        os.close(copy)
        return channel
    with found:
        here = found.family == socket.AF_UNIX and found.type == socket.SOCK_DGRAM
        return replace(channel, ends=_ends(found), datagrams=here)


def _ends(found: socket.socket) -> tuple[str, str] | None:
    with contextlib.suppress(OSError):
        if found.type == socket.SOCK_STREAM and found.family in _INTERNET:
            here, there = found.getsockname(), found.getpeername()
            return _text(*here[:2]), _text(*there[:2])
    return None


def _text(address: str, port: int) -> str:
    return f"{address.removeprefix('::ffff:')} {port}"  # RFC 4291, 2.5.5.2


def _count(own: int, request: int) -> int:
    """0 if this kind of socket (a listening one, netlink) has no such count."""
    try:
        (value,) = struct.unpack("i", fcntl.ioctl(own, request, bytes(4)))
    except OSError:
        return 0
    return int(value)
