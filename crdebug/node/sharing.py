"""Memory that processes share: which of their mappings are the same."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from crdebug.node import proc

_LINE = re.compile(r"^(\w+)-(\w+) .(.).s (\w+) (\S+) (\d+) *(.*)$", re.M)


@dataclass(frozen=True, slots=True)
class SharedMapping:
    """A shared mapping of one process. identity: equal for all processes that map the same part of
    the same file, whatever the file's name."""

    start: int
    end: int
    writable: bool
    identity: tuple[str, int, int, int]  # device, inode, offset, size
    path: str

    @property
    def file(self) -> tuple[str, int]:
        return self.identity[:2]

    def place(self, address: int) -> tuple[tuple[str, int], int]:
        """The file of an address, and its offset there."""
        return self.file, self.identity[2] + address - self.start

    def address(self, place: tuple[tuple[str, int], int]) -> int | None:
        """The address of a place in this mapping; None if it has none."""
        file, offset = place
        found = self.start + offset - self.identity[2]
        return found if file == self.file and self.start <= found < self.end else None


def shared_mappings(pid: int) -> tuple[SharedMapping, ...]:
    """Raises ProcessLookupError, PermissionError."""
    found = []
    for start, end, write, offset, device, inode, path in _LINE.findall(proc.maps_text(pid)):
        low, high = int(start, 16), int(end, 16)
        identity = (device, int(inode), int(offset, 16), high - low)
        found.append(SharedMapping(low, high, write == "w", identity, path))
    return tuple(found)


def written_by(pids: Iterable[int]) -> frozenset[tuple[str, int]]:
    """The files that any of these processes may write through a shared mapping."""
    found: set[tuple[str, int]] = set()
    for pid in pids:
        try:
            found.update(each.file for each in shared_mappings(pid) if each.writable)
        except (ProcessLookupError, PermissionError):
            continue
    return frozenset(found)
