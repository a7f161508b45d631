"""The log of one rank's MPI calls, as the layer inside it writes it (native/recorder/clock.h)."""

from __future__ import annotations

import os
import re
import struct
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from crdebug.base.errors import NotAvailable
from crdebug.base.instant import BEGINNING, Instant
from crdebug.base.ranks import RankSet
from crdebug.native.matcher.library import (
    DAMAGED,
    Column,
    Definition,
    Library,
    Progress,
    ints,
)
from crdebug.native.recorder import clock
from crdebug.native.recorder.clock import LogHeader, Outside, Refused
from crdebug.native.recorder.doing import Doing
from crdebug.native.recorder.mpi_types import ADDRESS
from crdebug.timeline.calls import Calls
from crdebug.timeline.functions import table
from crdebug.timeline.kept import KeptRank, Named, Names, kept_of, read
from crdebug.timeline.logged_calls import LoggedCalls, Reading
from crdebug.timeline.matching import Matching

_UNFREED = re.compile(r"(\w+) (\d{1,20}) (\d{1,20}) (-|MPI_\w+)")
_OTHER_JOB = (1 << 32) - 1
_TAG = (1 << 28) - 1
_LONGEST_NAME = 40
_AT_ONCE = 1 << 16  # calls of one rank before those of the next: little is unmatched meanwhile
_EMPTY = LogHeader(-1, 0, 0, 0, BEGINNING, BEGINNING, Refused.NO, 0, 0)


def read_log(path: Path, library: Library) -> RankLog:
    """A rank's log as it is now. Raises NotAvailable, or OSError."""
    log = RankLog(path, library)
    log.look()
    while log.read_on():
        pass
    return log


def has_begun(path: Path) -> bool:
    """Has the rank made its log? It does so as MPI begins, and its version is there last."""
    try:
        with path.open("rb") as file:
            return any(file.read(clock.VERSION_SIZE))
    except FileNotFoundError:
        return False


def name_of(members: Sequence[int], earlier: int, world: int) -> str:
    """The name of a communicator on all its members: their world ranks, in order ("0-3", "2,0"),
    and from the second one of the same members on its number ("0-3#2").

    earlier: how many of the same members there were before. The first of all ranks is "world".
    """
    if tuple(members) == tuple(range(world)):
        text = "world"
    else:
        text = ",".join(_ranges(members))
        if len(text) > _LONGEST_NAME:
            packed = struct.pack(f"<{len(members)}i", *members)
            text = f"{members[0]}+{len(members) - 1}:{_digest(packed):08x}"
    return text if earlier == 0 else f"{text}#{earlier + 1}"


def _ranges(members: Sequence[int]) -> Iterator[str]:
    first = last = None
    for member in [*members, None]:
        if last is not None and member is not None and member == last + 1:
            last = member
            continue
        if first is not None:
            yield f"{first}" if first == last else f"{first}-{last}"
        first = last = member


def _digest(data: bytes) -> int:
    value = 2166136261
    for byte in data:
        value = (value ^ byte) * 16777619 % 2**32
    return value


class Unfreed(NamedTuple):
    """What a rank had not freed, or not completed, at MPI_Finalize. kind: "request", "persistent"
    (request), "communicator", "window", "type", "group", "operation". tick, site: of the call that
    made it, or, if it is not counted, of the last one before. name: of a call that is not
    counted, or ""."""

    kind: str
    site: int
    tick: int
    name: str


class RankLog:
    """One rank's calls, in order, with what they completed.

    matching: gets everything that is read. After the log was cut (a branch) or replaced, nothing
    that was read of it counts: `look` returns False, and it must be read anew.
    """

    def __init__(self, path: Path, library: Library, matching: Matching | None = None) -> None:
        self.path = path
        self.library = library
        self.calls: Calls = LoggedCalls(self)
        self._matching = matching
        self._names = matching or Matching(library)
        self._header = _EMPTY
        self._file: tuple[int, int, int] | None = None
        self._log = 0
        self._progress = Progress()
        self._comms: dict[str, tuple[int, ...]] = {}
        self._seen: dict[tuple[int, ...], list[int]] = {}  # the places of their definitions
        self._named: dict[int, list[Named]] = {}
        self._kept: KeptRank | None = None
        self._sites: tuple[int, ...] = ()

    @property
    def rank(self) -> int:
        return self._header.rank

    @property
    def world(self) -> int:
        """Ranks in the job."""
        return self._header.world

    @property
    def count(self) -> int:
        """How many calls were read."""
        return self._progress.calls  # type: ignore[no-any-return]

    @property
    def comms(self) -> Mapping[str, tuple[int, ...]]:
        """World ranks of the members, in order; of an intercommunicator, of both groups."""
        return self._comms

    def comm_name(self, number: int, place: int) -> str:
        """The name of the communicator (or window) that has this number at that place of the log;
        "" if there is none. Numbers are used again."""
        names = [each.name for each in self._named.get(number, ()) if each.place <= place]
        return names[-1] if names else ""

    def comm_ranks(self, number: int, place: int) -> tuple[int, ...]:
        """The world ranks of the processes that calls on it name, in order."""
        found = [each.peers for each in self._named.get(number, ()) if each.place <= place]
        return found[-1] if found else ()

    def posting(self, age: int) -> tuple[int, int] | None:
        """The call that posted a request: its tick, and which of an MPI_Startall's it is, or 0.
        age: 1 is the last request that was posted; None if there is none."""
        slot = ints([0])
        tick = self.library.log_posting(self._log, age, slot)
        return (tick, slot[0]) if tick else None

    @property
    def sites(self) -> Sequence[int]:
        """The return addresses of all calls of MPI in the program."""
        return [site & ADDRESS for site in self._sites]

    @property
    def tail_now(self) -> Instant:
        """The clock when all these calls are done."""
        return self._header.tail_now

    @property
    def first_now(self) -> Instant:
        """The clock before the first of these calls."""
        return Instant.after(self._kept.tick) if self._kept else self._header.first_now

    @property
    def address(self) -> int:
        """The address of the log in the library's memory."""
        return self._log

    @property
    def refused(self) -> Refused:
        """Why it does not go on, if it does not."""
        return self._header.refused

    @property
    def doing(self) -> Doing | None:
        """The call that follows these, if the rank is in it, or ended in it."""
        return self._header.doing

    @property
    def doing_failed(self) -> str:
        """The class of the error with which the MPI has ended the process in that call, if it
        has."""
        return self._header.doing_failed

    @property
    def unfreed(self) -> list[Unfreed]:
        """What the rank had not freed at MPI_Finalize, if it has come to it."""
        try:
            lines = self.path.with_name(f"{self.path.name}.unfreed").read_text().splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            match = _UNFREED.fullmatch(line)
            if match is not None:
                kind, site, now, name = match.groups()
                tick = (int(now) + 1) // 2
                found.append(Unfreed(kind, int(site), tick, "" if name == "-" else name))
        return found

    @property
    def outside(self) -> Outside | None:
        """A call that is not counted, in which the MPI has ended the process."""
        return self._header.outside

    @property
    def left(self) -> int | None:
        """With which status the rank has called exit before MPI_Finalize, if it has."""
        return self._header.left

    @property
    def aborts(self) -> bool:
        """Has the rank called MPI_Abort?"""
        return self._header.aborts

    @property
    def records(self) -> int:
        """How many records of 16 bytes there have been."""
        return self._header.tail

    @property
    def first(self) -> int:
        """The place of the first record that is there; they are counted from 0."""
        return self._header.first

    @property
    def capacity(self) -> int:
        """How many there can be."""
        return self._header.capacity

    @property
    def unread(self) -> int:
        """How many of them have not been read yet."""
        return int(self._header.tail - self._progress.place)

    def goes_outside(self, start: Instant, end: Instant) -> bool:
        """Between two instants, did the rank enter a call that talks with the launcher or with
        other jobs, or was it inside one?"""
        return self._is_between(self._progress.outside, start, end)

    def goes_one_sided(self, start: Instant, end: Instant) -> bool:
        """The same for calls of one-sided communication."""
        return self._is_between(self._progress.one_sided, start, end)

    def _is_between(self, ticks: Any, start: Instant, end: Instant) -> bool:
        if not ticks:
            return False
        column = Column(ticks.contents, self)
        return column.first_at(start.tick + 1) < column.first_at(end.entered + 1)

    # ---- reading ---------------------------------------------------------------------------------

    def look(self) -> bool:
        """Find out how long it is. Returns False if it no longer has what was read of it."""
        with self.path.open("rb", buffering=0) as file:
            found = os.fstat(file.fileno())
            header = _header(file)
            if not header.is_sound(found.st_size):
                raise damaged(self.path, "its header")
            header = _up_to_the_cut(file, header)
            which = found.st_dev, found.st_ino, found.st_size
            kept, names = kept_of(self.path.parent, header.rank)
            if self._file is None:
                self._open(file, header)
                self._begin(header.rank, kept, names)
                self._file = which
            elif (
                which != self._file
                or kept != self._kept
                or header.tail < self._progress.place
                or header.cuts != self._header.cuts
            ):
                return False
            self._header = header
            if header.sites != len(self._sites):
                file.seek(clock.SITES_OFFSET)
                self._sites = struct.unpack(f"<{header.sites}Q", file.read(8 * header.sites))
        return True

    def _open(self, file: FileIO, header: LogHeader) -> None:
        numbers = header.capacity, header.rank, header.world
        self._log = self.library.log_open(file.fileno(), *numbers) or 0
        if not self._log:
            raise NotAvailable(f"{self.path} cannot be mapped: there is no memory for it")
        owners = (self._names.memory,) if self._matching else ()
        weakref.finalize(self, _close, self.library, self._log, owners)

    def _begin(self, rank: int, kept: KeptRank | None, names: Names) -> None:
        """Begin with what was kept of calls that were given up."""
        if kept is None:
            return
        self._kept = kept
        for name, members in names:
            self._names.define(name, members) if members else self._names.number_of(name)
        for number, name, peers in kept.comms:
            known = self._names.number_of(name)
            self.library.log_define(self._log, number, known, ints(peers), len(peers))
            self._named[number] = [Named(0, name, peers)]
            self._comms[name] = peers if name == "self" else dict(names)[name]
        self._seen = {key: [0] * count for key, count in kept.seen}
        read(kept, [name for name, _ in names], self._log, rank, self._matching, self._names)
        self.library.log_progress(self._log, self._progress)

    def read_on(self, most: int = _AT_ONCE) -> bool:
        """Read some more calls, at most up to the end that `look` found; is there more after them?

        Raises NotAvailable for a record that the layer cannot have written.
        """
        history = self._matching.memory.address if self._matching else None
        place = self.library.log_read(self._log, history, table(), self._header.tail, most)
        self.library.log_progress(self._log, self._progress)
        if place == DAMAGED:
            raise damaged(self.path, f"its record {self._progress.place}")
        if place >= 0:
            self._define(place)
        return self._progress.place < self._header.tail  # type: ignore[no-any-return]

    @property
    def reading(self) -> Reading:
        """All that was read so far."""
        known = self._sites, self._names
        return Reading(self.library, self._log, self.rank, self.count, *known)

    # ---- communicators ---------------------------------------------------------------------------

    def made_before(self, place: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The communicators and windows that were made before this place, in order, with the world
        ranks of their members. Some may have been freed since."""
        known = sorted((each.place, each.name) for all_ in self._named.values() for each in all_)
        for at, name in known:
            if at < place:
                yield name, self._comms[name]

    def comms_at(self, place: int) -> Iterator[tuple[int, Named]]:
        """The communicators that exist at this place, with their numbers."""
        for number, named in self._named.items():
            if before := [each for each in named if each.place < place]:
                yield number, before[-1]

    def seen_at(self, place: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Before this place, how many communicators had the same members, and these members."""
        for key, places in self._seen.items():
            if count := sum(each < place for each in places):
                yield key, count

    def _define(self, place: int) -> None:
        told = Definition()
        self.library.log_definition(self._log, place, told)
        head, body, words = told.head, told.body, told.words[: told.count]
        local_words, inter = words[0], words[1]
        local = tuple(_members(words[2 : 2 + local_words]))
        remote = tuple(_members(words[2 + local_words : head >> 32])) if inter else ()
        first, second = sorted((local, remote)) if inter else (local, ())
        window = bool(body & _TAG)
        key = (*first, -3 if window else -2, *second)
        earlier = len(self._seen.setdefault(key, []))
        self._seen[key].append(place)
        again = f"#{earlier + 1}" if earlier else ""
        if window:
            name = f"window({name_of(first, 0, self.world)}){again}"
        elif inter:
            one, two = (name_of(group, 0, self.world) for group in (first, second))
            name = f"{one}|{two}{again}"
        elif len(self._comms) == 1:
            name = "self"  # defined at MPI_Init, after the one of all ranks
        else:
            name = name_of(local, earlier, self.world)
        self._comms[name] = first + second
        number = self._names.define(name, first + second)
        peers = remote if inter else local  # the ranks that its calls name
        self.library.log_define(self._log, body >> 48, number, ints(peers), len(peers))
        self._named.setdefault(body >> 48, []).append(Named(place, name, peers))


def damaged(path: Path, what: str) -> NotAvailable:
    """The error for a log that the layer cannot have written. what: the damaged part."""
    return NotAvailable(
        f"{path} is damaged: {what} cannot have been written so",
        ranks=RankSet.of([int(path.name)]) if path.name.isdigit() else None,
        hint="the program may have written over its record; 'restart N' needs none",
    )


def _close(library: Library, log: int, _owners: tuple[object, ...]) -> None:
    """Close the log before the history that it was read into is freed."""
    library.log_close(log)


def _header(file: FileIO) -> LogHeader:
    """What a rank is in, it writes part by part: that holds only if it still stands in it."""
    data = os.pread(file.fileno(), clock.LOG_SIZE, 0)
    header = LogHeader.parse(data)
    if header.doing is None or os.pread(file.fileno(), clock.LOG_SIZE, 0) == data:
        return header
    return replace(header, doing=None, doing_failed="")


def _up_to_the_cut(file: FileIO, header: LogHeader) -> LogHeader:
    """The header without the last record, if that only says that the log was cut there from
    outside."""
    if header.tail > header.first:
        file.seek(header.offset(header.tail - 1))
        if clock.RECORD.unpack(file.read(16)) == clock.CUT_HERE:
            return replace(header, tail=header.tail - 1)
    return header


def _members(words: Sequence[int]) -> Iterator[int]:
    """World ranks from pairs of a first one and their number; -1 is a process of another job."""
    for first, count in zip(words[::2], words[1::2], strict=True):
        if first == _OTHER_JOB:
            yield from [-1] * count
        else:
            yield from range(first, first + count)
