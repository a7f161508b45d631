"""Steps from code of which GDB does not know where its function begins and ends.

GDB takes such a step through the whole function, if that has a name: "Single stepping until exit".
The functions of a library without symbols in which a process waits for the kernel have none (in
glibc from 2.41 on, below every call that is a cancellation point), and then GDB refuses the step
(gdb/infcmd.c, prepare_one_step). So the step leads out of them, to the caller that has a name.
"""

from __future__ import annotations

from crdebug.base.deadline import Deadline
from crdebug.base.errors import GdbError
from crdebug.base.events import StopReason
from crdebug.debugger import mi_values
from crdebug.mi.connection import Connection

_REFUSED = "Cannot find bounds of current function"
_DEPTH = 64  # of a caller with a name; in libraries it is a few frames away


async def way_out(refused: GdbError, connection: Connection, deadline: Deadline) -> str:
    """The command to use instead of one that was refused. Raises the refusal if there is none."""
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
    """The reason of a stop for which GDB gives none, by the command of the run."""
    return StopReason.FINISH if command.startswith("-exec-finish") else StopReason.OTHER
