"""A rank's calls as a list, where a test has no log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import overload

from crdebug.native.recorder.mpi_errors import ARGUMENTS, NAMES
from crdebug.native.recorder.mpi_types import Types
from crdebug.timeline.calls import Call, Calls, Head, Kind, Together, entered_last
from crdebug.timeline.collectives import SAME_SIZE, Shape, communicator_of, shape_of


class Listed(Calls):
    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls

    def __len__(self) -> int:
        return len(self._calls)

    @overload
    def __getitem__(self, index: int) -> Call: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Call]: ...
    def __getitem__(self, index: int | slice) -> Call | Sequence[Call]:
        return self._calls[index]

    def of(self, *kinds: Kind) -> Iterator[Call]:
        return (call for call in self._calls if call.kind in kinds or call.failed)

    def types(self) -> set[Types]:
        return {call.types for call in self._calls}

    def heads(self, ticks: Sequence[int]) -> Sequence[Head | None]:
        found = [entered_last(self._calls, tick) for tick in ticks]
        return [Head(c.name, c.kind, c.site, c.types) if c else None for c in found]

    def together(self) -> Mapping[str, Together]:
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for number, call in enumerate(self._calls):
            comm = communicator_of(call)
            if comm and not comm.startswith("(") and call.failed not in NAMES[:ARGUMENTS]:
                numbers[comm].append(number)
        return {
            comm: Together(each, [_like(self._calls[number]) for number in each])
            for comm, each in numbers.items()
        }


def listed(calls: Mapping[int, Sequence[Call]]) -> dict[int, Calls]:
    return {rank: Listed(each) for rank, each in calls.items()}


def _like(call: Call) -> int:
    rooted = shape_of(call.name) in (Shape.FROM_ROOT, Shape.TO_ROOT)
    size = call.bytes if call.name in SAME_SIZE else 0
    return hash((call.name, call.types, call.peer if rooted else None, size))
