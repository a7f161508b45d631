"""Rank sets: the unit that every command addresses.

The notation is that of the HPD version 1 standard and of gdb4hpc: ``0,3-7``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crdebug.base.errors import BadInput

_ITEM = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?\Z", re.ASCII)
_RUN = re.compile("1+")
_ONE = ord("1")
_FEW = 64


@dataclass(frozen=True, slots=True)
class RankSet:
    """An immutable set of ranks.

    Stored as the bits of one integer, so that algebra on ten thousand ranks is a machine
    operation and not a loop; build one with `of`, `span` or `parse`.
    """

    mask: int = 0

    @classmethod
    def of(cls, ranks: Iterable[int]) -> RankSet:
        members = list(ranks)
        if len(members) < _FEW:
            mask = 0
            for rank in members:
                mask |= 1 << rank
            return cls(mask)
        # One pass: to set bits in an integer one by one copies it each time.
        digits = bytearray(b"0") * (max(members) + 1)
        for rank in members:
            digits[-1 - rank] = _ONE
        return cls(int(digits, 2))

    @classmethod
    def span(cls, size: int) -> RankSet:
        """The ranks 0 to size - 1."""
        return cls((1 << size) - 1)

    @classmethod
    def parse(cls, text: str, every: RankSet) -> RankSet:
        """Read ``0,3-7`` or ``all``; `every` holds the ranks that exist.

        Raises BadInput for anything else, and for a rank that does not exist.
        """
        if text.strip() == "all":
            return every
        mask = 0
        for item in text.split(","):
            match = _ITEM.match(item)
            if match is None:
                raise BadInput(f"'{text}' is not a rank set", hint="write 0,2-3 or all")
            first = int(match[1])
            last = int(match[2] or match[1])
            if last < first:
                raise BadInput(f"'{item.strip()}' counts down", hint=f"write {last}-{first}")
            if last >= max(every.mask.bit_length(), 1):
                raise BadInput(f"there is no rank {last}", hint=f"the job has ranks {every}")
            mask |= ((1 << (last - first + 1)) - 1) << first
        missing = cls(mask & ~every.mask)
        if missing:
            raise BadInput(f"there is no rank {missing}", hint=f"the job has ranks {every}")
        return cls(mask)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.intervals():
            yield from range(first, last + 1)

    def intervals(self) -> Iterator[tuple[int, int]]:
        """The runs of consecutive ranks, as (first, last)."""
        lowest = self.first if self.mask else 0
        for run in _RUN.finditer(f"{self.mask >> lowest:b}"[::-1]):
            yield lowest + run.start(), lowest + run.end() - 1

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __contains__(self, rank: int) -> bool:
        return bool(self.mask >> rank & 1)

    def __bool__(self) -> bool:
        return self.mask != 0

    def __or__(self, other: RankSet) -> RankSet:
        return RankSet(self.mask | other.mask)

    def __and__(self, other: RankSet) -> RankSet:
        return RankSet(self.mask & other.mask)

    def __sub__(self, other: RankSet) -> RankSet:
        return RankSet(self.mask & ~other.mask)

    def __str__(self) -> str:
        return ",".join(
            str(first) if first == last else f"{first}-{last}" for first, last in self.intervals()
        )

    @property
    def words(self) -> str:
        """``rank 2``, ``ranks 0-1,3``."""
        return f"rank{'s' if len(self) > 1 else ''} {self}"

    @property
    def first(self) -> int:
        """The lowest rank. Raises ValueError on an empty set."""
        if not self.mask:
            raise ValueError("an empty rank set has no first rank")
        return (self.mask & -self.mask).bit_length() - 1
