"""Answers of many ranks, merged by equality."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from crdebug.errors import CrdebugError
from crdebug.ranks import RankSet

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """What each rank answered to one question.

    values: by rank.  errors: for the ranks that could not answer; a rank is in one of the two.
    """

    values: Mapping[int, T]
    errors: Mapping[int, CrdebugError]

    def merged(self) -> tuple[tuple[RankSet, T], ...]:
        """Equal values as one class, the largest class first, then by lowest rank."""
        classes: dict[T, int] = {}
        for rank, value in self.values.items():
            classes[value] = classes.get(value, 0) | 1 << rank
        pairs = [(RankSet(mask), value) for value, mask in classes.items()]
        return tuple(sorted(pairs, key=lambda pair: (-len(pair[0]), pair[0].first)))

    def merged_errors(self) -> tuple[tuple[RankSet, str], ...]:
        """Equal problems as one class; the text is the problem without the rank."""
        classes: dict[str, int] = {}
        for rank, error in self.errors.items():
            classes[error.clause()] = classes.get(error.clause(), 0) | 1 << rank
        pairs = [(RankSet(mask), text) for text, mask in classes.items()]
        return tuple(sorted(pairs, key=lambda pair: (-len(pair[0]), pair[0].first)))
