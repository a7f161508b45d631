"""Move the beginning of a record up: drop what comes before it, and free its space.

First we copy the records of open receives to the unused one of the two areas after each ring. Then
we put the file with the kept calls into place, for all ranks at once. Then each log gets its new
beginning. If a job is abandoned in between, its record begins at the place in the file, and
`finish` does the remaining work.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from crdebug.base.errors import StoreError
from crdebug.job import clocks
from crdebug.native.recorder import clock as layout
from crdebug.native.recorder.clock import LogHeader
from crdebug.timeline import kept as keeping
from crdebug.timeline.kept import Kept, KeptRank

_FAILED, _MORE = 0xFF << 24, 1 << 9


def begin_at(run: Path, kept: Kept) -> None:
    """Begin the record at another place. The ranks must be stopped. Raises StoreError if it fails;
    the record is then as it was."""
    try:
        for rank, each in enumerate(kept.ranks):
            _prepare(clocks.logs(run) / str(rank), each)
        keeping.save(kept, clocks.logs(run))
    except OSError as error:
        raise StoreError(f"cannot drop the oldest part of the record: {error.strerror}") from None
    _switch(run, kept)


def finish(run: Path) -> None:
    """Complete a move that was interrupted because its crdebug was killed."""
    kept = keeping.load(clocks.logs(run))
    if kept is None:
        return
    for rank, each in enumerate(kept.ranks):
        path = clocks.logs(run) / str(rank)
        if _header(path).first < each.place:
            _prepare(path, each)
    _switch(run, kept)


def _switch(run: Path, kept: Kept) -> None:
    for rank, each in enumerate(kept.ranks):
        path = clocks.logs(run) / str(rank)
        header = _header(path)
        if header.first < each.place:
            begin = each.place << 1 | (1 - header.area)
            with open(path, "r+b", buffering=0) as file:
                os.pwrite(file.fileno(), begin.to_bytes(8, "little"), layout.BEGIN_OFFSET)


def _prepare(path: Path, kept: KeptRank) -> None:
    """Copy the postings to the area that is not in use."""
    header = _header(path)
    with open(path, "r+b", buffering=0) as file:
        data = b"".join(_posting(file.fileno(), header, place) for place in kept.postings)
        if len(data) >= layout.RECORD.size * layout.OLD:
            raise StoreError(f"{len(kept.postings)} open receives are too many to keep")
        end = layout.RECORD.pack(0, 0)
        os.pwrite(file.fileno(), data + end, header.area_offset(1 - header.area))


def _posting(file: int, header: LogHeader, place: int) -> bytes:
    """A record with those that belong to it, in the form that it has in an area."""
    if place < header.first:
        return next((data for at, data in _copied(file, header) if at == place), b"")
    data = _read(file, header.offset(place))
    if layout.RECORD.unpack(data)[0] & _MORE:
        more = int.from_bytes(_read(file, header.offset(place + 1))[:4], "little") & ~_FAILED
        data += b"".join(_read(file, header.offset(place + 1 + at)) for at in range(more))
    return layout.RECORD.pack(place, len(data) // layout.RECORD.size) + data


def _copied(file: int, header: LogHeader) -> Iterator[tuple[int, bytes]]:
    at = header.area_offset(header.area)
    while True:
        place, count = layout.RECORD.unpack(_read(file, at))
        if count == 0:
            return
        size = layout.RECORD.size * (1 + count)
        yield place, os.pread(file, size, at)
        at += size


def _read(file: int, at: int) -> bytes:
    return os.pread(file, layout.RECORD.size, at)


def _header(path: Path) -> LogHeader:
    with open(path, "rb", buffering=0) as file:
        return LogHeader.parse(file.read(layout.LOG_SIZE))
