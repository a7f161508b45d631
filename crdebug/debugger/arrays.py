"""Numbers of a rank, read from its memory instead of from the output of print."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput
from crdebug.base.gdb_values import Number, not_a_number, number
from crdebug.base.ranks import RankSet
from crdebug.debugger.question import question
from crdebug.debugger.target import Target
from crdebug.gdbscripts.wire import Command
from crdebug.mi.records import quote

LARGEST = 1 << 26  # bytes of one array, which take some ten seconds
_CHUNK = 1 << 19  # bytes that we ask GDB for at once; its answer has two digits for each


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """A number (shape is empty) or an array. values: flat, the last index runs fastest."""

    shape: tuple[int, ...]
    values: Sequence[Number]

    def reshaped(self, shape: tuple[int, ...]) -> Numbers:
        """The same numbers in another shape. Raises BadInput if that has another number of
        elements."""
        if math.prod(shape) != len(self.values):
            wanted = "x".join(map(str, shape))
            raise BadInput(f"{len(self.values)} values do not make {wanted}")
        return Numbers(shape, self.values)


@question
async def numbers(target: Target, expression: str, deadline: Deadline) -> Numbers:
    """The numbers in an expression, in the selected frame.

    Raises GdbError; BadInput for an expression that is not a number or an array of numbers, or is
    too large.
    """
    found = (await target.mi(f"{Command.ARRAY} {quote(expression)}", deadline)).payload
    here = RankSet.of([target.rank])
    if "scalar" in found:
        text = found.text("scalar")
        value = number(text)
        if value is None:
            raise not_a_number(expression, text, target.rank)
        return Numbers((), (value,))
    shape = tuple(int(length) for length in found.list("shape").texts())
    address, size = found.number("address", base=16), found.number("size")
    length = math.prod(shape) * size
    if length > LARGEST:
        hint = f"name a part of it, such as *{expression}@1000"
        raise BadInput(f"'{expression}' is {length >> 20} MiB long", ranks=here, hint=hint)
    values = array(found.text("format"))
    values.frombytes(await _memory(target, address, length, deadline))
    return Numbers(shape, values)


async def _memory(target: Target, address: int, length: int, deadline: Deadline) -> bytes:
    parts = []
    for at in range(address, address + length, _CHUNK):
        wanted = min(_CHUNK, address + length - at)
        answer = (await target.mi(f"-data-read-memory-bytes {at} {wanted}", deadline)).payload
        # several blocks would mean that something between them cannot be read
        data = bytes.fromhex(answer.list("memory").tuples()[0].text("contents"))
        if len(data) != wanted:
            raise BadInput(
                f"cannot read memory at {at + len(data):#x}", ranks=RankSet.of([target.rank])
            )
        parts.append(data)
    return b"".join(parts)
