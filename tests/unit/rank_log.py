"""Writes a rank's log as the layer inside the rank does (native/recorder/pmpi_log.c), for tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from crdebug.native.recorder import clock, mpi_calls

MORE, WILD_SOURCE, _WILD_TAG, DONE, NO, ODD, PACKED = (1 << n for n in range(9, 16))
ROOM = 4096  # records
_HEADER = struct.Struct("<IIiiQQQQQIIIIQQ")


class LogWriter:
    """The log of one rank, at `path`; calls from one place in the program."""

    def __init__(self, path: Path, rank: int = 0, world: int = 2) -> None:
        self.path = path
        self.rank, self.world = rank, world
        self.tail = self.ticks = self.cuts = 0
        with open(path, "wb") as file:
            file.truncate(clock.LOG_HEADER + 16 * (ROOM + 2 * clock.OLD))
        self._write(clock.SITES_OFFSET, struct.pack("<Q", 0x401000))
        self._head()

    def _write(self, place: int, data: bytes) -> None:
        with open(self.path, "r+b") as file:
            file.seek(place)
            file.write(data)

    def _head(self) -> None:
        digest = mpi_calls.DIGEST
        what = (clock.ABI, clock.LOG_HEADER, self.rank, self.world, ROOM, self.tail)
        self._write(0, _HEADER.pack(*what, 2 * self.ticks, 0, digest, 0, 1, self.cuts, 0, ROOM, 0))

    def _record(self, head: int, body: int, words: Sequence[int] = ()) -> int:
        more = (1 + len(words) + 3) // 4 if words else 0
        place = self.tail
        data = clock.RECORD.pack(head | (MORE if more else 0), body)
        if more:
            padded = [more, *words] + [0] * (4 * more - 1 - len(words))
            data += struct.pack(f"<{4 * more}I", *padded)
        self._write(clock.LOG_HEADER + 16 * place, data)
        self.tail += 1 + more
        return place

    def define(self, number: int, members: Sequence[int], window: bool = False) -> None:
        """A communicator, or a window; of no call."""
        words = [2 * len(members), 0, *(word for member in members for word in (member, 1))]
        self._record(len(words) << 32, number << 48 | window, words)
        self._head()

    def call(
        self,
        name: str,
        *,
        comm: int = 1,
        peer: int | None = None,
        tag: int | None = None,
        size: int = 0,
        flags: int = 0,
        words: Sequence[int] = (),
    ) -> int:
        """A call; the place of its record. peer: 2 less than nothing is any (clock.h)."""
        place = self._record(*self._body(name, comm, peer, tag, size, flags), words)
        self.ticks += size if flags & NO else 1
        self._head()
        return place

    def _body(
        self, name: str, comm: int, peer: int | None, tag: int | None, size: int, flags: int
    ) -> tuple[int, int]:
        number = mpi_calls.BY_NAME[name].number
        peer_code = 2 if flags & WILD_SOURCE and peer is None else 0 if peer is None else peer + 4
        tag_code = 0 if tag is None else tag + 4
        return number | flags | size << 32, comm << 48 | peer_code << 28 | tag_code

    def once_more(self, place: int) -> None:
        """Lengthen by one the run of unsuccessful calls at a place."""
        self._write(
            clock.LOG_HEADER + 16 * place + 4, (self._size(place) + 1).to_bytes(4, "little")
        )
        self.ticks += 1
        self._head()

    def _size(self, place: int) -> int:
        with open(self.path, "rb") as file:
            file.seek(clock.LOG_HEADER + 16 * place + 4)
            return int.from_bytes(file.read(4), "little")

    def got(self, place: int, name: str, peer: int, tag: int) -> None:
        """A wild receive that was posted at a place has got its message."""
        head, body = self._body(name, 1, peer, tag, 0, WILD_SOURCE | DONE)
        self._write(clock.LOG_HEADER + 16 * place, clock.RECORD.pack(head, body))

    def cut(self, tail: int, ticks: int) -> None:
        """Forget everything after it."""
        self.tail, self.ticks, self.cuts = tail, ticks, self.cuts + 1
        self._head()
