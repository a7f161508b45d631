"""Breakpoints, watchpoints and catchpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable

from crdebug.base.errors import BadInput
from crdebug.commands.after_stop import SILENT
from crdebug.commands.arguments import Completes, integer, integers, natural, rest
from crdebug.commands.context import Context
from crdebug.commands.registry import Call, Group, Requires
from crdebug.commands.results import (
    Breakpoints,
    BreakpointsDeleted,
    BreakpointSet,
    Nothing,
    Result,
)
from crdebug.session.values import PointKind

BREAKPOINTS = Group("breakpoints", "Breakpoints", requires=Requires.PAUSED)


def _numbers(context: Context) -> Iterable[str]:
    return (str(each.number) for each in context.session.breakpoints())


LOCATION = rest(
    "LOCATION [if CONDITION]",
    "a function, FILE:LINE, LINE, or *ADDRESS",
    completes=Completes.LOCATION,
)
NUMBERS = integers("N...", "numbers of breakpoints, and ranges of them", candidates=_numbers)

WATCHED = rest(
    "[-location] EXPR [if CONDITION]",
    "a variable, or anything else that has a place in memory",
    completes=Completes.EXPRESSION,
)
EVENT = rest("EVENT", "throw, exec, fork, load, signal, syscall, ..., as GDB takes them; or python")
NUMBER = integer("N", "a breakpoint's number", candidates=_numbers)
LAST = integer("N", "a breakpoint's number", default=0, candidates=_numbers)
COUNT = natural("COUNT", "how many hits to skip; 0 for none")
CONDITION = rest("EXPR", "an expression in the program's language", default="")

_IF = re.compile(r"(?:^|\s+)if\b\s*")


async def _set(call: Call, text: str, kind: PointKind, *, temporary: bool = False) -> Result:
    location, condition = split_condition(text)
    return BreakpointSet(
        await call.context.session.add_breakpoint(
            call.ranks, location, condition=condition, temporary=temporary, kind=kind
        )
    )


def split_condition(text: str) -> tuple[str, str]:
    """``LOCATION if CONDITION`` as its two parts. Raises BadInput when one is empty."""
    match = _IF.search(text)
    if match is None:
        return text, ""
    location, condition = text[: match.start()].strip(), text[match.end() :].strip()
    if not location:
        raise BadInput("a location is missing", hint="write break LOCATION if CONDITION")
    if not condition:
        raise BadInput("a condition is missing after 'if'", hint=f"write break {location} if x > 0")
    return location, condition


@BREAKPOINTS.command(
    "break",
    """
Set a breakpoint on the ranks.

It is one breakpoint, with a place in each of the ranks. It survives checkpoint and restart, and is
set again when you attach to the job later or restart it from the shell. Ranks that run
independently ('set stop-mode rank') are stopped briefly to set it, and run on.

FILE.py:LINE is a line of Python, also before Python has begun; the condition is then Python's, too,
and 'step', 'next' and 'finish' go by lines of Python from there, forward and back.

    break relax
    [0] break heat.c:41 if step > 10
    break solver.py:14 if comm.rank == 1
""",
    aliases=("b", "br"),
    arguments=(LOCATION,),
    ranks=True,
)
async def break_(call: Call) -> Result:
    return await _set(call, call[LOCATION], PointKind.BREAK)


@BREAKPOINTS.command(
    "tbreak",
    """
Set a breakpoint that is deleted on all its ranks once one of them hits it.

Where ranks run independently ('set stop-mode rank'), each keeps it until its own first hit.
""",
    aliases=("tb",),
    arguments=(LOCATION,),
    ranks=True,
)
async def tbreak(call: Call) -> Result:
    return await _set(call, call[LOCATION], PointKind.BREAK, temporary=True)


@BREAKPOINTS.command(
    "watch",
    """
Stop the ranks when a value changes, whichever code changes it.

The processor watches it: a rank can have up to four at a time, of up to eight bytes each. The
watchpoint of a local variable goes away when its block ends, or at a restart; with -location the
memory itself is watched, even where the name is unknown. A later session sets only those of global
variables again.

    watch residual
    [1] watch -location u[3] if step > 10
""",
    arguments=(WATCHED,),
    ranks=True,
)
async def watch(call: Call) -> Result:
    return await _set(call, call[WATCHED], PointKind.WATCH)


@BREAKPOINTS.command(
    "rwatch",
    "Stop the ranks when a value is read.",
    arguments=(WATCHED,),
    ranks=True,
)
async def rwatch(call: Call) -> Result:
    return await _set(call, call[WATCHED], PointKind.RWATCH)


@BREAKPOINTS.command(
    "awatch",
    "Stop the ranks when a value is read or changed.",
    arguments=(WATCHED,),
    ranks=True,
)
async def awatch(call: Call) -> Result:
    return await _set(call, call[WATCHED], PointKind.AWATCH)


@BREAKPOINTS.command(
    "catch",
    """
Stop the ranks at an event.

    catch throw
    catch signal SIGUSR1
    catch fork
    catch load libfoo
    catch syscall write
    catch python

'catch python' is crdebug's own: an exception of Python's that nothing has caught, before it is
printed and the rank ends.
""",
    arguments=(EVENT,),
    ranks=True,
)
async def catch(call: Call) -> Result:
    return await _set(call, call[EVENT], PointKind.CATCH)


def _known(call: Call, numbers: Iterable[int]) -> tuple[int, ...]:
    """The breakpoints of these numbers; without any, all. Raises BadInput."""
    known = tuple(each.number for each in call.context.session.breakpoints())
    for number in numbers:
        if number not in known:
            raise BadInput(f"there is no breakpoint {number}", hint="'info breakpoints' lists them")
    return tuple(numbers) or known


@BREAKPOINTS.command(
    "enable",
    "Enable breakpoints; without numbers, all of them.",
    arguments=(NUMBERS,),
)
async def enable(call: Call) -> Result:
    for number in _known(call, call[NUMBERS]):
        await call.context.session.enable_breakpoint(number, True)
    return Nothing()


@BREAKPOINTS.command(
    "disable",
    "Disable breakpoints, but keep them; without numbers, all of them.",
    arguments=(NUMBERS,),
)
async def disable(call: Call) -> Result:
    for number in _known(call, call[NUMBERS]):
        await call.context.session.enable_breakpoint(number, False)
    return Nothing()


@BREAKPOINTS.command(
    "condition",
    """
Make a breakpoint stop only where EXPR is true; without EXPR, always.

    condition 2 step > 10
""",
    arguments=(NUMBER, CONDITION),
)
async def condition(call: Call) -> Result:
    await call.context.session.set_condition(call[NUMBER], call[CONDITION])
    return Nothing()


@BREAKPOINTS.command(
    "ignore",
    """
Skip the next COUNT hits of a breakpoint, on each rank.

    ignore 2 1000
""",
    arguments=(NUMBER, COUNT),
)
async def ignore(call: Call) -> Result:
    await call.context.session.ignore_hits(call[NUMBER], call[COUNT])
    return Nothing()


@BREAKPOINTS.command(
    "commands",
    """
Run commands after every stop at a breakpoint.

They are the lines that follow, up to 'end', and are for the ranks that hit the breakpoint; commands
that resume the job are for all ranks. If the first is 'silent', the stop itself is not shown.
Without N they are for the newest breakpoint. An empty list takes a breakpoint's commands away.

    commands 2
    silent
    print step
    continue
    end
""",
    arguments=(LAST,),
    requires=Requires.ALIVE,
    block=True,
)
async def commands(call: Call) -> Result:
    points = call.context.session.breakpoints()
    if not points:
        raise BadInput("there is no breakpoint", hint="'break' sets one")
    for line in call.block:
        if line != SILENT:
            call.registry.read(line)
    call.context.session.set_commands(call[LAST] or points[-1].number, call.block)
    return Nothing()


@BREAKPOINTS.command(
    "delete",
    """
Delete breakpoints; without numbers, all of them.

    delete 2
    delete 1 3-5
""",
    aliases=("d",),
    arguments=(NUMBERS,),
)
async def delete(call: Call) -> Result:
    context = call.context
    numbers = _known(call, call[NUMBERS])
    if numbers and not call[NUMBERS] and not await context.confirm("Delete all breakpoints?"):
        return Nothing()
    for number in numbers:
        await context.session.delete_breakpoint(number)
    return BreakpointsDeleted(numbers)


@BREAKPOINTS.command(
    "info breakpoints",
    "Show the breakpoints.",
    aliases=("info b", "info watchpoints"),
    requires=Requires.ANY,
)
async def info_breakpoints(call: Call) -> Result:
    return Breakpoints(call.context.session.breakpoints())
