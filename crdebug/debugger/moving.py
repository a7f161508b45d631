"""Moving a rank elsewhere without letting it run there."""

from __future__ import annotations

from crdebug.base.deadline import Deadline
from crdebug.base.events import Location
from crdebug.debugger.frames import at_innermost
from crdebug.debugger.question import question
from crdebug.debugger.target import Target
from crdebug.gdbscripts.wire import Command
from crdebug.mi.records import quote


@question
async def return_(target: Target, value: str, deadline: Deadline) -> Location:
    """Make the selected function return now, with a value ("": none). Returns the rank's new
    place."""
    return await _move(target, _typed(f"return {value}".rstrip()), deadline)


@question
async def jump(target: Target, location: str, deadline: Deadline) -> Location:
    """Move to a location in the same function. Returns the rank's new place."""
    return await _move(target, f"{Command.JUMP} {location}", deadline)


async def _move(target: Target, command: str, deadline: Deadline) -> Location:
    await at_innermost(target, deadline)
    await target.mi(command, deadline)
    # a system call that the stop interrupted must not be repeated at the new place
    await target.mi(_typed("set $orig_rax = -1"), deadline)
    location = await target.location(deadline)
    target.stands(location)
    return location


def _typed(line: str) -> str:
    return f"-interpreter-exec console {quote(line)}"
