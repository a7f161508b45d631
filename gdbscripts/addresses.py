"""-crdebug-lies [--outer N] EXPRESSION: the address of an expression in memory, and its size.

{address=HEX, size=BYTES, kind=KIND, outer=N}: kind is signed, unsigned, float or pointer, or empty
for what is no number. outer counts the frames that called the selected one, and so identifies it
whatever functions it calls. --outer: evaluate in that frame, and select it.

Works in every language: not all have an operator for addresses.
"""

from __future__ import annotations

import gdb

from .wire import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire import Answer


def frames_above(frame: gdb.Frame) -> int:
    count, older = 0, frame.older()
    while older is not None:
        older, count = older.older(), count + 1
    return count


def select_below(outer: int) -> None:
    frame = gdb.newest_frame()
    for _ in range(frames_above(frame) - outer):
        frame = frame.older() or frame
    frame.select()


def kind_of(type: gdb.Type) -> str:
    type = type.strip_typedefs()
    if type.code in (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_CHAR):
        return "signed" if type.is_signed else "unsigned"
    if type.code == gdb.TYPE_CODE_BOOL:
        return "unsigned"
    return {gdb.TYPE_CODE_FLT: "float", gdb.TYPE_CODE_PTR: "pointer"}.get(type.code, "")


class Lies(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        if arguments[0] == "--outer":
            select_below(int(arguments[1]))
            arguments = arguments[2:]
        expression = " ".join(arguments)
        try:
            value = gdb.parse_and_eval(expression)
        except gdb.error as error:  # which GDB would report as one of Python's
            raise gdb.GdbError(str(error)) from None
        if value.address is None:
            raise gdb.GdbError(f"'{expression}' does not lie in memory")
        return {
            "address": hex(int(value.address)),
            "size": str(value.type.sizeof),
            "kind": kind_of(value.type),
            "outer": str(frames_above(gdb.selected_frame())),
        }


Lies(Command.LIES)
