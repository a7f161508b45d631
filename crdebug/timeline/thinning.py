"""Which of the automatic checkpoints to keep.

The further back, the further apart: going back over a distance may take a time that is in
proportion to the distance, so checkpoints are kept at distances that grow like powers. Their number
then grows with the logarithm of the run's length (Boothe, "Efficient algorithms for bidirectional
debugging", PLDI 2000). A bound on the disk comes on top. A checkpoint that the user asked for is
never dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# A gap may be this part of its age: some ten checkpoints for each tenfold length of the run.
GAP = 0.25


@dataclass(frozen=True, slots=True)
class Dated:
    """A checkpoint or snapshot of one branch.

    at: seconds of run before it.  automatic: nobody asked for it.
    """

    name: str
    at: float
    bytes: int = 0
    automatic: bool = True


@dataclass(frozen=True, slots=True)
class Drop:
    """A checkpoint to be dropped, and why, as a clause for people. forced: by the bound."""

    name: str
    reason: str
    bytes: int = 0
    forced: bool = False


def thin(kept: Iterable[Dated], now: float, bound: int | None = None) -> tuple[Drop, ...]:
    """The checkpoints of a branch to drop, oldest first within each reason.

    now: seconds of run by now.  bound: bytes that automatic checkpoints may take together; None is
    no bound. The last one stays even if it alone is too large. The first one stays unless the bound
    can only be kept without it: going before it takes a new run.
    """
    left = sorted(kept, key=lambda checkpoint: (checkpoint.at, not checkpoint.automatic))
    drops: list[Drop] = []
    at = 1
    while at < len(left) - 1:
        checkpoint = left[at]
        if checkpoint.automatic and _gap_without(left, at, now) <= GAP:
            seconds = left[at + 1].at - left[at - 1].at
            reason = f"its neighbours are {seconds:.3g} s apart, {now - left[at + 1].at:.3g} s ago"
            drops.append(Drop(checkpoint.name, reason, checkpoint.bytes))
            del left[at]
        else:
            at += 1
    if bound is not None:
        drops += _within(left, now, bound)
    return tuple(drops)


def _gap_without(left: list[Dated], at: int, now: float) -> float:
    """The gap that dropping one leaves, as a part of the age of the gap's younger end."""
    gap, age = left[at + 1].at - left[at - 1].at, now - left[at + 1].at
    return gap / age if age > 0 else float("inf") if gap > 0 else 0.0


def _within(left: list[Dated], now: float, bound: int) -> list[Drop]:
    drops = []
    total = sum(checkpoint.bytes for checkpoint in left if checkpoint.automatic)
    while total > bound:
        able = [at for at in range(len(left) - 1) if left[at].automatic]
        if not able:
            break
        # the first only at last; else where the gap that it leaves matters least
        worst = min(able, key=lambda at: (at == 0, _gap_without(left, at, now) if at else 0.0))
        dropped = left.pop(worst)
        reason = f"automatic checkpoints took {total} bytes, more than {bound}"
        drops.append(Drop(dropped.name, reason, dropped.bytes, forced=True))
        total -= dropped.bytes
    return drops
