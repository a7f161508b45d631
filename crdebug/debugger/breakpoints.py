"""Logical breakpoints: the user's objects, as distinct from the locations in each GDB. Pure.

A breakpoint belongs to the user: it survives detach and re-attach with the same GDB (GDB keeps
its own), goes into a new GDB by `request`, and into another session by `kept` and `put`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from crdebug.base.answers import classes
from crdebug.base.errors import BadInput
from crdebug.base.events import Location, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger import python_lines
from crdebug.debugger.target import BreakpointRequest, Inserted, PointKind

_AT_POINTS = (StopReason.BREAKPOINT, StopReason.WATCHPOINT, StopReason.CATCHPOINT)


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """A user's breakpoint.

    number: the user's, the same on all ranks.
    location: as the user wrote it.
    ranks: those that it is meant for and that have it.
    temporary: the first hit deletes it, from all ranks if they run together; if each rank runs
    independently, only from that rank.
    ignore: the number of further hits that do not stop, on the rank with the most left.
    places: by rank; an empty tuple means pending: the location is not loaded yet.
    problems: GDB's message, for the ranks that refused it.
    hits: over all ranks.
    kind: the event that makes it stop.
    commands: lines for the console, run after a stop at it.
    """

    number: int
    location: str
    ranks: RankSet
    condition: str = ""
    temporary: bool = False
    ignore: int = 0
    enabled: bool = True
    places: Mapping[int, tuple[Location, ...]] = field(default_factory=dict)
    problems: Mapping[int, str] = field(default_factory=dict)
    hits: int = 0
    kind: PointKind = PointKind.BREAK
    commands: tuple[str, ...] = ()

    @property
    def in_python(self) -> bool:
        """Is it at a line of Python?"""
        return self.kind is PointKind.BREAK and python_lines.place(self.location) is not None

    @property
    def pending(self) -> RankSet:
        """The ranks that have it, but have not loaded its location yet."""
        if self.kind is not PointKind.BREAK:
            return RankSet()
        return RankSet.of(rank for rank in self.ranks if not self.places.get(rank))

    def merged_places(self) -> tuple[tuple[RankSet, tuple[Location, ...]], ...]:
        """Equal places as one class. Addresses do not count: they differ from rank to rank."""
        keys = (
            (rank, tuple((place.function, place.file, place.line) for place in places))
            for rank, places in self.places.items()
        )
        return tuple((ranks, self.places[ranks.first]) for ranks, _ in classes(keys))


@dataclass(slots=True)
class _Entry:
    """A breakpoint, and its state in the ranks' GDBs.

    hits: by rank, over all GDBs that this rank has had.
    earlier: by rank, the hits in earlier GDBs.
    ignore: by rank, the number of further hits that do not stop.
    """

    breakpoint: Breakpoint
    gdb_numbers: dict[int, int] = field(default_factory=dict)
    hits: dict[int, int] = field(default_factory=dict)
    earlier: dict[int, int] = field(default_factory=dict)
    ignore: dict[int, int] = field(default_factory=dict)


class StoredBreakpoint(msgspec.Struct, frozen=True):
    """A breakpoint as crdebug stores it between sessions; see Breakpoint.

    ignore, hits: by rank.
    """

    number: int
    location: str
    ranks: tuple[int, ...]
    kind: PointKind
    condition: str
    temporary: bool
    enabled: bool
    commands: tuple[str, ...]
    ignore: dict[int, int]
    hits: dict[int, int]


def _stored(entry: _Entry) -> StoredBreakpoint:
    point = entry.breakpoint
    places = [place for at in point.places.values() for place in at]
    location = point.location
    if location.startswith("*") and len({place.address for place in places}) == 1:
        location = f"*{places[0].address:#x}"  # the user may have named a register
    return StoredBreakpoint(
        point.number,
        location,
        tuple(point.ranks),
        point.kind,
        point.condition,
        point.temporary,
        point.enabled,
        point.commands,
        dict(entry.ignore),
        dict(entry.hits),
    )


class BreakpointTable:
    """The breakpoints of a group, with their numbers by the user's count and by each GDB's.

    Numbers are not used again.
    """

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._logical: dict[tuple[int, int], int] = {}
        self._last = 0

    # ---- the user's side ----------------------------------------------------------------------

    def all(self) -> tuple[Breakpoint, ...]:
        """By number."""
        return tuple(entry.breakpoint for entry in self._entries.values())

    def get(self, number: int) -> Breakpoint:
        """Raises BadInput if there is no such number."""
        return self._entry(number).breakpoint

    def add(self, ranks: RankSet, request: BreakpointRequest) -> Breakpoint:
        """A new breakpoint, in no GDB yet."""
        self._last += 1
        new = Breakpoint(
            self._last,
            request.location,
            ranks,
            request.condition,
            request.temporary,
            request.ignore,
            request.enabled,
            kind=request.kind,
        )
        self._entries[new.number] = _Entry(new)
        return new

    def kept(self) -> tuple[StoredBreakpoint, ...]:
        """All of them, for another session."""
        return tuple(_stored(entry) for entry in self._entries.values())

    def put(self, kept: StoredBreakpoint) -> None:
        """Add a breakpoint of another session, in no GDB yet."""
        ranks = RankSet.of(kept.ranks)
        self._last = max(self._last, kept.number)
        new = Breakpoint(
            kept.number,
            kept.location,
            ranks,
            kept.condition,
            kept.temporary,
            max(kept.ignore.values(), default=0),
            kept.enabled,
            hits=sum(kept.hits.values()),
            kind=kept.kind,
            commands=kept.commands,
        )
        self._entries[new.number] = _Entry(new, hits=dict(kept.hits), ignore=dict(kept.ignore))

    def withdraw(self, number: int) -> None:
        """Forget the breakpoint that was just added, if no GDB accepted it: this frees its
        number."""
        self.remove(number)
        self._last = number - 1

    def remove(self, number: int) -> Mapping[int, int]:
        """Forget a breakpoint. Returns GDB's numbers for it, by rank. Raises BadInput."""
        entry = self._entry(number)
        del self._entries[number]
        return entry.gdb_numbers

    def change(
        self,
        number: int,
        *,
        condition: str | None = None,
        enabled: bool | None = None,
        ignore: int | None = None,
        commands: tuple[str, ...] | None = None,
    ) -> None:
        """Note a change that was made in the GDBs. Raises BadInput if there is no such number."""
        entry = self._entry(number)
        if ignore is not None:
            entry.ignore = dict.fromkeys(entry.gdb_numbers, ignore)
            entry.breakpoint = replace(entry.breakpoint, ignore=ignore)
        if commands is not None:
            entry.breakpoint = replace(entry.breakpoint, commands=commands)
        if condition is not None:
            entry.breakpoint = replace(entry.breakpoint, condition=condition)
        if enabled is not None:
            entry.breakpoint = replace(entry.breakpoint, enabled=enabled)

    def gdb_numbers(self, number: int) -> Mapping[int, int]:
        """GDB's numbers for a breakpoint, by rank. Raises BadInput."""
        return dict(self._entry(number).gdb_numbers)

    # ---- the ranks' side ----------------------------------------------------------------------

    def bind(self, number: int, rank: int, inserted: Inserted) -> None:
        """A rank's GDB has it now."""
        entry = self._entry(number)
        entry.gdb_numbers[rank] = inserted.gdb_number
        entry.earlier[rank] = entry.hits.get(rank, 0)
        self._logical[rank, inserted.gdb_number] = number
        problems = {key: text for key, text in entry.breakpoint.problems.items() if key != rank}
        ranks = entry.breakpoint.ranks | RankSet.of([rank])
        entry.breakpoint = replace(entry.breakpoint, ranks=ranks, problems=problems)
        self.changed(rank, inserted)

    def refuse(self, number: int, rank: int, problem: str) -> None:
        """A rank's GDB has refused it: drop the rank, and keep the reason."""
        self._drop(self._entry(number), rank)
        entry = self._entry(number)
        problems = {**entry.breakpoint.problems, rank: problem}
        entry.breakpoint = replace(entry.breakpoint, problems=problems)

    def changed(self, rank: int, inserted: Inserted) -> None:
        """A rank's GDB resolved, moved or hit a breakpoint. Ignores breakpoints that are not
        ours."""
        entry = self._entries.get(self._logical.get((rank, inserted.gdb_number), 0))
        if entry is None or rank not in entry.gdb_numbers:
            return
        entry.hits[rank] = entry.earlier.get(rank, 0) + inserted.hits
        there = entry.breakpoint.places.get(rank)
        if there is None or not entry.breakpoint.in_python:  # else GDB knows another place
            there = inserted.locations
        places = {**entry.breakpoint.places, rank: there}
        hits = sum(entry.hits.values())
        entry.ignore[rank] = inserted.ignore
        ignore = max(entry.ignore.values())
        entry.breakpoint = replace(entry.breakpoint, places=places, hits=hits, ignore=ignore)

    @contextlib.contextmanager
    def uncounted(self, rank: int) -> Iterator[None]:
        """Inside the block a rank's hits do not count: it replays its history."""
        before = {number: entry.hits.get(rank, 0) for number, entry in self._entries.items()}
        try:
            yield
        finally:
            for number, entry in self._entries.items():
                more = entry.hits.get(rank, 0) - before.get(number, 0)
                if more:
                    entry.earlier[rank] = entry.earlier.get(rank, 0) - more
                    entry.hits[rank] -= more
                    entry.breakpoint = replace(entry.breakpoint, hits=sum(entry.hits.values()))

    def gone(self, rank: int, gdb_number: int) -> None:
        """A rank's GDB deleted it. When no rank is left, the breakpoint is gone as a whole."""
        # The way from GDB's number stays known: the stop that deleted it may be told later.
        number = self._logical.get((rank, gdb_number), 0)
        entry = self._entries.get(number)
        if entry is not None and entry.gdb_numbers.get(rank) == gdb_number:
            self._drop(entry, rank)
            if not entry.breakpoint.ranks:
                del self._entries[number]

    def spent(self, stops: Iterable[RankStopped]) -> dict[int, dict[int, int]]:
        """The temporary breakpoints that these stops (with GDB's numbers) hit: by number, the ranks
        that still have them, with GDB's numbers. (A GDB deletes a temporary breakpoint when its
        rank hits it.)"""
        found: dict[int, dict[int, int]] = {}
        for stop in stops:
            number = self._logical.get((stop.rank, _number(stop)), 0)
            entry = self._entries.get(number)
            if entry is not None and entry.breakpoint.temporary:
                found.setdefault(number, dict(entry.gdb_numbers)).pop(stop.rank, None)
        return found

    def lost(self, rank: int) -> tuple[Breakpoint, ...]:
        """A rank has lost its GDB. Returns the breakpoints to insert into a new one."""
        self._logical = {key: number for key, number in self._logical.items() if key[0] != rank}
        for entry in self._entries.values():
            entry.gdb_numbers.pop(rank, None)
        return self.missing(rank)

    def missing(self, rank: int) -> tuple[Breakpoint, ...]:
        """The breakpoints that are meant for a rank, but are not in its GDB."""
        return tuple(
            entry.breakpoint
            for entry in self._entries.values()
            if rank in entry.breakpoint.ranks and rank not in entry.gdb_numbers
        )

    def request(self, number: int, rank: int) -> BreakpointRequest:
        """The request to a rank's GDB. Raises BadInput."""
        entry = self._entry(number)
        wanted = entry.breakpoint
        return BreakpointRequest(
            wanted.location,
            wanted.condition,
            wanted.temporary,
            entry.ignore.get(rank, wanted.ignore),
            wanted.enabled,
            wanted.kind,
        )

    def translate(self, stop: RankStopped) -> RankStopped:
        """A stop with the user's number in its detail; ``gdb 5`` for a breakpoint that the user set
        in GDB itself."""
        if stop.reason not in _AT_POINTS or not stop.detail.isdigit():
            return stop
        number = self._logical.get((stop.rank, int(stop.detail)))
        if number is None:
            return replace(stop, detail=f"gdb {stop.detail}")
        entry = self._entries.get(number)
        if entry is not None and entry.breakpoint.kind is PointKind.CATCH:
            # GDB catches C++ exceptions by a breakpoint
            note = stop.note or entry.breakpoint.location
            return replace(stop, reason=StopReason.CATCHPOINT, detail=str(number), note=note)
        return replace(stop, detail=str(number))

    def points(self, number: int) -> dict[int, tuple[int, tuple[int, ...]]]:
        """By rank, GDB's number for this breakpoint, and its addresses. Raises BadInput."""
        entry = self._entry(number)
        places = entry.breakpoint.places
        return {
            rank: (gdb_number, tuple(each.address for each in places.get(rank, ())))
            for rank, gdb_number in entry.gdb_numbers.items()
        }

    def _entry(self, number: int) -> _Entry:
        try:
            return self._entries[number]
        except KeyError:
            known = ", ".join(str(each) for each in self._entries) or "none"
            raise BadInput(
                f"there is no breakpoint {number}", hint=f"the breakpoints: {known}"
            ) from None

    @staticmethod
    def _drop(entry: _Entry, rank: int) -> None:
        entry.gdb_numbers.pop(rank, None)
        entry.ignore.pop(rank, None)
        places = {key: value for key, value in entry.breakpoint.places.items() if key != rank}
        ranks = entry.breakpoint.ranks - RankSet.of([rank])
        entry.breakpoint = replace(entry.breakpoint, ranks=ranks, places=places)


def _number(stop: RankStopped) -> int:
    """GDB's number of the breakpoint that stopped a rank, or 0."""
    at_breakpoint = stop.reason is StopReason.BREAKPOINT and stop.detail.isdigit()
    return int(stop.detail) if at_breakpoint else 0
