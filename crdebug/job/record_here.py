"""The record of the ranks on this host, for a crdebug on another one: clocks and logs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from crdebug.base.errors import NotAvailable
from crdebug.job import clocks
from crdebug.job.clocks import AnotherProgram, RankClock
from crdebug.job.mirrored_logs import FilesBeside, News, Source

_MOST = 1 << 25  # bytes of logs in one answer


class Is(Enum):
    """What became of a rank whose clock was asked for."""

    THERE = "there"
    ENDED = "ended"
    ANOTHER = "another program"
    UNREADABLE = "unreadable"
    UNCOUNTED = "uncounted"  # nothing counts its MPI calls: it has none, or not yet


@dataclass(frozen=True, slots=True)
class Wanted:
    """What crdebug asks for.

    ranks: the PIDs, by rank.  layer: the path of the library in them that records.
    directory: their logs are there, and perhaps those of ranks that ended before.
    since: what is known of the logs: the number of the last news, by rank; None if it is not about
    logs.  beside: the number of the last answer that had other files.
    requests: are those that the ranks hold wanted, too?
    """

    ranks: Mapping[int, int]
    layer: str
    directory: str
    since: Mapping[int, int] | None = None
    beside: int = 0
    requests: bool = False


@dataclass(frozen=True, slots=True)
class RankSeen:
    """A rank as it was at one moment. clock: the bytes of struct crdebug_clock, if it is there.

    problem: why it is unreadable.  address, hold, zombie, stopped_by, worked, sleeps, reads_input:
    see clocks.ClockHandle.  requests: the bytes of each struct request.
    """

    status: Is
    clock: bytes = b""
    problem: str = ""
    address: int = 0
    hold: int = 0
    zombie: bool = False
    stopped_by: str = ""
    worked: int = 0
    sleeps: bool = False
    reads_input: bool = False
    requests: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordNow:
    """The answer. seen: by rank, before the logs were read.  there: are there logs at all?
    news: of these, by rank.  beside: other files, by name, in the answer of this number.
    more: there is more of them than fits in one answer.
    """

    seen: Mapping[int, RankSeen]
    there: bool = False
    news: Mapping[int, News] = field(default_factory=dict)
    beside: Mapping[str, bytes] = field(default_factory=dict)
    number: int = 0
    more: bool = False


class ClocksHere:
    """The clocks of ranks on this host, found once each. layer: see Wanted."""

    def __init__(self, layer: str = "") -> None:
        self._layer = layer
        self._known: dict[int, RankClock] = {}

    def of(self, rank: int, pid: int) -> RankClock | None:
        """Raises ProcessLookupError."""
        known = self._known.get(rank)
        if known is None or known.pid != pid:
            known = clocks.find_one(rank, pid, self._layer)
            if known is None:
                return None
            self._known[rank] = known
        return known

    def forget(self, rank: int) -> None:
        """It is looked for anew when it is asked for."""
        self._known.pop(rank, None)

    def data(self, rank: int, pid: int) -> bytes:
        """The bytes of one; none if it cannot be read."""
        try:
            if self._layer and (known := self.of(rank, pid)) is not None:
                return known.data()
        except AnotherProgram:
            self.forget(rank)
        except (OSError, NotAvailable):
            pass
        return b""

    def all(self) -> tuple[RankClock, ...]:
        """Those that were asked for."""
        return tuple(self._known.values())

    def look(self, rank: int, pid: int, *, requests: bool = False) -> RankSeen:
        """How the rank is now."""
        try:
            known = self.of(rank, pid)
            return RankSeen(Is.UNCOUNTED) if known is None else _seen(known, requests=requests)
        except AnotherProgram:
            self.forget(rank)
            return RankSeen(Is.ANOTHER)
        except ProcessLookupError:
            return RankSeen(Is.ENDED)
        except NotAvailable as error:
            return RankSeen(Is.UNREADABLE, problem=error.problem)
        except OSError as error:
            return RankSeen(Is.UNREADABLE, problem=f"its clock cannot be read: {error.strerror}")


class RecordHere:
    """Answers one crdebug, until `close`. Once it has been asked, the logs stay until then: whoever
    would remove them when the ranks have ended waits for its lock (native/starter/bare.c)."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()  # a thread cannot be cancelled with its question
        self._closed = False
        self._locks: dict[Path, int] = {}
        self._clocks: dict[str, ClocksHere] = {}  # by layer
        self._sources: dict[Path, Source] = {}
        self._beside: dict[Path, FilesBeside] = {}

    def answer(self, wanted: Wanted) -> RecordNow:
        """Raises OSError if a log cannot be read."""
        with self._one_at_a_time:
            return self._answer(wanted)

    def _answer(self, wanted: Wanted) -> RecordNow:
        directory = Path(wanted.directory)
        self._lock(directory.parent)
        known = self._clocks.setdefault(wanted.layer, ClocksHere(wanted.layer))
        seen = {
            rank: known.look(rank, pid, requests=wanted.requests)
            for rank, pid in wanted.ranks.items()
        }
        if wanted.since is None:
            return RecordNow(seen)
        try:
            logs = {int(name) for name in os.listdir(directory) if name.isdigit()}
        except FileNotFoundError:
            return RecordNow(seen)
        news, left, more = dict[int, News](), _MOST, False
        for rank in sorted(logs & wanted.since.keys()) + sorted(logs - wanted.since.keys()):
            if left <= 0:
                more = True
                break
            path = directory / str(rank)
            source = self._sources.setdefault(path, Source(path))
            found = source.news(wanted.since.get(rank, 0), left)
            if found is not None:
                news[rank] = found
                more = more or found.more
                left -= sum(map(len, found.parts.values()))
        beside = self._beside.setdefault(directory, FilesBeside())
        files, more_files = beside.news(directory, wanted.beside, _MOST)
        return RecordNow(seen, True, news, files, beside.number, more or more_files)

    def _lock(self, scratch: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            if scratch not in self._locks and not self._closed:
                descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                self._locks[scratch] = descriptor
                fcntl.flock(descriptor, fcntl.LOCK_SH)

    def close(self) -> None:
        """Let go of the logs. Idempotent."""
        self._closed = True
        while self._locks:
            os.close(self._locks.popitem()[1])


def _seen(clock: RankClock, *, requests: bool) -> RankSeen:
    held = tuple(clock.held_requests()) if requests else ()
    return RankSeen(
        Is.THERE,
        clock.data(),
        address=clock.address,
        hold=clock.hold,
        zombie=clock.is_zombie,
        stopped_by=clock.stopped_by,
        worked=clock.worked(),
        sleeps=clock.sleeps,
        reads_input=clock.reads_input,
        requests=held,
    )
