"""The states of a job that can be brought back, and which of them to start from. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crdebug.base.errors import Refused
from crdebug.base.instant import Cut, Instant
from crdebug.base.ranks import RankSet


class StartOfHistory(Refused):
    """There is nothing before, or no state to start from."""


@dataclass(frozen=True, slots=True)
class Base:
    """A state of the whole job that can be brought back.

    cut: where the ranks are in it.
    number: of a checkpoint, 0 if it is none.
    history: it is a checkpoint that crdebug took by itself.
    kept: the name of a snapshot, "" if it is none.
    order: of snapshots, in which they were taken: of two at the same clocks the later one may lie
    further on, between two MPI calls.
    incarnation: of the job, when it was taken; a snapshot fits no other.
    branch: which line of history it belongs to.
    leaving: the ranks that are held before they leave their call, when its work is done.
    """

    cut: Cut
    number: int = 0
    history: bool = False
    kept: str = ""
    order: int = 0
    incarnation: int = 0
    branch: str = ""
    leaving: frozenset[int] = frozenset()

    def begun(self, rank: int) -> Instant:
        """The instant from which on the rank's actions are after this state."""
        return self.cut[rank].exit if rank in self.leaving else self.cut[rank]

    @property
    def name(self) -> str:
        """A checkpoint's name for people: those that crdebug takes by itself are a1, a2, ..."""
        return f"{'a' if self.history else ''}{self.number}"

    @property
    def text(self) -> str:
        """For people."""
        return "a snapshot in memory" if self.kept else f"checkpoint {self.name}"


def below(bases: Iterable[Base], cut: Cut) -> list[Base]:
    """The bases from which this cut can be reached by going forward, the best one first.

    The least way to run counts; of two that are equally far, the one in memory is faster.
    """
    fit = [base for base in bases if is_before(base.cut, cut)]
    return sorted(fit, key=lambda base: (sum(base.cut), bool(base.kept), base.order), reverse=True)


def is_before(first: Cut, second: Cut) -> bool:
    """Can a job come from the first cut to the second by going forward, or not at all?"""
    return len(first) == len(second) and all(a <= b for a, b in zip(first, second, strict=True))


def no_base(in_memory: bool = False) -> StartOfHistory:
    """in_memory: the job has no checkpoints, only snapshots."""
    what = "snapshot in memory" if in_memory else "checkpoint"
    return StartOfHistory(
        f"that is before the start of history: no {what} is old enough",
        hint="'when' shows how far back you can go",
    )


def given_up(rank: int, begin: Instant) -> StartOfHistory:
    """The error for a place before the beginning of the record, which is at that instant."""
    return StartOfHistory(
        f"its record begins at tick {begin.tick}: older calls were dropped",
        ranks=RankSet.of([rank]),
        hint=f"'goto tick {begin.tick + 1} on {rank}' goes to its first call",
    )
