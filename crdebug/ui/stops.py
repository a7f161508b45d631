"""Stops in words: who stopped why, and where the others are."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar, assert_never

from crdebug.events import GroupStopped, RankStopped, StopReason
from crdebug.ranks import RankSet

K = TypeVar("K", bound=Hashable)


def classes(pairs: Iterable[tuple[int, K]]) -> tuple[tuple[RankSet, K], ...]:
    """Equal values as one class, the largest class first, then by lowest rank."""
    masks: dict[K, int] = {}
    for rank, value in pairs:
        masks[value] = masks.get(value, 0) | 1 << rank
    merged = [(RankSet(mask), value) for value, mask in masks.items()]
    return tuple(sorted(merged, key=lambda pair: (-len(pair[0]), pair[0].first)))


def who(ranks: RankSet) -> str:
    """``rank 2``, ``ranks 0-1,3``."""
    return f"rank{'s' if len(ranks) > 1 else ''} {ranks}"


def describe(stop: GroupStopped) -> Iterator[str]:
    """Lines: the causes, then the ranks that were stopped for them and where they are.

    Places are equal when they read the same: two ranks have different addresses for one line.
    """
    causing = {each.rank for each in stop.cause}
    others = [each for each in stop.stops if each.rank not in causing]
    told = [*stop.cause, *(o for o in others if o.reason is not StopReason.FOLLOWED)]
    sentences = [
        _sentence(ranks, *key) for ranks, key in classes((each.rank, _key(each)) for each in told)
    ]
    followed = [each for each in others if each.reason is StopReason.FOLLOWED]
    if followed and sentences:
        with_whom = "it" if len(told) == 1 else "them"
        sentences[-1] += f"; {who(RankSet.of(o.rank for o in followed))} stopped with {with_whom}"
    yield from sentences
    places = classes((o.rank, str(o.location)) for o in followed if o.location is not None)
    for ranks, place in places:
        yield f"  [{ranks}] {place}"


def _key(stop: RankStopped) -> tuple[StopReason, str, str]:
    return stop.reason, stop.detail, "" if stop.location is None else str(stop.location)


def _sentence(ranks: RankSet, reason: StopReason, detail: str, place: str) -> str:
    were = "were" if len(ranks) > 1 else "was"
    match reason:
        case StopReason.STEP:
            # The most frequent answer is the shortest.
            return f"[{ranks}] {place}"
        case StopReason.FINISH:
            value = f" with {detail}" if detail else ""
            return f"{who(ranks)} returned to {place}{value}"
        case StopReason.BREAKPOINT | StopReason.WATCHPOINT:
            what = f"hit {reason.value} {detail}"
        case StopReason.SIGNAL:
            what = f"got {detail or 'a signal'}"
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
    return f"{who(ranks)} {what.rstrip()}" + (f": {place}" if place else "")
