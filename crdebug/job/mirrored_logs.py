"""The logs of ranks on other hosts: what is new in them, and copies that grow by that.

A log is written by its rank alone (native/recorder/clock.h): records after its tail, but a receive
that was posted long ago may also get its sender now. So what was sent is compared by its sums. A
copy is a file like the log, and is read as one.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from crdebug.base.errors import NotAvailable
from crdebug.native.recorder import clock as layout
from crdebug.native.recorder.clock import LogHeader

_CHUNK = 1 << 16
_TRIES = 100  # to read a header that does not change meanwhile
_LARGEST_FILE = 1 << 20  # bytes, of those beside the logs
_LARGEST_LOG = 1 << 40
_BESIDE = re.compile(r"(0|[1-9]\d{0,6})\.(maps|unfreed)")


@dataclass(frozen=True, slots=True)
class News:
    """What is new in a log.

    number: of these news; the next ones are what is new since then.  whole: what was known is void,
    and the log has this size.  parts: bytes, by their offset; of a log that is complete with them,
    the header is the last.  more: it is not.
    """

    number: int
    whole: bool
    size: int
    parts: Mapping[int, bytes]
    more: bool = False


class Source:
    """A log on this host, for one reader."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0
        self._file: tuple[int, int, int] | None = None
        self._sums: dict[int, int] = {}  # of what the reader has, by offset
        self._begun = b""  # the header as it was when the present round began
        self._next = 0  # of its spans; 0: there is none

    def news(self, since: int, most: int) -> News | None:
        """What is new since the news of this number (0: everything), at most some `most` bytes;
        None if there is nothing. Raises OSError."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return self._read(descriptor, since, most)
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int, since: int, most: int) -> News | None:
        about = os.fstat(descriptor)
        file = about.st_dev, about.st_ino, about.st_size
        whole = not since or since != self._number or file != self._file
        if whole:
            self._sums, self._next = {}, 0
        if not self._next:
            self._begun = _header(descriptor)
        if not any(self._begun[: layout.VERSION_SIZE]):
            return None
        parts, size, more = dict[int, bytes](), 0, False
        for at, (start, length) in enumerate(_spans(self._begun, about.st_size)):
            if at < self._next:
                continue
            if size >= most:
                self._next, more = at, True
                break
            data = os.pread(descriptor, length, start)
            total = zlib.crc32(data)
            if self._sums.get(start) != total:
                self._sums[start], parts[start] = total, data
                size += len(data)
        if not more:  # by now all that this header speaks of is there
            self._next = 0
            total = zlib.crc32(self._begun)
            if self._sums.get(0) != total or parts:
                self._sums[0], parts[0] = total, self._begun
        if not parts and not more:
            return None
        self._file = file
        self._number += 1
        return News(self._number, whole, about.st_size, parts, more)


def _header(descriptor: int) -> bytes:
    """A rank writes what it is in part by part: read it until it stands."""
    data = os.pread(descriptor, layout.LOG_SIZE, 0)
    for _ in range(_TRIES):
        again = os.pread(descriptor, layout.LOG_SIZE, 0)
        if again == data:
            break
        data = again
    return data


def _spans(begun: bytes, size: int) -> Iterator[tuple[int, int]]:
    """The parts of a log that count, in chunks: offset and length. None of one that cannot be read;
    its header says why."""
    try:
        header = LogHeader.parse(begun)
    except NotAvailable:
        return
    if not header.is_sound(size):
        return
    yield from _chunks(layout.SITES_OFFSET, layout.SITES_OFFSET + 8 * header.sites)
    if header.first:  # records that are kept of a part that was given up
        area = header.area_offset(header.area)
        yield from _chunks(area, area + layout.RECORD.size * layout.OLD)
    begin, end = layout.LOG_HEADER, header.area_offset(0)
    if header.tail - header.first >= header.capacity:
        yield from _chunks(begin, end)
    elif header.tail > header.first:
        first, last = header.offset(header.first), header.offset(header.tail - 1)
        after = last + layout.RECORD.size
        spans = [(first, after)] if first < after else [(begin, after), (first, end)]
        for start, stop in spans:
            yield from _chunks(start - (start - begin) % _CHUNK, stop)


def _chunks(start: int, end: int) -> Iterator[tuple[int, int]]:
    for at in range(start, end, _CHUNK):
        yield at, min(_CHUNK, end - at)


class Copy:
    """The copy of a log that is written elsewhere. number: of the news that it has."""

    def __init__(self, path: Path) -> None:
        self.number = 0
        self._path = path

    def take(self, news: News) -> None:
        """Make them part of it. Raises OSError; NotAvailable for what no crdebug has sent."""
        _require_sound(news)
        if news.whole:
            self._path.unlink(missing_ok=True)  # whoever has read it sees another file now
        how = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if news.whole else 0)
        descriptor = os.open(self._path, how, 0o600)
        try:
            if news.whole:
                os.truncate(descriptor, news.size)
            for start, data in news.parts.items():
                os.pwrite(descriptor, data, start)
        finally:
            os.close(descriptor)
        self.number = news.number


def _require_sound(news: News) -> None:
    sound = isinstance(news.size, int) and 0 <= news.size <= _LARGEST_LOG
    for start, data in news.parts.items():
        known = isinstance(start, int) and isinstance(data, bytes)
        sound = sound and known and 0 <= start <= news.size - len(data)
    if not sound:
        raise NotAvailable("what another host sends cannot be part of a log")


# ---- the files beside them -----------------------------------------------------------------------


class FilesBeside:
    """Those in a directory of logs that are no logs, for one reader (pmpi_file.c: a rank writes
    what it had mapped, and what it has not freed)."""

    def __init__(self) -> None:
        self.number = 0  # of the last answer
        self._known: dict[str, tuple[int, int]] = {}

    def news(self, directory: Path, since: int, most: int) -> tuple[dict[str, bytes], bool]:
        """By name, those that are new or have changed since the answer of this number, at most some
        `most` bytes; and whether there are more."""
        if since != self.number:
            self._known = {}
        self.number += 1
        found, size = dict[str, bytes](), 0
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for each in entries:
                if not _BESIDE.fullmatch(each.name):
                    continue
                with contextlib.suppress(OSError):
                    about = each.stat(follow_symlinks=False)
                    state = about.st_size, about.st_mtime_ns
                    if self._known.get(each.name) == state or about.st_size > _LARGEST_FILE:
                        continue
                    if size >= most:
                        return found, True
                    found[each.name] = Path(each.path).read_bytes()
                    self._known[each.name] = state
                    size += about.st_size
        return found, False


def write_beside(directory: Path, files: Mapping[str, bytes], ranks: Collection[int]) -> None:
    """Files of these ranks; others are left out. Raises OSError."""
    for name, data in files.items():
        match = _BESIDE.fullmatch(name) if isinstance(name, str) else None
        if match is None or int(match[1]) not in ranks or not isinstance(data, bytes):
            continue
        descriptor, path = tempfile.mkstemp(dir=directory, prefix=".")
        with open(descriptor, "wb") as file:
            file.write(data)
        os.rename(path, directory / name)
