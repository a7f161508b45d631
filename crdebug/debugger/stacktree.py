"""The stacks of many ranks as one tree of calls. Pure.

We merge stacks from the outermost frame on, as STAT does (Arnold et al., Stack Trace Analysis for
Large Scale Debugging, IPDPS 2007): the tree branches where the stacks begin to differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from crdebug.base.events import Location
from crdebug.base.ranks import RankSet
from crdebug.debugger.target import Frame

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """Calls that some stacks have in common, up to where they begin to differ.

    depth: 0 for a trunk.
    parent: its place in the tree's branches; None for a trunk.
    frames: their names, outermost first; empty for stacks that end where others go on.
    ranks: the ranks with these stacks.
    count: the number of stacks, which is larger than that of ranks if ranks have threads.
    """

    depth: int
    parent: int | None
    frames: Path
    ranks: RankSet
    count: int


@dataclass(frozen=True, slots=True)
class StackTree:
    """Branches, each before those that begin at its end; among siblings, the one with the most
    stacks comes first.

    threads: its stacks are those of all threads, not of one thread per rank.
    errors: the ranks without a stack, and why.
    """

    branches: tuple[Branch, ...]
    threads: bool = False
    errors: tuple[tuple[RankSet, str], ...] = ()

    def leaves(self) -> tuple[Branch, ...]:
        """The branches where stacks end: nothing branches off from them."""
        inner = {each.parent for each in self.branches}
        return tuple(b for at, b in enumerate(self.branches) if at not in inner)


@dataclass(frozen=True, slots=True)
class _Class:
    """Equal stacks. path: outermost first."""

    path: Path
    ranks: RankSet
    count: int


def merge(
    stacks: Mapping[int, Iterable[Sequence[Frame]]], *, depth: int = 0, function_only: bool = False
) -> tuple[Branch, ...]:
    """The branches of a tree.

    Frames are equal if they are of the same function at the same line.

    stacks: by rank, one or several, innermost frame first.
    depth: take only so many of the outermost frames; 0 is all.
    function_only: lines do not count.
    """
    names = _Names(function_only)
    found: dict[Path, list[int]] = {}
    # By identity: those of many ranks may be one object.
    known: dict[int, tuple[Sequence[Frame], list[int]]] = {}
    for rank, several in stacks.items():
        for frames in several:
            if (same := known.get(id(frames))) is None:
                members = found.setdefault(names.path(frames, depth), [])
                same = known[id(frames)] = (frames, members)
            same[1].append(rank)
    classes = [_Class(path, RankSet.of(ranks), len(ranks)) for path, ranks in found.items()]
    branches: list[Branch] = []
    # Not recursive: a stack may be deep, and each of its frames a branch.
    pending: list[tuple[int, int | None, int, list[_Class]]] = [
        (0, None, 0, part) for part in reversed(list(_parts(classes, 0)))
    ]
    while pending:
        level, parent, at, together = pending.pop()
        end = _common(together, at)
        mask = 0
        for each in together:
            mask |= each.ranks.mask
        path = together[0].path[at:end]
        branches.append(Branch(level, parent, path, RankSet(mask), sum(c.count for c in together)))
        if len(together) > 1:
            here = len(branches) - 1
            parts = list(_parts(together, end))
            pending += [(level + 1, here, end, part) for part in reversed(parts)]
    return tuple(branches)


class _Names(dict[tuple[str, str, int], str]):
    """The names of frames; most are the same on all ranks."""

    def __init__(self, function_only: bool) -> None:
        self._function_only = function_only

    def path(self, frames: Sequence[Frame], depth: int) -> Path:
        names = [self._name(each.location) for each in reversed(frames)]
        return tuple(names[:depth] if depth else names)

    def _name(self, place: Location) -> str:
        if not place.function:  # its name is the library, or the address
            return place.name
        key = (place.function, place.file, place.line)
        known = self.get(key)
        if known is None:
            known = self[key] = place.name if self._function_only else str(place)
        return known


def _common(classes: Sequence[_Class], at: int) -> int:
    """The length up to which their paths are the same."""
    first, *others = (each.path for each in classes)
    end = min(len(each.path) for each in classes)
    while at < end and all(other[at] == first[at] for other in others):
        at += 1
    return at


def _parts(classes: Iterable[_Class], at: int) -> Iterator[list[_Class]]:
    """Groups of stacks that continue alike; the largest group first, then by lowest rank."""
    parts: dict[str | None, list[_Class]] = {}
    for each in classes:
        parts.setdefault(each.path[at] if at < len(each.path) else None, []).append(each)
    yield from sorted(
        parts.values(),
        key=lambda part: (-sum(c.count for c in part), min(c.ranks.first for c in part)),
    )
