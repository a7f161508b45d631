"""-crdebug-array EXPRESSION: the place of numbers in memory.

The answer is {scalar=TEXT} for one number, which may be computed; for an array {address=HEX,
shape=[N...], format=LETTER, size=BYTES}: the last index is the one that runs fastest in memory (so
Fortran's first index is the last here), and format is that of Python's struct module. Arrays with
gaps in memory are refused.
"""

from __future__ import annotations

import gdb

from .wire import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire import Answer

NUMBERS = {gdb.TYPE_CODE_INT, gdb.TYPE_CODE_CHAR, gdb.TYPE_CODE_BOOL, gdb.TYPE_CODE_ENUM}
FLOATS = {4: "f", 8: "d"}
SIGNED, UNSIGNED = {1: "b", 2: "h", 4: "i", 8: "q"}, {1: "B", 2: "H", 4: "I", 8: "Q"}


def letter(kind: gdb.Type) -> str | None:
    """The struct module's letter for a type; None if it has none, or if the type is a pointer,
    which is not a quantity."""
    if kind.code == gdb.TYPE_CODE_FLT:
        return FLOATS.get(kind.sizeof)
    if kind.code in NUMBERS:
        return (SIGNED if kind.is_signed else UNSIGNED).get(kind.sizeof)
    return None


def numbers_of(expression: str) -> Answer:
    value = gdb.parse_and_eval(expression)
    kind = value.type.strip_typedefs()
    if kind.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
        value = value.referenced_value()
        kind = value.type.strip_typedefs()
    if kind.code != gdb.TYPE_CODE_ARRAY:
        if kind.code != gdb.TYPE_CODE_FLT and letter(kind) is None:
            raise gdb.GdbError(f"'{expression}' is a {kind}, not a number or an array of them")
        return {"scalar": value.format_string(symbols=False)}
    shape = []
    while kind.code == gdb.TYPE_CODE_ARRAY:
        low, high = kind.range()
        shape.append(high - low + 1)
        inner = kind.target().strip_typedefs()
        if kind.sizeof != inner.sizeof * shape[-1]:
            raise gdb.GdbError(f"'{expression}' does not lie in memory without gaps")
        kind = inner
    # an array of C's plain char is text; signed char and unsigned char are numbers
    if letter(kind) is None or str(kind.unqualified()) == "char":
        raise gdb.GdbError(f"the elements of '{expression}' are {kind}, not numbers")
    if value.address is None:
        raise gdb.GdbError(f"'{expression}' does not lie in memory")
    return {
        "address": hex(int(value.address)),
        "shape": [str(length) for length in shape],
        "format": letter(kind),
        "size": str(kind.sizeof),
    }


class Array(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        try:
            return numbers_of(" ".join(arguments))
        except gdb.MemoryError as error:  # for which GDB would show a traceback of Python's
            raise gdb.GdbError(str(error)) from error


Array(Command.ARRAY)
