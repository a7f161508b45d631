"""Collectives that ranks are in: who is there, who is missing, and what does not fit. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from crdebug.native.matcher.library import Column
from crdebug.native.recorder.doing import Peer
from crdebug.timeline.asked import Asked
from crdebug.timeline.calls import Call, Kind, entered_last
from crdebug.timeline.collectives import Shape, Succession, communicator_of, shape_of
from crdebug.timeline.knots import Group
from crdebug.timeline.matching import Matching

_FEW = 64  # members that a prefix of a scan is looked at for
_SAME_SIZE = (
    *("MPI_Bcast", "MPI_Reduce", "MPI_Allreduce", "MPI_Scan", "MPI_Exscan", "MPI_Gather"),
    *("MPI_Scatter", "MPI_Allgather", "MPI_Alltoall", "MPI_Reduce_scatter_block"),
)
_BY_GROUP = ("MPI_Comm_create_group",)
_LOCAL = ("MPI_Comm_free",)  # nobody need wait in it


@dataclass(slots=True, eq=False)
class Meeting:
    """The `number`-th collective of a communicator (from 0).

    name: as the first rank called it. inside: those that are in it now. missing: members that have
    not come, but for those that may be in it though their record does not say it. gone: those that
    have left it, or only posted it, with their calls; None where that is not on record. root: a
    world rank, or less than 0.
    """

    comm: str
    number: int
    name: str
    shape: Shape
    root: int
    inside: dict[int, Asked]
    gone: dict[int, Call | None]
    members: tuple[int, ...]
    missing: tuple[int, ...]
    differs: bool = field(init=False)  # do they disagree about the operation, or its root?
    all_missing: Group = field(init=False)
    any_missing: dict[bool, Group] = field(default_factory=dict)
    _places: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        names = {each.call for each in self.inside.values()} | {self.name}
        names |= {each.name for each in self.gone.values() if each is not None}
        self.differs = len(names) > 1 or len(self._roots()) > 1
        self.all_missing = Group(self.missing)
        self._places = {rank: place for place, rank in enumerate(self.members)}

    def _roots(self) -> dict[int, list[int]]:
        """By root, the ranks that are inside, or have posted it, and say so; empty if it has
        none."""
        said = {rank: each.peer for rank, each in self.inside.items()}
        for rank, call in self.gone.items():
            if call is not None and call.kind is Kind.POST_COLLECTIVE and call.peer is not None:
                said[rank] = call.peer
        found: dict[int, list[int]] = {}
        for rank, root in sorted(said.items()) if self.root >= 0 else ():
            found.setdefault(root, []).append(rank)
        return found

    def needed_by(self, rank: int) -> Group | None:
        """Those that must come before the rank can leave; None if there is nobody."""
        match self.shape:
            case Shape.FROM_ROOT if self.root >= 0:
                return Group((self.root,)) if self.root in self.missing else None
            case Shape.TO_ROOT if self.root >= 0 and rank != self.root:
                return None
            case Shape.LOWER:
                places, own = self._places, self._places.get(rank, 0)
                lower = tuple(each for each in self.missing[:_FEW] if places[each] < own)
                return Group(lower) if lower else None
            case Shape.NOBODY:
                return None
        if self.shape in (Shape.FROM_ROOT, Shape.TO_ROOT) and self.root < 0:
            return None
        return self.all_missing if self.missing else None

    def doubtful(self, *, certain: bool) -> Group:
        """One of those that are missing, at least."""
        if certain not in self.any_missing:
            self.any_missing[certain] = Group(self.missing, every=False, certain=certain)
        return self.any_missing[certain]

    @property
    def in_one_group(self) -> bool:
        """Do all members belong to one group, whose data have one size?"""
        return "|" not in self.comm

    def what_differs(self) -> tuple[str, dict[str, list[int]]] | None:
        """What its members disagree about (call, root, operation, size), and which say what; of the
        last two, those that are inside."""
        for what, said in self._said():
            if len(said) > 1:
                return what, said
        return None

    def _said(self) -> Iterator[tuple[str, dict[str, list[int]]]]:
        calls: dict[str, list[int]] = {self.name: []}
        for rank, call in self.gone.items():
            calls.setdefault(call.name if call is not None else self.name, []).append(rank)
        operations: dict[str, list[int]] = {}
        sizes: dict[str, list[int]] = {}
        for each in self.inside.values():
            calls.setdefault(each.call, []).append(each.rank)
            operations.setdefault(each.op, []).append(each.rank)
            sizes.setdefault(f"{each.bytes} bytes", []).append(each.rank)
        yield "call", calls
        yield "root", {str(root): ranks for root, ranks in self._roots().items()}
        if "" not in operations:  # the program's own may be the same on all
            yield "operation", operations
        if self.name in _SAME_SIZE and self.in_one_group:
            yield "size", sizes


class Meetings:
    """By communicator, or window, the collectives that ranks are in.

    calls: of each rank, as far as they are known.
    """

    def __init__(
        self,
        matching: Matching,
        asked: Mapping[int, Asked],
        size: int,
        calls: Mapping[int, Sequence[Call]],
    ) -> None:
        self._matching = matching
        self._calls = calls
        self._size = size
        self._known: dict[tuple[str, int], Meeting | None] = {}
        self._inside: dict[tuple[str, int], dict[int, Asked]] = {}
        self._members: dict[str, tuple[int, ...]] = {}
        self._cached: dict[str, Mapping[int, Column]] = {}
        # Those of whom it is not known how often they were there before: by communicator and call.
        self._perhaps: dict[tuple[str, str], set[int]] = {}
        for each in asked.values():
            place = self._place(each)
            if place is not None:
                self._inside.setdefault(place, {})[each.rank] = each
            if each.blind and each.comm:
                self._perhaps.setdefault((each.comm, each.call), set()).add(each.rank)

    def members(self, comm: str) -> tuple[int, ...]:
        """World ranks; empty while they are unknown."""
        if comm not in self._members:
            succession = self._matching.successions.get(comm)
            found = succession.members if succession is not None else ()
            everybody = comm in ("world", "(finalize)", "(init)")
            self._members[comm] = tuple(range(self._size)) if everybody else found
        return self._members[comm]

    def of(self, each: Asked) -> Meeting | None:
        place = self._place(each)
        return None if place is None else self.number(*place)

    def all(self) -> list[Meeting]:
        """Those that somebody is in, and those that were asked for."""
        for place in self._inside:
            self.number(*place)
        return [each for each in self._known.values() if each is not None]

    def number(self, comm: str, number: int) -> Meeting | None:
        if (comm, number) not in self._known:
            self._known[comm, number] = self._make(comm, number)
        return self._known[comm, number]

    def _place(self, each: Asked) -> tuple[str, int] | None:
        call = Call(each.rank, each.tick, each.call, each.kind, comm=each.comm)
        comm = communicator_of(call)
        if not comm or each.call in _LOCAL or each.blind:
            return None
        return comm, self._entered(comm, each.rank)

    def _entered(self, comm: str, rank: int) -> int:
        ticks = self._columns(comm).get(rank)
        return 0 if ticks is None else len(ticks)

    def _columns(self, comm: str) -> Mapping[int, Column]:
        if comm not in self._cached:
            succession = self._matching.successions.get(comm)
            self._cached[comm] = {} if succession is None else succession.entered
        return self._cached[comm]

    def _make(self, comm: str, number: int) -> Meeting | None:
        inside, members = self._inside.get((comm, number), {}), self.members(comm)
        succession = self._matching.successions.get(comm)
        known = succession is not None and number < len(succession.roots)
        if not members or not (known or inside):
            return None
        first = next(iter(inside.values()), None)
        name, root, shape = _told(succession, number) if known and succession else _said(first)
        if "|" in comm:  # the other group's members are needed, and perhaps nobody else
            root, shape = Peer.NONE, Shape.NOBODY
        if comm == "(finalize)":  # it need not be a barrier
            shape = Shape.NOBODY
        perhaps = self._perhaps.get((comm, name), set())
        absent = {rank for rank in members if self._entered(comm, rank) <= number} | {*inside}
        missing = tuple(rank for rank in members if rank in absent - perhaps and rank not in inside)
        gone = {rank: self._call(comm, rank, number) for rank in members if rank not in absent}
        return Meeting(comm, number, name, shape, root, inside, gone, members, missing)

    def _call(self, comm: str, rank: int, number: int) -> Call | None:
        """Of a rank that has made it, if that is on record."""
        tick = self._columns(comm)[rank][number]
        call = entered_last(self._calls.get(rank, ()), tick)
        return call if call is not None and call.tick == tick else None


def _told(succession: Succession, number: int) -> tuple[str, int, Shape]:
    return succession.name(number), succession.roots[number], succession.shape(number)


def _said(first: Asked | None) -> tuple[str, int, Shape]:
    assert first is not None
    shape = Shape.NOBODY if first.opens else shape_of(first.call)
    rooted = shape in (Shape.FROM_ROOT, Shape.TO_ROOT)
    return first.call, first.peer if rooted else Peer.NONE, shape
