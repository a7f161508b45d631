"""When checkpoints of an unattended job are taken, and which of them may be deleted. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crdebug.checkpoint.store import Checkpoint


@dataclass(frozen=True, slots=True)
class Keep:
    """Which of a job's checkpoints are kept; 0 is no limit.

    count: how many.  seconds: for how long.  size: bytes of all of them together.
    """

    count: int = 0
    seconds: float = 0.0
    size: int = 0

    @property
    def limits(self) -> bool:
        return bool(self.count or self.seconds or self.size)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What is done for a job while it is followed.

    every: no more than so many seconds of work are to be lost; 0: no checkpoints at an interval.
    keep: which of its checkpoints stay.
    warnings: signals to this process at each of which a last checkpoint is taken.
    go_on: the job runs on after that; else it is ended.
    stage: a second place for each checkpoint, see crdebug.checkpoint.staging.
    compress: what lies there, where that pays.
    """

    every: float = 0.0
    keep: Keep = field(default_factory=Keep)
    warnings: tuple[int, ...] = ()
    go_on: bool = False
    stage: Path | None = None
    compress: bool = True


def expendable(
    checkpoints: Sequence[Checkpoint], keep: Keep, newest_good: int, now: float
) -> tuple[int, ...]:
    """The numbers of those that may be deleted, the oldest first.

    Never one with a note, one that the user keeps, one that cannot be read here, or anything from
    `newest_good` on: the newest that can be restarted. All of these count towards the disk all the
    same, and so do those that others build on: such a group is deleted as a whole or not at all,
    and only for the disk. now: seconds since 1970.
    """
    free = [each for each in checkpoints if not (each.note or each.kept or each.problem)]
    ours = len(free)
    free = sorted((each for each in free if each.number < newest_good), key=lambda c: c.number)
    gone: set[int] = set()
    for each in free:
        many = keep.count and ours > keep.count
        old = keep.seconds and now - each.time > keep.seconds
        if many or old:
            gone.add(each.number)
            ours -= 1
    chains: dict[int, set[int]] = {}
    for each in checkpoints:
        chains.setdefault(each.bases[-1] if each.bases else each.number, set()).add(each.number)
    sizes = {each.number: each.size for each in checkpoints}
    may_go = {each.number for each in free}
    left = [chains[root] for root in sorted(chains) if not chains[root] <= gone]
    total = sum(sizes[number] for chain in left for number in chain)
    for chain in left:
        if keep.size and total > keep.size and chain <= may_go:
            gone |= chain
            total -= sum(sizes[number] for number in chain)
    return tuple(sorted(gone))
