"""What was cut off the files of a job's output, so that each can be as it was at any moment to
which the job is brought, also one that is later than where it is now. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

MOST = 64 << 20  # bytes that are kept of a stream


class Written(NamedTuple):
    """What a job had written at a moment. sizes: of its streams. cuts: how often the streams had
    been cut by then."""

    sizes: tuple[int, ...]
    cuts: int


class Cuts:
    """Of one stream. count: of all cuts so far."""

    def __init__(self) -> None:
        self._cuts: list[tuple[int, bytes]] = []  # to which length, and what followed there
        self._size = 0

    @property
    def count(self) -> int:
        return len(self._cuts)

    def back_to(
        self, size: int, cuts: int, length: int, read: Callable[[int], bytes]
    ) -> tuple[int, bytes]:
        """The stream is to be as it was, so long, after so many cuts. length: as it is now. read:
        all that follows from a place on. Returns the length to which to cut it, and what to write
        behind that. If too much was cut for it to be kept, that is as much as is there."""
        since = self._cuts[cuts:]
        low = min([length, size, *(at for at, _ in since)])
        now = text = read(low)
        for at, tail in reversed(since):
            text = text[: at - low] + tail
        same = min(len(now), size - low)
        if text[:same] == now[:same]:
            low, text, now = low + same, text[same:], now[same:]
        self._keep(low, now)
        return low, text[: size - low]

    def _keep(self, at: int, tail: bytes) -> None:
        self._size += len(tail)
        self._cuts.append((at, tail if self._size <= MOST else b""))
