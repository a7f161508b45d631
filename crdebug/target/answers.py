"""Answers of many ranks, merged by equality."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from crdebug.errors import CrdebugError
from crdebug.ranks import RankSet

T = TypeVar("T", bound=Hashable)


def classes(pairs: Iterable[tuple[int, T]]) -> tuple[tuple[RankSet, T], ...]:
    """From ranks and their values: equal values as one class, the largest class first, then by
    lowest rank."""
    members: dict[T, list[int]] = {}
    for rank, value in pairs:
        members.setdefault(value, []).append(rank)
    ordered = sorted(members.items(), key=lambda item: (-len(item[1]), min(item[1])))
    return tuple((RankSet.of(ranks), value) for value, ranks in ordered)


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """What each rank answered to one question.

    values: by rank.  errors: for the ranks that could not answer; a rank is in one of the two.
    """

    values: Mapping[int, T]
    errors: Mapping[int, CrdebugError]

    def among(self, ranks: RankSet) -> Answers[T]:
        """What these ranks answered."""
        return Answers(
            {rank: value for rank, value in self.values.items() if rank in ranks},
            {rank: error for rank, error in self.errors.items() if rank in ranks},
        )

    def merged(self) -> tuple[tuple[RankSet, T], ...]:
        """Equal values as one class, the largest class first, then by lowest rank."""
        return classes(self.values.items())

    def merged_errors(self) -> tuple[tuple[RankSet, str], ...]:
        """Equal problems as one class; the text is the problem without the rank."""
        return classes((rank, error.clause()) for rank, error in self.errors.items())


@dataclass(eq=False)
class NoRankAnswered(CrdebugError):
    """Every rank that was asked failed.

    problems: GDB's own messages, each with the ranks that gave it.
    """

    problems: tuple[tuple[RankSet, str], ...]

    @classmethod
    def of(cls, errors: Iterable[tuple[RankSet, str]]) -> NoRankAnswered:
        problems = tuple(errors)
        if len(problems) == 1:
            ranks, text = problems[0]
            return cls(text, problems, ranks=ranks)
        return cls("no rank could answer", problems)

    def clause(self) -> str:
        if len(self.problems) == 1:
            return self.problem
        return "\n  ".join([self.problem, *(f"[{ranks}] {text}" for ranks, text in self.problems)])


def some(answers: Answers[T]) -> Answers[T]:
    """The answers, if any rank gave one: a command fails only when all its ranks do.

    Raises NoRankAnswered.
    """
    if answers.errors and not answers.values:
        raise NoRankAnswered.of(answers.merged_errors())
    return answers
