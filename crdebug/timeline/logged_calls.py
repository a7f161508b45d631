"""The calls of a rank's log, each made from its record when somebody asks for it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, overload

from crdebug.native.matcher.library import (
    NONE,
    CallStruct,
    Column,
    Found,
    Library,
    Longs,
    SeriesStruct,
    calls,
    ints,
    longs,
    structures,
)
from crdebug.native.recorder.mpi_errors import failure
from crdebug.native.recorder.mpi_types import ADDRESS, Types, types
from crdebug.timeline.calls import Call, Calls, Head, Kind, Together
from crdebug.timeline.functions import KIND_NUMBERS, KINDS, NAMES, NUMBERS, table
from crdebug.timeline.matching import Matching

_CHUNK = 256  # calls that are made together, see STEP in native/matcher/history_log.h
_REQUEST_FREE = NUMBERS["MPI_Request_free"]
_EVERY_KIND = (1 << len(KINDS)) - 1


@dataclass(frozen=True, slots=True)
class Reading:
    """A log as far as it was read. address: the library's.  sites: by number, with types.  names:
    of communicators."""

    library: Library
    address: int
    rank: int
    count: int
    sites: Sequence[int]
    names: Matching


class Log(Protocol):
    """A log that is read on, or read anew."""

    @property
    def reading(self) -> Reading: ...


class LoggedCalls(Calls):
    """Equal calls in a row that said no are one, with their number."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __len__(self) -> int:
        return self._log.reading.count

    @overload
    def __getitem__(self, index: int) -> Call: ...
    @overload
    def __getitem__(self, index: slice) -> list[Call]: ...
    def __getitem__(self, index: int | slice) -> Call | list[Call]:
        log = self._log.reading
        if isinstance(index, slice):
            first, last, step = index.indices(log.count)
            if step > 0:
                return _read(log, first, max(last - first, 0))[0][::step]
            return [self[at] for at in range(first, last, step)]
        at = index if index >= 0 else index + log.count
        if not 0 <= at < log.count:
            raise IndexError(index)
        return _read(log, at, 1)[0][0]

    def __iter__(self) -> Iterator[Call]:
        return self._of(_EVERY_KIND)

    def of(self, *kinds: Kind) -> Iterator[Call]:
        return self._of(sum(1 << KIND_NUMBERS[kind] for kind in kinds))

    def _of(self, kinds: int) -> Iterator[Call]:
        at = 0
        while at < (log := self._log.reading).count:
            found, at = _read(log, at, _CHUNK, kinds)
            yield from found

    def types(self) -> set[Types]:
        return {types(site) for site in self._log.reading.sites}

    def heads(self, ticks: Sequence[int]) -> Sequence[Head | None]:
        log, found = self._log.reading, ints([0] * len(ticks))
        log.library.log_heads(log.address, table(), longs(ticks), len(ticks), found)
        known = {each: _head(log, each) if each >= 0 else None for each in {*found}}
        return [known[each] for each in found]

    def together(self) -> Mapping[str, Together]:
        series = _Series(self._log.reading)
        return {name: each for name, each in series.named() if not name.startswith("(")}


class _Series:
    """The collectives of a log, in the library's memory."""

    def __init__(self, log: Reading) -> None:
        self.library = log.library
        self._names = log.names
        self._column = Longs()
        self.library.log_together(log.address, table(), self._column)

    def named(self) -> Iterator[tuple[str, Together]]:
        for number, each in enumerate(structures(self._column, SeriesStruct)):
            if each.numbers.count:
                both = Column(each.numbers, self), Column(each.likes, self)
                yield self._names.comm_name(number), Together(*both)

    def __del__(self) -> None:
        self.library.together_free(self._column)


def _read(log: Reading, first: int, most: int, kinds: int = _EVERY_KIND) -> tuple[list[Call], int]:
    """Calls of these kinds, and those that failed; and the number of the one after them."""
    most = max(min(most, log.count - first), 0)
    structs, completes, found = calls(most), Found(log.library), longs([0])
    wanted = first, most, kinds, structs, completes.reference, found
    then = log.library.log_calls(log.address, table(), *wanted)
    ticks, place, made = completes.numbers(), 0, []
    for each in structs[: found[0]]:
        end = place + each.completes_count
        made.append(_call(log, each, tuple(ticks[place:end])))
        place = end
    return made, then


def _call(log: Reading, each: CallStruct, numbers: tuple[int, ...]) -> Call:
    """numbers: the ticks that it completes, or the ranks of its group."""
    kind, site = KINDS[each.kind], _site(log, each.site)
    time, window = kind is Kind.TIME, kind is Kind.RMA
    frees = each.function == _REQUEST_FREE
    return Call(
        log.rank,
        each.tick,
        NAMES[each.function],
        kind,
        site & ADDRESS,
        log.names.comm_name(each.comm),
        _or_none(each.peer),
        _or_none(each.tag),
        0 if time or frees else each.bytes,
        each.wild,
        each.repeats,
        () if window else numbers,
        _or_none(each.peer2),
        _or_none(each.tag2),
        struct.unpack("<d", struct.pack("<q", each.bytes))[0] if time else 0.0,
        numbers if window else (),
        bool(each.odd),
        each.bytes if frees else 0,
        types(site),
        failure(each.failed),
    )


def _site(log: Reading, number: int) -> int:
    return log.sites[number] if number < len(log.sites) else 0


def _head(log: Reading, each: int) -> Head:
    site = _site(log, each & 0xFFFF)
    return Head(NAMES[each >> 21], KINDS[each >> 16 & 31], site & ADDRESS, types(site))


def _or_none(number: int) -> int | None:
    return None if number == NONE else number
