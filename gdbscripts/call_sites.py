"""-crdebug-sites ADDRESS...: the source lines of return addresses.

A return address is just after its call, often on the next line: the byte before it belongs to the
call.
"""

from __future__ import annotations

import gdb

from .wire import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire import Answer


def function_at(address: int) -> str:
    try:
        block = gdb.block_for_pc(address)
    except RuntimeError:
        return ""
    while block is not None and block.function is None:
        block = block.superblock
    return block.function.print_name if block is not None and block.function is not None else ""


class Sites(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        found = []
        for word in arguments:
            address = int(word, 16) - 1
            place = gdb.find_pc_line(address)
            known = place.symtab is not None
            found.append(
                {
                    "file": place.symtab.filename if known else "",
                    "fullname": place.symtab.fullname() if known else "",
                    "line": str(place.line if known else 0),
                    "func": function_at(address),
                }
            )
        return {"sites": found}


Sites(Command.SITES)
