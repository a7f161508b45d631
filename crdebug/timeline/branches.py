"""Branches: the futures of a job that was taken back and changed.

The first branch is the run as it was recorded. When the user changes something in the past and runs
on, what came after belongs to the branch as it was, and a new branch begins at that cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from crdebug.base.errors import BadInput, Refused
from crdebug.base.instant import Cut

MAIN = "main"


@dataclass(frozen=True, slots=True)
class Branch:
    """A future. parent: the branch that it left; cut: where; end: how far the job has
    come on it."""

    name: str
    parent: str | None = None
    cut: Cut = ()
    created: datetime | None = None
    note: str = ""
    end: Cut = ()


@dataclass(frozen=True, slots=True)
class Branches:
    """All branches of a job, and the one that it is on. Never empty; changing it makes another."""

    current: str = MAIN
    known: Mapping[str, Branch] = field(default_factory=lambda: {MAIN: Branch(MAIN)})

    def add(self, cut: Cut, created: datetime, *, name: str = "", note: str = "") -> Branches:
        """A branch that leaves the current one at a cut; the job is on it then.

        Without a name it gets one: branch-1, branch-2... Raises BadInput for a name that is taken.
        """
        if not name:
            number = len(self.known)
            while f"branch-{number}" in self.known:
                number += 1
            name = f"branch-{number}"
        if name in self.known:
            raise BadInput(f"there is a branch '{name}' already", hint="info branches lists them")
        branch = Branch(name, self.current, cut, created, note, cut)
        return Branches(name, {**self.known, name: branch})

    def reached(self, cut: Cut) -> Branches:
        """The job was at a cut of the current branch. Two consistent cuts joined are one again."""
        branch = self.get(self.current)
        end = tuple(map(max, branch.end or cut, cut))
        if end == branch.end:
            return self
        return replace(self, known={**self.known, branch.name: replace(branch, end=end)})

    def switch(self, name: str) -> Branches:
        return replace(self, current=self.get(name).name)

    def remove(self, name: str) -> Branches:
        """Without a branch. Raises Refused if the job is on it, or others left it."""
        self.get(name)
        if name == self.current:
            raise Refused(f"the job is on branch '{name}'", hint="switch to another first")
        children = [child.name for child in self.children(name)]
        if children:
            raise Refused(f"branch '{name}' cannot be removed: '{children[0]}' left it")
        return replace(self, known={k: v for k, v in self.known.items() if k != name})

    def get(self, name: str) -> Branch:
        if name not in self.known:
            raise BadInput(
                f"there is no branch '{name}'", hint=f"there are {', '.join(self.known)}"
            )
        return self.known[name]

    def children(self, name: str) -> tuple[Branch, ...]:
        return tuple(branch for branch in self.known.values() if branch.parent == name)

    def line(self, name: str) -> tuple[Branch, ...]:
        """The branch and those that it comes from, the first one first."""
        found = [self.get(name)]
        while found[-1].parent is not None:
            found.append(self.get(found[-1].parent))
        return tuple(reversed(found))

    def common(self, one: str, other: str) -> Cut | None:
        """The cut up to which two branches have the same history; None if one has all of the other.

        The cut is the least of those where either line left the other; on each rank.
        """
        first, second = self.line(one), self.line(other)
        shared = sum(1 for a, b in zip(first, second, strict=False) if a.name == b.name)
        left = [line[shared].cut for line in (first, second) if len(line) > shared]
        if not left:
            return None
        return tuple(min(clocks) for clocks in zip(*left, strict=True))

    def __iter__(self) -> Iterator[tuple[int, Branch]]:
        """Depth and branch, parents before children."""
        stack = [(0, branch) for branch in self.known.values() if branch.parent is None]
        while stack:
            depth, branch = stack.pop()
            yield depth, branch
            stack += [(depth + 1, child) for child in reversed(self.children(branch.name))]
