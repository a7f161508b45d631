"""The addresses of a process's sockets (/proc/net/tcp and its like, proc(5))."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crdebug.node import proc

_KINDS = ("tcp", "udp", "tcp6", "udp6")
_SOCKET = re.compile(r"socket:\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Port:
    """A local address that a socket is bound to. address: in the kernel's hexadecimal form.

    peer: the port number of the other end, 0 if there is none: the address is taken only for it.
    """

    kind: str
    address: str
    number: int
    peer: int

    def __str__(self) -> str:
        return f"{self.kind} port {self.number}"


def _all(pid: int) -> Iterator[tuple[int, Port]]:
    """Every socket in a process's network, by inode (0: no process has it any longer)."""
    for kind in _KINDS:
        try:
            lines = (proc.PROC / str(pid) / "net" / kind).read_text().splitlines()[1:]
        except FileNotFoundError:
            continue
        for line in lines:
            fields = line.split()
            address, _, port = fields[1].partition(":")
            peer = int(fields[2].partition(":")[2], 16)
            yield int(fields[9]), Port(kind, address, int(port, 16), peer)


def bound(pids: Iterable[int]) -> tuple[Port, ...]:
    """The addresses of these processes' sockets, each once."""
    inodes: set[int] = set()
    known: dict[int, Port] = {}
    for pid in pids:
        known = known or {inode: port for inode, port in _all(pid) if inode}
        for descriptor in proc.sockets(pid):
            match = _SOCKET.match(os.readlink(proc.PROC / str(pid) / "fd" / str(descriptor)))
            if match is not None:
                inodes.add(int(match[1]))
    found = {known[inode] for inode in inodes & known.keys()}
    return tuple(sorted(found, key=str))


def taken() -> frozenset[Port]:
    """Every address in use in our network."""
    return frozenset(port for _, port in _all(os.getpid()))
