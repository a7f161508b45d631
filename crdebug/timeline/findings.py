"""What `check` finds: single findings, and equal ones as one line. Pure.

A finding is about a call, and may name another one that it does not fit. Findings are equal if they
say the same of the same source lines: ranks, their peers and repetitions are then counted together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from crdebug.base.ranks import RankSet


class Weight(Enum):
    """How much a finding says."""

    WRONG = "wrong"  # the program breaks a rule of MPI's
    LEFT = "left"  # it has made something, and not freed it
    RACE = "race"  # it depends on which of two messages comes first
    UNSAFE = "unsafe"  # it goes well only if the MPI does not wait in it
    OPEN = "open"  # wrong if it stays so; the job has not come to its end


class Spot(NamedTuple):
    """A call. site: its return address, 0 where the record has none."""

    rank: int
    tick: int
    site: int
    name: str


@dataclass(frozen=True, slots=True)
class Finding:
    """says: the predicate of a sentence about the call at `at`; it ends in front of `other`, if
    there is one. peer: a rank that it is about besides.  then: in front of that, behind `other`."""

    weight: Weight
    at: Spot
    says: str
    other: Spot | None = None
    peer: int | None = None
    then: str = ""


Line = Callable[[int, int], str]
"""(rank, site) → "relax (heat.c:12)", or "" where it is not known."""


@dataclass(slots=True)
class Merged:
    """Equal findings. line, other_line: of their calls.  first: the one with the lowest tick."""

    weight: Weight
    name: str
    line: str
    says: str
    first: Spot
    other_name: str = ""
    other_line: str = ""
    then: str = ""
    ranks: set[int] = field(default_factory=set)
    others: set[int] = field(default_factory=set)
    peers: set[int] = field(default_factory=set)
    calls: set[tuple[int, int]] = field(default_factory=set)  # the ranks and ticks

    @property
    def text(self) -> str:
        """As one line, with the place to go to."""
        text = f"[{RankSet.of(self.ranks)}] {_call(self.name, self.line)} {self.says}"
        if self.other_name:
            text += f" {_call(self.other_name, self.other_line)} of {_ranks(self.others)}"
        if self.peers:
            text += f"{self.then} {_ranks(self.peers)}"
        if len(self.calls) > len(self.ranks):
            text += f"; {len(self.calls)} times"
        return f"{text}; 'goto tick {self.first.tick} on {self.first.rank}'"


def merged(findings: Iterable[Finding], line: Line) -> list[Merged]:
    """Equal ones as one, the wrong ones first, then in the order of the ticks."""
    found: dict[tuple[object, ...], Merged] = {}
    for each in findings:
        at, other = each.at, each.other
        here = line(at.rank, at.site)
        there = line(other.rank, other.site) if other else ""
        other_name = other.name if other else ""
        key = (
            *(each.weight, at.name, here or at.site, each.says),
            *(other_name, there or (other.site if other else 0)),
        )
        one = found.get(key)
        if one is None:
            one = Merged(*(each.weight, at.name, here, each.says, at, other_name, there, each.then))
            found[key] = one
        one.ranks.add(at.rank)
        one.others |= {other.rank} if other else set()
        one.peers |= {each.peer} if each.peer is not None else set()
        one.calls.add((at.rank, at.tick))
        one.first = min(one.first, at, key=lambda spot: (spot.tick, spot.rank))
    order = [*Weight]
    return sorted(
        found.values(), key=lambda one: (order.index(one.weight), one.first.tick, one.first.rank)
    )


def concerning(findings: Iterable[Finding], ranks: RankSet) -> list[Finding]:
    """Those that are about some of these ranks."""
    found = []
    for each in findings:
        about = {each.at.rank, each.other.rank if each.other else None, each.peer}
        if any(rank in ranks for rank in about if rank is not None):
            found.append(each)
    return found


def sites_of(findings: Iterable[Finding]) -> set[tuple[int, int]]:
    """The ranks and return addresses whose lines are to be known."""
    spots = [spot for each in findings for spot in (each.at, each.other) if spot is not None]
    return {(spot.rank, spot.site) for spot in spots if spot.site}


NOTHING = "nothing wrong is on record"
NO_RACE = "no receive or probe could have got another message"
_TITLES = {
    Weight.WRONG: ("{} is wrong", "{} are wrong"),
    Weight.LEFT: ("{} is never freed", "{} are never freed"),
    Weight.RACE: ("{} depends on who comes first", "{} depend on who comes first"),
    Weight.UNSAFE: (
        "{} hangs if the MPI waits in it, as it may",
        "{} hang if the MPI waits in them, as it may",
    ),
    Weight.OPEN: ("{} is open so far", "{} are open so far"),
}


def report(
    found: Sequence[Merged],
    caveats: Sequence[str] = (),
    nothing: str = NOTHING,
    *,
    numbered: bool = False,
) -> str:
    """All lines, below a title for each weight. caveats: what could not be looked at; nothing: the
    answer if nothing was found.  numbered: for `try`, of findings of one weight."""
    lines = []
    for weight, (one, many) in _TITLES.items():
        same = [each for each in found if each.weight is weight]
        if same:
            title = one if len(same) == 1 else many
            lines.append(f"{title.format(len(same))}:")
            numbers = [f"{number}: " if numbered else "" for number in range(1, len(same) + 1)]
            lines += [f"  {n}{each.text}" for n, each in zip(numbers, same, strict=True)]
    if not lines:
        lines.append(nothing)
    return "\n".join([*lines, *(f"({caveat})" for caveat in caveats)])


def _call(name: str, line: str) -> str:
    return f"{name} ({line})" if line else name


def _ranks(ranks: Iterable[int]) -> str:
    found = RankSet.of(ranks)
    return f"rank {found}" if len(found) == 1 else f"ranks {found}"
