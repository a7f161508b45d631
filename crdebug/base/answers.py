"""Answers of many ranks, merged by equality."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from crdebug.base.errors import BadInput, CrdebugError, Ended
from crdebug.base.ranks import RankSet

T = TypeVar("T", bound=Hashable)


def classes(pairs: Iterable[tuple[int, T]]) -> tuple[tuple[RankSet, T], ...]:
    """From ranks and their values: equal values as one class, the largest class first, then by
    lowest rank."""
    members: dict[T, list[int]] = {}
    known: dict[int, tuple[T, list[int]]] = {}  # by identity: many may be one object, and large
    for rank, value in pairs:
        if (same := known.get(id(value))) is None:
            same = known[id(value)] = (value, members.setdefault(value, []))
        same[1].append(rank)
    ordered = sorted(members.items(), key=lambda item: (-len(item[1]), min(item[1])))
    return tuple((RankSet.of(ranks), value) for value, ranks in ordered)


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """The ranks' answers to one question. Each rank that was asked is in one of the two.

    values: by rank.
    errors: by rank, for those that could not answer.
    """

    values: Mapping[int, T]
    errors: Mapping[int, CrdebugError]

    def among(self, ranks: RankSet) -> Answers[T]:
        """The answers of these ranks."""
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
    """The answers, if any rank gave one: a command fails only if it fails on all ranks.

    Raises NoRankAnswered; Ended if all ranks that were asked have ended in the same way.
    """
    if answers.errors and not answers.values:
        ended = answers.merged_errors()
        if len(ended) == 1 and all(isinstance(e, Ended) for e in answers.errors.values()):
            raise Ended(ended[0][1], ranks=ended[0][0])
        raise NoRankAnswered.of(answers.merged_errors())
    return answers


ADDRESS = re.compile(r"0x[0-9a-f]{5,}")
_AT_SYMBOL = re.compile(r"0x[0-9a-f]{5,}(?= <[^>]+>)")
_MASK = "0x..."
# A pointer as the answer, and the text that it points to.
_POINTER = re.compile(r"(?:\(.*\) )?(0x[0-9a-f]+)(?: ([uUL]?\".*))?\Z", re.DOTALL)


def alike(answers: Answers[str], addresses: re.Pattern[str]) -> Answers[str]:
    """Answers that differ only in addresses, made equal by leaving the addresses out."""
    texts: dict[str, set[str]] = {}
    for text in answers.values.values():
        texts.setdefault(addresses.sub(_MASK, text), set()).add(text)
    values = {
        rank: text if len(texts[masked]) == 1 else masked
        for rank, text in answers.values.items()
        for masked in [addresses.sub(_MASK, text)]
    }
    return Answers(values, answers.errors)


def same_places(answers: Answers[str]) -> Answers[str]:
    """`alike`, but only for addresses after which the debugger named the function or variable:
    ranks may have the same one loaded at different addresses."""
    return alike(answers, _AT_SYMBOL)


def comparable(expression: str, answers: Answers[str]) -> Answers[str]:
    """Answers without meaningless differences, such as the address of a string.

    If some ranks have a null pointer, the others' addresses count as equal. Raises BadInput for
    other addresses: whether these are equal says nothing about the program.
    """
    values = dict(answers.values)
    addresses = []
    for rank, text in values.items():
        pointer = _POINTER.match(text.strip())
        if pointer is None:
            continue
        if pointer[2]:
            values[rank] = pointer[2]
        elif int(pointer[1], 16):
            addresses.append(rank)
    if addresses and len(addresses) == len(values):
        whole = expression if re.fullmatch(r"\w+", expression) else f"({expression})"
        raise BadInput(
            f"'{expression}' is an address, and each rank has its own",
            ranks=RankSet.of(addresses),
            hint=f"'compare *{whole}' compares what is there, 'print' shows addresses",
        )
    return Answers(values | dict.fromkeys(addresses, _MASK), answers.errors)
