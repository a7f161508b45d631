"""Stops in words: which rank stopped for what reason, and where the others are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, assert_never

from crdebug.base.answers import classes
from crdebug.base.events import GroupStopped, Location, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.ui.source import ReadLine, SourceLines, read_line

if TYPE_CHECKING:
    from crdebug.session.waiting import AtBarrier


def describe(stop: GroupStopped, read: ReadLine = read_line) -> Iterator[str]:
    """Lines: the causes, then the ranks that they stopped, and where those are.

    Places are equal when they read the same: two ranks have different addresses for one line.
    The source line follows below its place.
    """
    causing = {each.rank for each in stop.cause}
    others = [each for each in stop.stops if each.rank not in causing]
    told = [*stop.cause, *(o for o in others if o.reason is not StopReason.FOLLOWED)]
    followed = [each for each in others if each.reason is StopReason.FOLLOWED]
    locations = {each.rank: each.location for each in (*told, *followed)}
    source = SourceLines(read)
    sentences = [
        (ranks, _sentence(ranks, *key))
        for ranks, key in classes((each.rank, _key(each)) for each in told)
    ]
    if followed and sentences:
        ranks, last = sentences.pop()
        were = "were" if len(followed) > 1 else "was"
        last += f"; {RankSet.of(o.rank for o in followed).words} {were} stopped too"
        sentences.append((ranks, last))
    for ranks, sentence in sentences:
        yield sentence
        yield from source.at(locations[ranks.first])
    yield from describe_places(
        ((each.rank, each.location, "") for each in followed if each.location), source
    )


def gathered(barrier: AtBarrier, read: ReadLine = read_line) -> Iterator[str]:
    """The ranks that have reached a barrier, those that have not, and where they all are."""
    if barrier.missing:
        there = f"{barrier.there.words} came to the barrier, " if barrier.there else ""
        yield f"{there}{barrier.missing.words} did not"
        yield from describe(barrier.stop, read)
        return
    yield f"{barrier.there.words} {'are' if len(barrier.there) > 1 else 'is'} at the barrier"
    source = SourceLines(read)
    yield from describe_places(((s.rank, s.location, "") for s in barrier.stop.stops), source)


def describe_places(
    ranks: Iterable[tuple[int, Location | None, str]], source: SourceLines
) -> Iterator[str]:
    """The ranks' places, or words for them; equal places as one, with their source lines."""
    known = {rank: (location, word) for rank, location, word in ranks}
    places = (
        (rank, word if location is None else str(location))
        for rank, (location, word) in known.items()
    )
    for each, place in classes(places):
        yield f"  [{each}] {place}"
        yield from source.at(known[each.first][0], "  ")


def _key(stop: RankStopped) -> tuple[StopReason, str, str, str]:
    place = "" if stop.location is None else str(stop.location)
    return stop.reason, stop.detail, stop.note, place


def _sentence(ranks: RankSet, reason: StopReason, detail: str, note: str, place: str) -> str:
    were = "were" if len(ranks) > 1 else "was"
    match reason:
        case StopReason.STEP:
            # The most frequent message is the shortest.
            return f"[{ranks}] {place}"
        case StopReason.FINISH:
            value = f" with {detail}" if detail else ""
            return f"{ranks.words} returned to {place}{value}"
        case StopReason.BREAKPOINT | StopReason.WATCHPOINT | StopReason.CATCHPOINT:
            what = f"hit {reason.value} {detail}" + (f" ({note})" if note else "")
        case StopReason.SIGNAL:
            what = f"got {detail or 'a signal'}"
        case StopReason.ENDING:
            verb = "are" if len(ranks) > 1 else "is"
            what = f"{verb} about to end: {detail or 'see backtrace'}"
        case StopReason.REPORT:
            what = f"got a report of {detail}"
        case StopReason.INTERRUPT:
            what = f"{were} interrupted"
        case StopReason.FOLLOWED:
            what = "stopped with the others"
        case StopReason.EXITED:
            what = f"exited with status {detail or '0'}"
        case StopReason.KILLED:
            what = f"{were} killed" + (f" by {detail}" if detail else "")
        case StopReason.OTHER:
            what = "stopped" + (f" ({detail})" if detail else "")
        case _:
            assert_never(reason)
    return f"{ranks.words} {what.rstrip()}" + (f": {place}" if place else "")
