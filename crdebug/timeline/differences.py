"""What two runs of one recorded piece left in the ranks' variables: `verify`. Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Content = tuple[str, bytes]  # of a variable: its format, and its bytes, or a hash of many
Seen = Mapping[int, Mapping[str, Content]]
"""By rank, what its variables had at a place; without the ranks whose memory may be written to
there at any moment."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A variable of a rank that two runs left with other values. place: the number of the first
    place at which it was another one, from 0.  first, second: the values, "" if they are long."""

    rank: int
    place: int
    name: str
    first: str
    second: str


def differences(first: Sequence[Seen], second: Sequence[Seen]) -> list[Difference]:
    """The variables that differ where they were compared last; what differed first is in front.

    Of what differs only on the way, threads may have been at work on it.
    """
    found: dict[tuple[int, str], Difference | None] = {}
    for place, (one, other) in enumerate(zip(first, second, strict=True)):
        for rank in one.keys() & other.keys():
            for name, content in one[rank].items():
                again = other[rank].get(name)
                if again is None or again[0] != content[0]:
                    continue
                if again == content:
                    found[rank, name] = None
                elif found.get((rank, name)) is None:
                    values = value(content), value(again)
                    found[rank, name] = Difference(rank, place, name, *values)
    return sorted(
        (each for each in found.values() if each is not None),
        key=lambda each: (each.place, each.rank, each.name),
    )


def value(content: Content) -> str:
    """A scalar for people; "" of what is none."""
    form, data = content
    if len(data) != struct.calcsize(form):
        return ""
    (number,) = struct.unpack(form, data)
    return f"{number:.17g}" if isinstance(number, float) else str(number)
