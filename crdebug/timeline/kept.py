"""The remains of calls that were given up: the record of a job may begin later than the job.

They are in one file beside the ranks' logs, for all ranks: if crdebug is killed while it writes,
the file is the old one or the new one. native/matcher/history_kept.c says what is needed of such
calls, and why.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from crdebug.base.errors import NotAvailable
from crdebug.base.instant import Cut, Instant
from crdebug.native.matcher.library import (
    NO_COMM,
    CallStruct,
    Cursor,
    Found,
    KeptStruct,
    Library,
    calls,
    longs,
    structures,
)
from crdebug.timeline.functions import table
from crdebug.timeline.matching import Matching

_NAME = "kept"
_VERSION = 2
_FIELDS = (
    *("tick", "repeats", "bytes", "place", "function", "kind", "peer", "tag", "wild", "odd"),
    *("mode", "older", "slot", "low", "high"),
)

Names = Sequence[tuple[str, tuple[int, ...]]]


class Named(NamedTuple):
    """A communicator, where it is defined in a log. peers: the ranks that it can name."""

    place: int
    name: str
    peers: tuple[int, ...]


class About(msgspec.Struct, frozen=True, array_like=True):
    """A call, by _FIELDS. comm: a number in `Kept.names`, -1: none; below, what a call prepared: of
    `KeptRank.prepares`, from the end of all numbers on. of: the posting that it is about, or 0."""

    comm: int
    fields: tuple[int, ...]
    of: int = 0
    of_slot: int = 0


@dataclass(frozen=True, slots=True)
class KeptRank:
    """One rank's part. place: of its first record; tick: the last before it; posted: how many
    requests were posted before it.

    comms: number in the log, name, and the ranks that it can name.  seen: how many communicators
    there were of the same members.  requests: number, tick, place, slot of those that are open.
    postings: the places of open receives.
    """

    place: int
    tick: int
    posted: int
    blind: bool
    comms: tuple[tuple[int, str, tuple[int, ...]], ...]
    seen: tuple[tuple[tuple[int, ...], int], ...]
    prepares: tuple[About, ...]
    calls: tuple[About, ...]
    requests: tuple[tuple[int, int, int, int], ...]
    postings: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """cut: the clocks of the state with which the record begins.  names: communicators, and their
    members."""

    version: int
    cut: Cut
    names: tuple[tuple[str, tuple[int, ...]], ...]
    ranks: tuple[KeptRank, ...]


# ---- the file ----------------------------------------------------------------------------------


def load(directory: Path) -> Kept | None:
    """The file beside these logs; None if they are whole. Raises NotAvailable."""
    path = directory / _NAME
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return _load(path, found.st_ino, found.st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _load(path: Path, _file: int, _time: int) -> Kept:
    checksum, _, text = path.read_bytes().partition(b"\n")
    if checksum != _checksum(text):
        # Its numbers go to the matcher's tables, which trust them.
        raise NotAvailable(f"{path} is damaged: its checksum does not fit")
    try:
        kept = msgspec.json.decode(text, type=Kept, dec_hook=lambda kind, number: kind(number))
    except msgspec.MsgspecError as error:
        raise NotAvailable(f"{path} is damaged: {error}") from None
    if kept.version != _VERSION:
        raise NotAvailable(f"{path} has version {kept.version}, this crdebug knows {_VERSION}")
    return kept


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


def save(kept: Kept, directory: Path) -> None:
    """Replace the file in one step. Raises OSError."""
    unfinished = directory / f".{_NAME}"
    try:
        text = msgspec.json.encode(kept, enc_hook=int)
        unfinished.write_bytes(_checksum(text) + b"\n" + text)
        unfinished.rename(directory / _NAME)
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


def kept_of(directory: Path, rank: int) -> tuple[KeptRank | None, Names]:
    """One rank's part, with the communicators of all ranks."""
    kept = load(directory)
    if kept is None or not 0 <= rank < len(kept.ranks):
        return None, ()
    return kept.ranks[rank], kept.names


# ---- reading -----------------------------------------------------------------------------------


def read(
    kept: KeptRank,
    names: Sequence[str],
    log: int,
    rank: int,
    into: Matching | None,
    known: Matching,
) -> None:
    """Put it into a log, and into a history if there is one, before anything else is read. known:
    has the numbers of communicators."""
    history, library = into.memory.address if into else None, known.library
    for prepared in kept.prepares:
        call = _struct(prepared, rank, log, names, known)
        library.log_prepare(log, history, table(), calls(1, [call]))
    for number, tick, place, slot in kept.requests:
        library.log_old(log, number, tick, place, slot)
    library.log_begin(log, kept.place, kept.tick, kept.posted)
    if history is None:
        return
    about = [
        KeptStruct(_struct(each, rank, log, names, known), each.of, each.of_slot)
        for each in kept.calls
    ]
    library.history_keep(history, (KeptStruct * len(about))(*about), len(about))
    library.history_blind(history, rank, kept.blind, kept.tick)


def _struct(about: About, rank: int, log: int, names: Sequence[str], known: Matching) -> CallStruct:
    comm = about.comm
    if comm >= 0:
        comm = known.number_of(names[comm])
    elif comm != NO_COMM:
        comm = known.library.log_prepared_comm(log, NO_COMM - 1 - comm)
    return CallStruct(**dict(zip(_FIELDS, about.fields, strict=True)), comm=comm, rank=rank)


# ---- keeping -----------------------------------------------------------------------------------


class Log(Protocol):
    """The part of a RankLog that is used here."""

    @property
    def library(self) -> Library: ...
    @property
    def rank(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def comms(self) -> Mapping[str, tuple[int, ...]]: ...
    def comms_at(self, place: int) -> Any: ...
    def seen_at(self, place: int) -> Any: ...


def keep(matching: Matching, logs: Mapping[int, Log], cut: Cut) -> Kept | None:
    """Everything that is needed of the calls before a cut. None if they have not all been read, or
    if something is under way that cannot be kept: an epoch of a window, by post or start, or a
    request that was cancelled and is not complete."""
    cursors, library = [], matching.library
    for rank, now in enumerate(cut):
        cursor = _cursor(logs[rank], now) if rank in logs else None
        if cursor is None:
            return None
        cursors.append(cursor)
    ticks, found = longs([cursor.tick for cursor in cursors]), Found(library)
    history = matching.memory.address
    if not library.history_kept(history, ticks, len(cut), found.reference):
        return None
    names: dict[str, int] = {}
    structs = structures(found.column, KeptStruct)
    ranks = tuple(
        _keep_rank(logs[rank], cursor, matching, names, [k for k in structs if k.call.rank == rank])
        for rank, cursor in enumerate(cursors)
    )
    members = {name: found for log in logs.values() for name, found in log.comms.items()}
    return Kept(_VERSION, cut, tuple((name, members.get(name, ())) for name in names), ranks)


def begins_at(log: Log, now: Instant) -> int | None:
    """The first place of a log that begins at that instant; None if that has not been read."""
    cursor = _cursor(log, now)
    return None if cursor is None else cursor.place


def _cursor(log: Log, now: Instant) -> Cursor | None:
    found = Cursor()
    return found if log.library.log_cursor(log.address, table(), now.tick, found) else None


def _keep_rank(
    log: Log, cursor: Cursor, matching: Matching, names: dict[str, int], kept: list[KeptStruct]
) -> KeptRank:
    def about(call: CallStruct, of: int = 0, of_slot: int = 0) -> About:
        comm = call.comm
        if comm >= 0:
            comm = names.setdefault(matching.comm_name(comm), len(names))
        elif comm != NO_COMM:
            comm = NO_COMM - 1 - log.library.log_prepared_as(log.address, comm)
        return About(comm, tuple(getattr(call, field) for field in _FIELDS), of, of_slot)

    comms = tuple((number, named.name, named.peers) for number, named in log.comms_at(cursor.place))
    for _, name, _ in comms:
        names.setdefault(name, len(names))
    prepares = structures(log.library.log_prepares(log.address).contents, CallStruct)
    requests = {}
    for call in (each.call for each in kept):
        number = log.library.log_number(log.address, call.tick, call.slot)
        place = log.library.log_place(log.address, table(), call.tick)
        if number >= 0:
            requests[number] = (number, call.tick, max(place, 0), call.slot)
    return KeptRank(
        *(cursor.place, cursor.tick, cursor.posted),
        matching.ranks[log.rank].blind,
        comms,
        tuple(log.seen_at(cursor.place)),
        tuple(about(call) for call in prepares if call.tick <= cursor.tick),
        tuple(about(each.call, each.of, each.of_slot) for each in kept),
        tuple(requests[number] for number in sorted(requests)),
        tuple(sorted({each.call.place for each in kept if each.call.place >= 0})),
    )
