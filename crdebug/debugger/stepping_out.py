"""Steps in code where GDB does not know the bounds of the function.

GDB takes such a step through the whole function, if that has a name: "Single stepping until exit".
In a library without symbols, the functions in which a process waits for the kernel have no name (in
glibc from 2.41 on, below every call that is a cancellation point). There GDB refuses the step
(gdb/infcmd.c, prepare_one_step). So our step leads out of them, to the nearest caller with a name.
"""

from __future__ import annotations

from crdebug.base.deadline import Deadline
from crdebug.base.errors import GdbError
from crdebug.base.events import StopReason
from crdebug.debugger import mi_values
from crdebug.mi.connection import Connection

_REFUSED = "Cannot find bounds of current function"
_DEPTH = 64  # frames up to a caller with a name, which usually takes few


async def way_out(refused: GdbError, connection: Connection, deadline: Deadline) -> str:
    """The command to use instead of a refused one. Raises the refusal if there is none."""
    if refused.problem != _REFUSED:
        raise refused
    stack = await connection.command(f"-stack-list-frames 0 {_DEPTH}", deadline)
    named = (each.level for each in mi_values.frames(stack.payload) if each.location.function)
    level = next(named, 0)
    if level == 0:
        raise refused
    return await finish(level - 1, connection, deadline)


async def finish(level: int, connection: Connection, deadline: Deadline) -> str:
    """The command that runs until the selected thread's frame of this level returns."""
    listing = await connection.command("-thread-info", deadline)
    number = listing.payload.text("current-thread-id")
    return f"-exec-finish --thread {number} --frame {level}"


def goal(command: str) -> StopReason:
    """The reason of a stop for which GDB gives none, judged by the command that began the run."""
    return StopReason.FINISH if command.startswith("-exec-finish") else StopReason.OTHER
