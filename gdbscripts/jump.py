"""-crdebug-jump LOCATION: make the selected thread continue there, without running to it.

GDB's own `jump` also lets the rank run; crdebug separates changing a rank's state from running it
(crdebug/travel/branching.py).
"""

from __future__ import annotations

import gdb

from .wire import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire import Answer


def place_function(pc: int) -> str | None:
    block = gdb.block_for_pc(pc)
    while block is not None and block.function is None:
        block = block.superblock
    return None if block is None or block.function is None else block.function.name


class Jump(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        text = " ".join(arguments)
        gdb.newest_frame().select()
        _rest, found = gdb.decode_line(text)
        if not found or len(found) > 1:
            raise gdb.GdbError(f"'{text}' is not one place")
        pc, here = found[0].pc, gdb.newest_frame().name()
        if not text.startswith("*") and place_function(pc) != here:
            raise gdb.GdbError(
                f"'{text}' is not in {here}, where the rank is; jump *{pc:#x} goes there"
            )
        gdb.execute(f"set $pc = {pc:#x}")
        return {}


Jump(Command.JUMP)
