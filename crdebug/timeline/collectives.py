"""Collective calls: which calls of the members belong together, and who waits for whom in them.

All members of a communicator call its collectives in the same order, blocking and nonblocking ones
alike (MPI 4.1, sections 6.1 and 6.12), so the n-th collective call of one member belongs to the
n-th of each other. What prepares a persistent one is a collective call, too; its starts are in an
order of their own (native/matcher/history_together.c). Constructors of communicators and windows
are collective over the parent, and count too; fences of a window and its end are in an order of
their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from crdebug.native.matcher.library import (
    Column,
    Longs,
    Owner,
    ShapedStruct,
    SuccessionStruct,
    structures,
)
from crdebug.native.recorder import mpi_calls
from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.needs import NEVER


class Shape(Enum):
    """Which members must have entered before which others can complete (MPI 4.1, chapter 6)."""

    ALL = "every member needs all"
    FROM_ROOT = "the others need the root"
    TO_ROOT = "the root needs all others"
    LOWER = "a member needs those before it"
    NOBODY = "no member is sure to need another"


_FROM_ROOT = ("bcast", "scatter", "scatterv")
_TO_ROOT = ("reduce", "gather", "gatherv")
_LOWER = ("scan", "exscan")
_SHAPES = tuple(Shape)

OF_WINDOWS = frozenset(
    (
        "MPI_Win_create",
        "MPI_Win_create_dynamic",
        "MPI_Win_allocate",
        "MPI_Win_allocate_shared",
        "MPI_Win_fence",
        "MPI_Win_free",
    )
)
"""One-sided calls that are collective: over a communicator, or a window (MPI 4.1, 12.2, 12.5.1)."""

SAME_SIZE = frozenset(
    form
    for name in (
        *("Allgather", "Allreduce", "Alltoall", "Bcast", "Exscan", "Gather", "Reduce"),
        *("Reduce_scatter_block", "Scan", "Scatter"),
    )
    for form in (f"MPI_{name}", f"MPI_I{name.lower()}", f"MPI_{name}_init")
)
"""Of these all members give as many bytes, as the types' signatures have to be the same."""

# Begin and end of MPI are collective over all ranks, and no communicator's calls.
_ENDS = {"MPI_Init": "(init)", "MPI_Init_thread": "(init)", "MPI_Finalize": "(finalize)"}


def shape_of(name: str) -> Shape:
    """The shape of an operation by its name: MPI_Bcast, MPI_Ibcast, MPI_Bcast_init..."""
    word = name.removeprefix("MPI_").lower()
    for operation in (word, word.removeprefix("i"), word.removesuffix("_init")):
        if operation in _FROM_ROOT:
            return Shape.FROM_ROOT
        if operation in _TO_ROOT:
            return Shape.TO_ROOT
        if operation in _LOWER:
            return Shape.LOWER
    return Shape.ALL


def is_collective(call: Call) -> bool:
    """Do the members of a communicator, or of a window, make this call together?"""
    collective = call.kind in (Kind.COLLECTIVE, Kind.POST_COLLECTIVE, Kind.COMM)
    return collective or call.name in OF_WINDOWS


def communicator_of(call: Call) -> str:
    """The communicator, or window, whose members make this call together; "" if they do not.

    A collective over MPI_COMM_SELF concerns nobody else. MPI_Comm_create_group is collective over a
    group that no record names (MPI 4.1, 7.4.2).
    """
    if call.name in _ENDS:
        return _ENDS[call.name]
    if not is_collective(call):
        return ""
    if call.comm == "self" or call.name == "MPI_Comm_create_group":
        return ""
    return call.comm


@dataclass(frozen=True, slots=True)
class Instance:
    """One collective operation: the `number`-th over its communicator, from 0.

    entered: the tick of the call of each participant that has called so far.
    completed: the tick at which it completed there; absent where it has not.
    missing: members that have not called yet, as far as the members are known.
    last: who entered last, if the arrivals are ordered by causality; else None.
    """

    comm: str
    number: int
    name: str
    shape: Shape
    root: int | None
    entered: dict[int, int]
    completed: dict[int, int]
    missing: tuple[int, ...] = ()
    last: int | None = None


class Need(NamedTuple):
    """A completion at `tick` of `rank` that needs the entry of another; see NeedList."""

    rank: int
    tick: int


class Succession:
    """The collectives of one communicator, in order."""

    def __init__(self, comm: str, struct: SuccessionStruct, owner: Owner) -> None:
        self.comm = comm
        self._struct = struct
        self._owner = owner
        self.roots = Column(struct.roots, owner)  # -1 where there is none
        # those that complete in the call itself
        self._blocking = Column(struct.blocking, owner)

    @property
    def members(self) -> tuple[int, ...]:
        """Empty while they are unknown."""
        return tuple(Column(self._struct.members, self._owner))

    @property
    def entered(self) -> dict[int, Column]:
        """By rank, the ticks of its calls."""
        return self._by_rank(self._struct.entered)

    @property
    def completed(self) -> dict[int, Column]:
        """By rank, the ticks at which they completed; NEVER where they have not."""
        return self._by_rank(self._struct.completed)

    def _by_rank(self, column: Any) -> dict[int, Column]:
        ranks = Column(self._struct.ranks, self._owner)
        return {
            rank: Column(each, self._owner)
            for rank, each in zip(ranks, structures(column, Longs), strict=True)
        }

    @property
    def blocking(self) -> Column:
        """The numbers of those that complete in the call itself."""
        return self._blocking

    def name(self, number: int) -> str:
        """The name of the MPI function, as the first participant called it."""
        return mpi_calls.BY_NUMBER[self._struct.names.data[number]].full

    def shape(self, number: int) -> Shape:
        return _SHAPES[int(self._struct.shape.data[number])]

    def needs(self, number: int, waiter: int, other: int) -> bool:
        """Whether `waiter` cannot complete this one before `other` has entered it."""
        root = self.roots[number]
        match self.shape(number):
            case Shape.ALL:
                return True
            case Shape.FROM_ROOT:
                return other == root
            case Shape.TO_ROOT:
                return waiter == root
            case Shape.LOWER:
                return self._place(other) < self._place(waiter)
            case Shape.NOBODY:
                return False

    def _place(self, rank: int) -> int:
        return self.members.index(rank) if rank in self.members else rank

    def held_up(
        self, absent: int, first: int, last: int, floors: Sequence[int], *, trees: bool
    ) -> Iterator[Need]:
        """The calls that cannot complete while `absent` has not entered its calls of ticks >=
        first.

        Only the earliest of each waiting rank; only up to `last`; and none at or before the floor
        of the waiter, which is known to have completed. trees: any member may have to pass data on,
        so all are needed. Only calls that complete in themselves count.
        """
        own = self.entered.get(absent)
        if own is None:
            return
        start, stop = own.first_at(first), own.first_at(last + 1)
        if start >= stop:
            return
        lists = [(Shape.ALL, -1, self._blocking)] if trees else self._lists()
        for shape, root, numbers in lists:
            if shape is Shape.NOBODY or (shape is Shape.FROM_ROOT and absent != root):
                continue
            for waiter, ticks in self.entered.items():
                if waiter == absent or (shape is Shape.TO_ROOT and waiter != root):
                    continue
                if shape is Shape.LOWER and self._place(waiter) < self._place(absent):
                    continue
                least = max(start, ticks.first_at(floors[waiter] + 1))
                at = numbers.first_at(least)
                if at < len(numbers) and numbers[at] < min(stop, len(ticks)):
                    yield Need(waiter, ticks[numbers[at]])

    def past(self, rank: int, tick: int) -> Iterator[Need]:
        """The calls that others have entered before `rank` completed its calls up to `tick`."""
        own = self.entered.get(rank)
        if own is None:
            return
        done = own.first_at(tick + 1)
        for shape, root, numbers in self._lists():
            at = numbers.first_at(done) - 1
            if at < 0 or shape is Shape.NOBODY or (shape is Shape.TO_ROOT and rank != root):
                continue
            for other, ticks in self.entered.items():
                if other == rank or (shape is Shape.FROM_ROOT and other != root):
                    continue
                if shape is Shape.LOWER and self._place(other) > self._place(rank):
                    continue
                if numbers[at] < len(ticks):
                    yield Need(other, ticks[numbers[at]])

    def _lists(self) -> list[tuple[Shape, int, Column]]:
        """The numbers of those that complete in the call itself, by shape and root."""
        shapes = structures(self._struct.shapes, ShapedStruct)
        return [
            (_SHAPES[each.shape], each.root, Column(each.numbers, self._owner)) for each in shapes
        ]

    def instance_at(self, rank: int, tick: int) -> Instance | None:
        """The collective that a rank called at this tick, if it did."""
        ticks = self.entered.get(rank)
        if ticks is None:
            return None
        at = ticks.first_at(tick)
        return self.instance(at) if at < len(ticks) and ticks[at] == tick else None

    def instance(self, number: int) -> Instance:
        entered = {
            rank: ticks[number] for rank, ticks in self.entered.items() if number < len(ticks)
        }
        done = {rank: self.completed[rank][number] for rank in entered}
        root = self.roots[number]
        return Instance(
            self.comm,
            number,
            self.name(number),
            self.shape(number),
            None if root < 0 else root,
            entered,
            {rank: tick for rank, tick in done.items() if tick != NEVER},
            tuple(rank for rank in self.members if rank not in entered),
        )
