"""The history as text: `info timeline` and `info messages`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from crdebug.base.instant import BEGINNING, Cut, Instant
from crdebug.base.ranks import RankSet
from crdebug.timeline.branches import Branches
from crdebug.timeline.calls import Call

# (rank, tick) → "file:line" of the call, or "" where it is not known
Site = Callable[[int, int], str]

_NARROWEST = 10  # columns of the picture, however narrow the terminal


@dataclass(frozen=True, slots=True)
class Place:
    """A named position of the whole job: a checkpoint or a mark."""

    name: str
    cut: Cut


def timeline_text(
    ends: Cut,
    here: Cut | None = None,
    checkpoints: Sequence[Place] = (),
    marks: Sequence[Place] = (),
    automatic: Sequence[Place] = (),
    *,
    logs: Mapping[int, Sequence[Call]] = MappingProxyType({}),
    width: int = 80,
    focus: int = 0,
) -> str:
    """A line for each rank, from its first call to its last; a legend below.

    ends: where the records end.  here: where the ranks stand.  automatic: those
    checkpoints that nobody asked for.  logs: of the ranks.  width: the terminal's.
    The scale is the same for all ranks; a run of tests that said no, of which one rank may have
    made millions while another one waited, is as long as one call. Where several things fall into
    one column, the first of these is shown: where we are, marks, checkpoints.
    """
    lengths = [steps(logs.get(rank, ()), end) for rank, end in enumerate(ends)]
    longest = max(lengths, default=BEGINNING)
    titles = [f"rank {rank}" for rank in range(len(ends))]
    counts = [_ticks(end) for end in ends]
    room = width - max(map(len, titles), default=0) - max(map(len, counts), default=0) - 4
    columns = max(room, _NARROWEST)

    def column(rank: int, now: Instant) -> int:
        place = min(steps(logs.get(rank, ()), now), longest)
        return place * (columns - 1) // longest if longest else 0

    lines = []
    for rank, end in enumerate(ends):
        row = [" "] * columns
        reached = end if here is None else here[rank]
        standing = column(rank, reached)
        for at in range(column(rank, end) + 1):
            row[at] = "-" if at <= standing else "."
        for places, sign in ((automatic, "+"), (checkpoints, "#"), (marks, "^")):
            for place in places:
                row[column(rank, place.cut[rank])] = sign
        if here is not None:
            row[standing] = "@"
        title = titles[rank].rjust(max(map(len, titles)))
        lines.append(f"{title} |{''.join(row)}| {counts[rank]}")
    legend = []
    if here is not None and focus < len(here):
        legend.append(f"@ here: {clock_text(here[focus])} of rank {focus}")
    for places, sign, what in ((checkpoints, "#", "checkpoint"), (marks, "^", "mark")):
        for place in sorted(places, key=lambda place: place.cut[focus]):
            legend.append(f"{sign} {what} {place.name}: {clock_text(place.cut[focus])}")
    legend += _automatic(automatic, focus)
    if here is not None and any(a < b for a, b in zip(here, ends, strict=True)):
        legend.append(". recorded, ahead of here")
    calls = logs.get(focus, ())
    if calls and calls[0].tick > 1:
        legend.append(
            f"| the record begins after {_ticks(Instant.before(calls[0].tick))}: older is given up"
        )
    return "\n".join([*lines, *legend])


def steps(calls: Sequence[Call], now: Instant) -> Instant:
    """A rank's instant as if the first of these calls were its first, and a run that said no were
    one call."""
    at = bisect_right(calls, now.entered, key=lambda call: call.tick)
    if not at:  # the record begins with the first of them
        return max(now.back(calls[0].tick - 1), BEGINNING) if calls else now
    last = calls[at - 1]
    more = max(now.entered - (last.tick + last.repeats - 1), 0)  # calls that are not on record
    return Instant.within(at + more) if now.inside else Instant.after(at + more)


def _automatic(places: Sequence[Place], focus: int) -> list[str]:
    """There may be many: the first, the last, and their number."""
    if not places:
        return []
    ordered = sorted(places, key=lambda place: place.cut[focus])
    ends = [f"{place.name}: {clock_text(place.cut[focus])}" for place in (ordered[0], ordered[-1])]
    if len(places) == 1:
        return [f"+ automatic checkpoint {ends[0]}"]
    return [f"+ {len(places)} automatic checkpoints, from {ends[0]}, to {ends[1]}"]


def when_text(
    ranks: Iterable[int],
    here: Cut,
    ends: Cut,
    *,
    focus: int,
    before: Place | None,
    earliest: Place | None,
    marks: Sequence[Place] = (),
    hint: str = "",
) -> str:
    """`when`: where these ranks stand, what is near, and how far back one can go.

    before: the nearest checkpoint that is not after `here`; one without a name is a snapshot.
    hint: how to get a way back.
    """
    stands: dict[str, list[int]] = {}
    for rank in ranks:
        end, now = ends[rank], here[rank]
        ahead = f" of {end.tick}" if end.tick > now.tick else ""
        inside = ", inside the next call" if now.inside else ""
        stands.setdefault(f"tick {now.tick}{ahead}{inside}", []).append(rank)
    lines = [f"[{RankSet.of(same)}] {text}" for text, same in stands.items()]
    ordered = sorted(marks, key=lambda mark: mark.cut[focus])
    if ordered:
        named = [f"{mark.name} ({clock_text(mark.cut[focus])})" for mark in ordered]
        lines.append(f"mark{'s' if len(named) > 1 else ''}: {', '.join(named)}")
    if before is not None:
        kind = f"checkpoint before: {before.name}" if before.name else "a snapshot before"
        lines.append(f"{kind} ({clock_text(before.cut[focus])})")
    if earliest is None:
        lines.append(f"there is no way back yet: {hint}" if hint else "there is no way back yet")
    else:
        kind = f"checkpoint {earliest.name}" if earliest.name else "a snapshot in memory"
        at = "" if earliest.cut[focus].inside else "at "
        lines.append(f"history begins {at}{clock_text(earliest.cut[focus])}, {kind}")
    if before is not None or earliest is not None or ordered:
        lines[-1] += f"; ticks are those of rank {focus}" if len(here) > 1 else ""
    return "\n".join(lines)


def _ticks(now: Instant) -> str:
    return f"{now.tick} calls"


def clock_text(now: Instant) -> str:
    """An instant for people: between two calls, or inside one."""
    return f"in call {now.entered}" if now.inside else f"tick {now.tick}"


def branches_text(branches: Branches, focus: int = 0) -> str:
    """`info branches`: the tree, with where each left its parent as the focused rank's tick."""
    lines = []
    for depth, branch in branches:
        here = "*" if branch.name == branches.current else " "
        told = [f"{here} {'  ' * depth}{branch.name}"]
        if branch.parent is not None and focus < len(branch.cut):
            told.append(f"left {branch.parent} at tick {branch.cut[focus].tick} of rank {focus}")
        if branch.created is not None:
            told.append(branch.created.strftime("%H:%M:%S"))
        if branch.note:
            told.append(branch.note)
        lines.append("  ".join(told))
    return "\n".join(lines)
