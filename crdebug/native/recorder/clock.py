"""clock.h for Python: the layer's clock in a rank's memory, and its log's header and records.

ABI must equal CRDEBUG_CLOCK_ABI; a clock of another version, or of another table of calls, is
refused, and a test compares the offsets with the compiler's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from crdebug.base.errors import NotAvailable
from crdebug.base.instant import Instant
from crdebug.native.recorder import doing
from crdebug.native.recorder.doing import Doing
from crdebug.native.recorder.mpi_calls import DIGEST
from crdebug.native.recorder.mpi_errors import failure
from crdebug.native.recorder.mpi_types import ADDRESS

ABI = 6
NEVER = Instant(2**64 - 1)
SYMBOL = "crdebug_clock"
HOLD_FUNCTION = "crdebug_hold"
SITES = 65536
SITES_OFFSET = 4096
LOG_HEADER = SITES_OFFSET + 8 * SITES
TAIL_OFFSET = 24  # of the log's header: tail and tail_now
REFUSED_OFFSET = 56  # refused
CUTS_OFFSET = 64
ROOM_OFFSET = 72
BEGIN_OFFSET = 80
DOING_IN_LOG_OFFSET = 88
OLD = 1 << 16  # records in each of the two areas after the ring
PAGE = 256  # records
CUT_HERE = (16 << 9, 0x6572656820747563)  # the last record of a log that was cut from outside
RECORD = struct.Struct("<QQ")
_RANKS = 1 << 20  # a limit: no job has so many on one machine
_LATEST = 1 << 62  # half ticks
_FAILED_NOW = 56  # bits of doing_now in the log; above, how the call failed
_ABORTS = 2**32 - 1

_CLOCK = struct.Struct("<IIiiQQIIQQIiIIIIQ4QQQIHHII4I4IIIQQIIQQQQQQQI15I14Q")
_LOOK = struct.Struct("<QIIQQ")
_LOG = struct.Struct("<IIiiQQQQQIIIIQQ6QII40s")
SIZE = _CLOCK.size
LOG_SIZE = _LOG.size
VERSION_SIZE = 4  # of the log: its first number

# of the fields that are read or written one at a time
STOP_OFFSET = 24
INITIALIZED_OFFSET = 56
ENFORCE_OFFSET = 72
DIVERGED_OFFSET = 76
LAST_OFFSET = struct.calcsize("<IIiiQQIIQQIiIIIIQ4QQQIHHI")
LOOK_SIZE = _LOOK.size
DOING_OFFSET = SIZE - doing.LAYOUT.size
LOOK_OFFSET = DOING_OFFSET - LOOK_SIZE
CHOICE_OFFSET = LOOK_OFFSET - 16
WIPES_OFFSET = LOOK_OFFSET - 12
REQUESTS_OFFSET = LOOK_OFFSET - 8
BUCKETS = 4096
REQUEST = struct.Struct("<5QII")  # the beginning of struct request in pmpi.h
_PERSISTENT, _ACTIVE, _SHARED = 4, 8, 1024  # enum request_flags


class Refused(IntEnum):
    """Why the layer does not record, or no longer does."""

    NO = 0
    THREADS = 1
    LOG_FULL = 2
    LOG_FILE = 3
    COMMUNICATORS = 4
    MEMORY = 5
    NEWER = 6
    NO_SPACE = 7
    GIVEN_UP = 8

    @property
    def sentence(self) -> str:
        return {
            Refused.NO: "it is recorded",
            Refused.THREADS: "MPI is called from more than one thread",
            Refused.LOG_FULL: "the log is full",
            Refused.LOG_FILE: "the log cannot be made, or is of another version of crdebug",
            Refused.COMMUNICATORS: "there are more communicators than the log can number",
            Refused.NEWER: "the program uses calls of MPI 4 that are not recorded",
            Refused.NO_SPACE: "there is no space left for the log: a full disk, or a quota",
            Refused.GIVEN_UP: "that part of the record was dropped to make room",
            Refused.MEMORY: "there is no memory left for the record of MPI calls",
        }[self]


class Held(IntEnum):
    FREE = 0
    AT_STOP = 1
    AT_DIVERGENCE = 2


class Last(IntEnum):
    """Does the rank wait before MPI_Finalize?"""

    GOES = 0
    WAITS = 1
    IS_THERE = 2


class Enforce(IntEnum):
    ASK_ANEW = 0  # forget the record after the cursor, and record from here
    ENFORCE = 1
    BRANCH = 2  # as ASK_ANEW at the next call, and then ENFORCE


@dataclass(frozen=True, slots=True)
class Clock:
    """struct crdebug_clock. expected, actual: records, see clock.h, and four of the words behind
    each, from the one with this number on; valid while diverged."""

    rank: int
    world: int
    now: Instant
    stop: Instant
    held: Held
    records: bool
    cursor: int
    repeat: int
    initialized: bool
    thread_level: int
    open_epochs: int
    refused: Refused
    enforce: Enforce
    diverged: bool
    diverged_now: Instant
    expected: tuple[int, int]
    actual: tuple[int, int]
    pending_wild: int
    replaying: bool  # the rank repeats, and knows it; until then no rank may run on
    expected_failed: str  # the class of its error, "" if it did not fail
    actual_failed: str
    words_from: int
    last: Last
    expected_words: tuple[int, ...]
    actual_words: tuple[int, ...]
    looked_changed: Instant | None  # the clock when the bytes that are looked at changed last
    doing: Doing | None = None  # the call that it is in, if it is in one and has said in which

    @classmethod
    def parse(cls, data: bytes) -> Clock:
        values = _CLOCK.unpack_from(data)
        abi, size, rank, world, now, stop, held, mode, cursor, repeat, initialized = values[:11]
        level, epochs, refused, enforce, diverged, at, e0, e1, a0, a1, pending = values[11:22]
        calls, replaying, e_failed, a_failed, words_from, last = values[22:28]
        if abi != ABI or size < SIZE or calls != DIGEST:
            raise NotAvailable(
                f"the rank's MPI layer has ABI version {abi}, this crdebug knows {ABI}",
                hint="use the crdebug that started the job",
            )
        now, stop, at = Instant(now), Instant(stop), Instant(at)
        return cls(
            *(rank, world, now, stop, Held(held), mode != 0, cursor, repeat, bool(initialized)),
            *(level, epochs, Refused(refused), Enforce(enforce), bool(diverged), at),
            *((e0, e1), (a0, a1), pending, bool(replaying), failure(e_failed), failure(a_failed)),
            *(words_from, Last(last), values[28:32], values[32:36]),
            None if values[43] == NEVER else Instant(values[43]),
            doing.parse(now, values[44:]),
        )


@dataclass(frozen=True, slots=True)
class Request:
    """A request that a program holds. following: the address of the next one in its list.
    tick, site: of the call that made it."""

    following: int
    tick: int
    site: int
    is_active: bool
    is_persistent: bool
    is_shared: bool  # the MPI gives one for several that are complete, or need nothing

    @classmethod
    def parse(cls, data: bytes) -> Request:
        following, _, _, site, now, flags, _ = REQUEST.unpack(data)
        bits = (_ACTIVE, _PERSISTENT, _SHARED)
        return cls(
            following, (now + 1) // 2, site & ADDRESS, *(bool(flags & each) for each in bits)
        )


def look(address: int, size: int, seen: bytes | None) -> bytes:
    """The bytes to write at LOOK_OFFSET to have memory watched; with size 0 none is. seen: its
    present content, None if nothing is mapped there."""
    known = seen is not None
    return _LOOK.pack(address, size, known, _hash(seen or b""), NEVER)


def _hash(data: bytes) -> int:
    """mix() of native/recorder/pmpi_log.c, of each word."""
    found = 0
    for start in range(0, len(data), 8):
        word = int.from_bytes(data[start : start + 8], "little")
        found = (found ^ word) * 0x9E3779B97F4A7C15 % 2**64
        found ^= found >> 29
    return found


@dataclass(frozen=True, slots=True)
class Outside:
    """A call that is not counted, in which the MPI has ended the process. site: where it returns
    to; 0 if unknown. failed: the class of the error."""

    name: str
    site: int
    failed: str


@dataclass(frozen=True, slots=True)
class LogHeader:
    """struct crdebug_log: the beginning of a rank's log."""

    rank: int
    world: int
    capacity: int
    tail: int
    tail_now: Instant
    first_now: Instant
    refused: Refused
    sites: int
    cuts: int  # how often it was cut at the cursor, to record another future
    first: int = 0  # the first place that is on record
    area: int = 0  # which of the two areas holds
    doing: Doing | None = None  # the call that follows what is on record, if it was begun
    doing_failed: str = ""  # the process has ended in it: the class of the error
    left: int | None = None  # it has called exit outside of all calls: the status
    aborts: bool = False  # it has called MPI_Abort
    outside: Outside | None = None

    @classmethod
    def parse(cls, data: bytes) -> LogHeader:
        values = _LOG.unpack_from(data.ljust(_LOG.size, b"\0"))
        abi, size, rank, world, capacity, tail, tail_now, first, calls, refused = values[:10]
        sites, cuts = values[10:12]
        if abi != ABI or size != LOG_HEADER or calls != DIGEST:
            raise NotAvailable(
                f"the log of MPI calls has version {abi}, this crdebug knows {ABI}",
                hint="use the crdebug that started the job",
            )
        why = Refused(refused) if refused in iter(Refused) else Refused.LOG_FILE
        begin = values[14]
        doing_now, ended_now, outside_site, left, outside_failed = values[17], *values[19:23]
        now = doing_now & (1 << _FAILED_NOW) - 1
        at_end = doing.parse_asked(tail_now + 1, (*values[15:17], now, values[18]))
        failed = failure(doing_now >> _FAILED_NOW) if at_end else ""
        how: tuple[int | None, bool, Outside | None] = None, False, None
        if ended_now == tail_now:
            name = values[23].partition(b"\0")[0].decode(errors="replace")
            outside = Outside(name, outside_site, failure(outside_failed))
            aborts = left == _ABORTS
            status = left - 1 if left and not aborts else None
            how = status, aborts, outside if outside_failed else None
        known = why, sites, cuts, begin >> 1, begin & 1, at_end, failed, *how
        return cls(rank, world, capacity, tail, Instant(tail_now), Instant(first), *known)

    def is_sound(self, size: int) -> bool:
        """Can it be the header of a log whose file has so many bytes?"""
        power = self.capacity >= PAGE and self.capacity & (self.capacity - 1) == 0
        fits = power and self.area_offset(2) <= size and self.sites <= SITES
        fits = fits and 0 <= self.tail - self.first <= self.capacity
        return fits and 0 <= self.rank < self.world <= _RANKS and self.tail_now < _LATEST

    def offset(self, place: int) -> int:
        """Where in the file the record of a place is."""
        return LOG_HEADER + RECORD.size * (place % self.capacity)

    def area_offset(self, area: int) -> int:
        """Where in the file one of the two areas begins."""
        return LOG_HEADER + RECORD.size * (self.capacity + area * OLD)
