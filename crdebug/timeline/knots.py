"""Who can never go on, of ranks that wait for each other. Pure.

A rank goes on when one of its options is met; an option when all of its groups are; a group when
all, or any, of its ranks go on. (An AND-OR graph; what is left when all is released that can be is
the knot: Holt, Some deadlock properties of computer systems, 1972.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Ranks that must go on: all of them, or any. Share one object where many ranks wait for the
    same. Empty, and for any: that will never be.

    certain: False where the MPI may do without them.
    """

    ranks: Sequence[int]
    every: bool = True
    certain: bool = True


Option = tuple[Group, ...]
Waits = Mapping[int, tuple[Option, ...]]


def knot(waits: Waits, gone: Iterable[int] = (), *, sure: bool = True) -> frozenset[int]:
    """The ranks that cannot go on, whatever those do that do not wait; with those that are gone.

    sure: only what is certain counts: this is a proof.
    """
    ended = frozenset(gone)
    held: dict[int, list[int]] = {}  # rank → the groups it is in
    users: list[list[tuple[int, int]]] = []  # group → ranks and their options that it is part of
    left: list[int] = []  # group → how many of its ranks must still go on
    numbers: dict[int, int] = {}
    open_: dict[tuple[int, int], int] = {}  # rank, option → how many groups are not met
    ready: deque[int] = deque()

    def number_of(group: Group) -> int:
        known = numbers.get(id(group))
        if known is not None:
            return known
        numbers[id(group)] = number = len(left)
        blocked = [rank for rank in group.ranks if rank in waits or rank in ended]
        free = len(blocked) < len(group.ranks)
        if group.every:
            left.append(len(blocked))
        else:
            left.append(0 if free else 1)
        users.append([])
        if left[number]:
            for rank in blocked:
                held.setdefault(rank, []).append(number)
        return number

    released: set[int] = set()
    for rank, options in waits.items():
        for at, option in enumerate(options):
            needed = {number_of(group) for group in option if group.certain or not sure}
            needed = {number for number in needed if left[number]}
            open_[rank, at] = len(needed)
            for number in needed:
                users[number].append((rank, at))
            if not needed and rank not in released:
                released.add(rank)
                ready.append(rank)
    while ready:
        for number in held.get(ready.popleft(), ()):
            if not left[number]:
                continue
            left[number] -= 1
            if left[number]:
                continue
            for rank, at in users[number]:
                open_[rank, at] -= 1
                if not open_[rank, at] and rank not in released:
                    released.add(rank)
                    ready.append(rank)
    return frozenset(waits.keys() - released) | ended


def awaited(
    rank: int, options: Sequence[Option], among: frozenset[int], sure: bool
) -> Iterator[int]:
    """The ranks of a knot that hold this one up, first those that it can name alone."""
    groups = [g for option in options for g in option if g.certain or not sure]
    for group in sorted(groups, key=lambda group: len(group.ranks)):
        yield from (each for each in group.ranks if each in among and each != rank)


def cycle(waits: Waits, stuck: frozenset[int], *, sure: bool = True) -> tuple[int, ...]:
    """Ranks of a knot of which each waits for the next, and the last one for the first; () if all
    waiting ends at one that is gone, or at nobody."""
    seen: set[int] = set()
    for start in sorted(stuck):
        way: dict[int, int] = {}
        at: int | None = start
        while at is not None and at in waits and at not in seen:
            seen.add(at)
            way[at] = len(way)
            at = next(awaited(at, waits[at], stuck, sure), None)
        if at in way:
            found = [*way][way[at] :]
            first = found.index(min(found))
            return tuple(found[first:] + found[:first])
    return ()
