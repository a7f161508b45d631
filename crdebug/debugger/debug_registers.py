"""Clear a trap that another program left in a rank's debug registers.

CRIU stops the threads that it dumps or restores by a hardware breakpoint. In each of them, the bit
in DR6 that says "breakpoint 0 was hit" stays set (x86-64: the processor and the kernel never clear
it). GDB believes the bit: it takes any signal that the thread gets later for a hardware breakpoint
that it has already removed, and does not stop. A crash would end the rank under the debugger
unnoticed, and no interrupt would stop it (GDB 13, infrun.c, handle_signal_stop: "delayed hardware
breakpoint/watchpoint trap, ignoring").

Only the tracer can write the register, so GDB does it, by ptrace(2).
"""

from __future__ import annotations

from crdebug.base.deadline import Deadline
from crdebug.mi.connection import Connection

_CODE = """
import ctypes, gdb, platform
if platform.machine() == 'x86_64':
    ptrace = ctypes.CDLL(None).ptrace
    ptrace.argtypes, ptrace.restype = [ctypes.c_long] * 4, ctypes.c_long
    POKEUSER, DEBUG_REGISTERS, NOTHING_HIT = 6, 848, 0xffff0ff0
    for thread in gdb.selected_inferior().threads():
        ptrace(POKEUSER, thread.ptid[1], DEBUG_REGISTERS + 6 * 8, NOTHING_HIT)
"""


async def forget_hits(connection: Connection, deadline: Deadline) -> None:
    """Call this whenever another program may have traced the process. GDB has already read its own
    hits when a rank is stopped."""
    await connection.console(f"python exec({_CODE!r}, {{}})", deadline)
