"""Collective calls: which calls of the members belong together, and who waits for whom in them.

All members of a communicator call its collectives in the same order, blocking and nonblocking ones
alike (MPI 4.1, sections 6.1 and 6.12), so the n-th collective call of one member belongs to the
n-th of each other. Constructors of communicators are collective over the parent, and count too.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.needs import NEVER


class Shape(Enum):
    """Whose data reaches whom: who cannot complete before who has entered (MPI 4.1, 6)."""

    ALL = "every member needs all"
    FROM_ROOT = "the others need the root"
    TO_ROOT = "the root needs all others"
    LOWER = "a member needs those before it"


_FROM_ROOT = ("bcast", "scatter", "scatterv")
_TO_ROOT = ("reduce", "gather", "gatherv")
_LOWER = ("scan", "exscan")

# Begin and end of MPI are collective over all ranks, and no communicator's calls.
_ENDS = {"MPI_Init": "(init)", "MPI_Init_thread": "(init)", "MPI_Finalize": "(finalize)"}


def shape_of(name: str) -> Shape:
    """The shape of an operation by its name: MPI_Bcast, MPI_Ibcast, MPI_Bcast_init..."""
    word = name.removeprefix("MPI_").lower()
    for operation in (word, word.removeprefix("i")):
        if operation in _FROM_ROOT:
            return Shape.FROM_ROOT
        if operation in _TO_ROOT:
            return Shape.TO_ROOT
        if operation in _LOWER:
            return Shape.LOWER
    return Shape.ALL


def communicator_of(call: Call) -> str:
    """The communicator whose members take part in the call, or "" if it is no collective call.

    Those over MPI_COMM_SELF concern nobody else. MPI_Comm_create_group is collective over a group
    that no record names (MPI 4.1, 7.4.2).
    """
    if call.name in _ENDS:
        return _ENDS[call.name]
    if call.kind not in (Kind.COLLECTIVE, Kind.POST_COLLECTIVE, Kind.COMM):
        return ""
    if call.comm == "self" or call.name == "MPI_Comm_create_group":
        return ""
    return call.comm


@dataclass(frozen=True, slots=True)
class Instance:
    """One collective operation: the `number`-th over its communicator, from 0.

    entered: the tick of each participant's call, of those that have called so far.
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


@dataclass(slots=True)
class Succession:
    """The collectives of one communicator, in order."""

    comm: str
    members: tuple[int, ...] = ()  # empty while unknown
    entered: dict[int, array[int]] = field(default_factory=dict)
    completed: dict[int, array[int]] = field(default_factory=dict)  # NEVER while it has not
    names: list[str] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)  # -1 where there is none
    posted: set[int] = field(default_factory=set)  # the nonblocking ones
    # instances that complete in the call itself, by shape and root; and all of them
    _shaped: dict[tuple[Shape, int], array[int]] = field(default_factory=dict)
    _blocking: array[int] = field(default_factory=lambda: array("q"))

    def enter(self, call: Call) -> int:
        """Note a member's next call; return the instance's number."""
        own = self.entered.get(call.rank)
        if own is None:
            own = self.entered[call.rank] = array("q")
            self.completed[call.rank] = array("q")
        number = len(own)
        own.append(call.tick)
        posted = call.kind is Kind.POST_COLLECTIVE
        self.completed[call.rank].append(NEVER if posted else call.tick)
        if number == len(self.names):  # the first to come tells what it is
            shape = shape_of(call.name)
            rooted = shape in (Shape.FROM_ROOT, Shape.TO_ROOT) and call.peer is not None
            root = call.peer if rooted and call.peer is not None else -1
            if root < 0 and shape in (Shape.FROM_ROOT, Shape.TO_ROOT):
                shape = Shape.ALL  # between groups, or a root that is not known
            self.names.append(call.name)
            self.roots.append(root)
            if posted:
                self.posted.add(number)
            else:
                self._blocking.append(number)
                self._shaped.setdefault((shape, root), array("q")).append(number)
        return number

    def shape(self, number: int) -> Shape:
        shape = shape_of(self.names[number])
        rooted = shape in (Shape.FROM_ROOT, Shape.TO_ROOT)
        return Shape.ALL if rooted and self.roots[number] < 0 else shape

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

    def _place(self, rank: int) -> int:
        return self.members.index(rank) if rank in self.members else rank

    def held_up(
        self, absent: int, first: int, last: int, floors: Sequence[int], *, trees: bool
    ) -> Iterator[Need]:
        """What cannot complete while `absent` has not entered its calls of ticks >= first.

        Per waiting rank, the earliest is enough. Not beyond `last`; and not what is at or before
        the floor of the waiter, which is known to have completed. trees: everybody may have to pass
        data on, so everybody is needed. Of the calls that complete in themselves only.
        """
        own = self.entered.get(absent)
        if own is None:
            return
        start, stop = bisect_left(own, first), bisect_right(own, last)
        if start >= stop:
            return
        lists = [(Shape.ALL, -1, self._blocking)] if trees else self._lists()
        for shape, root, numbers in lists:
            if shape is Shape.FROM_ROOT and absent != root:
                continue
            for waiter, ticks in self.entered.items():
                if waiter == absent or (shape is Shape.TO_ROOT and waiter != root):
                    continue
                if shape is Shape.LOWER and self._place(waiter) < self._place(absent):
                    continue
                least = max(start, bisect_right(ticks, floors[waiter]))
                at = bisect_left(numbers, least)
                if at < len(numbers) and numbers[at] < min(stop, len(ticks)):
                    yield Need(waiter, ticks[numbers[at]])

    def past(self, rank: int, tick: int) -> Iterator[Need]:
        """What others have entered because `rank` completed its calls up to `tick`: rank, tick."""
        own = self.entered.get(rank)
        if own is None:
            return
        done = bisect_right(own, tick)
        for shape, root, numbers in self._lists():
            at = bisect_left(numbers, done) - 1
            if at < 0 or (shape is Shape.TO_ROOT and rank != root):
                continue
            for other, ticks in self.entered.items():
                if other == rank or (shape is Shape.FROM_ROOT and other != root):
                    continue
                if shape is Shape.LOWER and self._place(other) > self._place(rank):
                    continue
                if numbers[at] < len(ticks):
                    yield Need(other, ticks[numbers[at]])

    def _lists(self) -> list[tuple[Shape, int, array[int]]]:
        return [(shape, root, numbers) for (shape, root), numbers in self._shaped.items()]

    def instance_at(self, rank: int, tick: int) -> Instance | None:
        """The collective that a rank called at this tick, if it did."""
        ticks = self.entered.get(rank, array("q"))
        at = bisect_left(ticks, tick)
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
            self.names[number],
            self.shape(number),
            None if root < 0 else root,
            entered,
            {rank: tick for rank, tick in done.items() if tick != NEVER},
            tuple(rank for rank in self.members if rank not in entered),
        )
