"""From a stop at a line of Python to a place that a rank reaches again when it repeats its past."""

from __future__ import annotations

from crdebug.base.deadline import Deadline
from crdebug.debugger.frames import at_innermost
from crdebug.debugger.python_lines import is_in_python
from crdebug.debugger.target import Target, TargetState
from crdebug.gdbscripts.wire import Command


async def leave_python(target: Target, deadline: Deadline) -> None:
    """Let the rank go to the first instruction of its line (gdbscripts/python_leave.py).

    It is shown where it was. One that stands elsewhere stays.
    """
    if target.state is TargetState.STOPPED and is_in_python(target.last_stop):
        await at_innermost(target, deadline)
        await target.mi(Command.PYTHON_LEAVE, deadline)


async def breakpoints_at_line(target: Target, deadline: Deadline) -> int:
    """How many breakpoints have stopped the rank at the line that it is in."""
    return (await target.mi(Command.PYTHON_PLACE, deadline)).payload.number("passed")
