"""Lines of Python of a rank that repeats its past; see gdbscripts/python_lines.py."""

from __future__ import annotations

from dataclasses import dataclass

from crdebug.base.deadline import Deadline
from crdebug.base.instant import Instant
from crdebug.debugger.frames import at_innermost
from crdebug.debugger.in_c import number_in_c
from crdebug.debugger.python_lines import is_in_python
from crdebug.debugger.target import Target, TargetState
from crdebug.gdbscripts.wire import PYTHON_FUNCTION, PYTHON_LINES, Command

ANY_DEPTH = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class LinesSeen:
    """counted: the lines since `count_lines`.  now: where the rank was in its history at the last
    one.  depth: how deep the function of its last stop is on Python's stack; 1 is the outermost.
    breakpoints: how many have stopped it at the line that it is in.
    """

    counted: int
    now: Instant
    depth: int
    breakpoints: int


async def leave_python(target: Target, deadline: Deadline) -> None:
    """Let a rank that stands at a line go to the first instruction of that, to which it can be
    brought again (gdbscripts/python_leave.py). It is shown where it was."""
    if target.state is TargetState.STOPPED and is_in_python(target.last_stop):
        await at_innermost(target, deadline)
        await target.mi(Command.PYTHON_LEAVE, deadline)


async def lines_seen(target: Target, deadline: Deadline) -> LinesSeen:
    told = (await target.mi(Command.PYTHON_PLACE, deadline)).payload
    now = Instant(told.number("now"))
    return LinesSeen(told.number("counted"), now, told.number("depth"), told.number("passed"))


async def count_lines(target: Target, deepest: int, deadline: Deadline, *, wanted: int = 0) -> None:
    """From now on count the lines in functions at most so deep (0: none), and pass `counted_place`
    at the one of the wanted number."""
    await target.mi(f"{Command.PYTHON_COUNT} {deepest} {wanted}", deadline)


async def counted_place(target: Target, deadline: Deadline) -> int:
    """An address."""
    return await number_in_c(target, f"(long)&{PYTHON_FUNCTION}{PYTHON_LINES + 2}", deadline)
