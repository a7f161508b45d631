"""The record of the ranks on this host, for a crdebug on another one: clocks and logs."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass
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
    directory: their logs are there.  since: what is known of them: the number of the last news, by
    rank; None if it is not about logs.  requests: are those that the ranks hold wanted, too?
    """

    ranks: Mapping[int, int]
    layer: str
    directory: str
    since: Mapping[int, int] | None = None
    requests: bool = False


@dataclass(frozen=True, slots=True)
class RankSeen:
    """A rank as it was at one moment. clock: the bytes of struct crdebug_clock, if it is there.

    problem: why it is unreadable.  zombie, stopped_by, worked, sleeps: see clocks.ClockView.
    requests: the bytes of each struct request.
    """

    status: Is
    clock: bytes = b""
    problem: str = ""
    zombie: bool = False
    stopped_by: str = ""
    worked: int = 0
    sleeps: bool = False
    requests: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordNow:
    """The answer. seen: by rank, before the logs were read.  news: of logs, by rank.  beside: other
    files, by name.  more: there is more of these, than fits in one answer."""

    seen: Mapping[int, RankSeen]
    news: Mapping[int, News]
    beside: Mapping[str, bytes]
    more: bool = False


class RecordHere:
    """Answers one crdebug, until `close`. Once it has been asked, the logs stay until then: whoever
    would remove them when the ranks have ended waits for its lock (native/starter/bare.c)."""

    def __init__(self) -> None:
        self._locks: dict[Path, int] = {}
        self._clocks: dict[int, RankClock] = {}
        self._sources: dict[Path, Source] = {}
        self._beside: dict[Path, FilesBeside] = {}

    def answer(self, wanted: Wanted) -> RecordNow:
        """Raises OSError if a log cannot be read."""
        self._lock(Path(wanted.directory).parent)
        seen = {
            rank: self._look(rank, pid, wanted.layer, requests=wanted.requests)
            for rank, pid in wanted.ranks.items()
        }
        if wanted.since is None:
            return RecordNow(seen, {}, {})
        directory, left = Path(wanted.directory), _MOST
        news: dict[int, News] = {}
        more = False
        for rank in wanted.ranks:
            path = directory / str(rank)
            source = self._sources.setdefault(path, Source(path))
            if left <= 0:
                more = True
                break
            found = source.news(wanted.since.get(rank, 0), left)
            if found is not None:
                news[rank] = found
                more = more or found.more
                left -= sum(map(len, found.parts.values()))
        first = not any(wanted.since.values())
        if first or directory not in self._beside:
            self._beside[directory] = FilesBeside()
        beside = self._beside[directory].news(directory, _MOST)
        return RecordNow(seen, news, beside, more)

    def _lock(self, scratch: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            if scratch not in self._locks:
                descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                self._locks[scratch] = descriptor
                fcntl.flock(descriptor, fcntl.LOCK_SH)

    def close(self) -> None:
        """Let go of the logs. Idempotent."""
        while self._locks:
            os.close(self._locks.popitem()[1])

    def _look(self, rank: int, pid: int, layer: str, *, requests: bool) -> RankSeen:
        try:
            known = self._clocks.get(rank)
            if known is None or known.pid != pid:
                known = clocks.find_one(rank, pid, layer)
                if known is None:
                    return RankSeen(Is.UNCOUNTED)
                self._clocks[rank] = known
            return _seen(known, requests=requests)
        except AnotherProgram:
            self._clocks.pop(rank, None)
            return RankSeen(Is.ANOTHER)
        except ProcessLookupError:
            return RankSeen(Is.ENDED)
        except NotAvailable as error:
            return RankSeen(Is.UNREADABLE, problem=error.problem)
        except OSError as error:
            return RankSeen(Is.UNREADABLE, problem=f"its clock cannot be read: {error.strerror}")


def _seen(clock: RankClock, *, requests: bool) -> RankSeen:
    held = tuple(clock.held_requests()) if requests else ()
    return RankSeen(
        Is.THERE,
        clock.data(),
        zombie=clock.is_zombie,
        stopped_by=clock.stopped_by,
        worked=clock.worked(),
        sleeps=clock.sleeps,
        requests=held,
    )
