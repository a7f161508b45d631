"""Breakpoints: break, tbreak, delete, info breakpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable

from crdebug.commands.arguments import integers, rest
from crdebug.commands.context import Context
from crdebug.commands.registry import Call, Group, Requires
from crdebug.commands.results import (
    Breakpoints,
    BreakpointsDeleted,
    BreakpointSet,
    Nothing,
    Result,
)
from crdebug.errors import BadInput

BREAKPOINTS = Group("breakpoints", "Breakpoints")


def _numbers(context: Context) -> Iterable[str]:
    return (str(each.number) for each in context.session.breakpoints())


LOCATION = rest("LOCATION [if CONDITION]", "a function, FILE:LINE, LINE, or *ADDRESS")
NUMBERS = integers("N...", "numbers of breakpoints, and ranges of them", candidates=_numbers)

_IF = re.compile(r"(?:^|\s+)if\b\s*")


async def _set(call: Call, *, temporary: bool) -> Result:
    location, condition = split_condition(call[LOCATION])
    return BreakpointSet(
        await call.context.session.add_breakpoint(
            call.ranks, location, condition=condition, temporary=temporary
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

It is one breakpoint, with a place in each of the ranks; it belongs to the session, and survives
checkpoint and restart.

    break relax
    [0] break heat.c:41 if step > 10
""",
    aliases=("b", "br"),
    arguments=(LOCATION,),
    ranks=True,
)
async def break_(call: Call) -> Result:
    return await _set(call, temporary=False)


@BREAKPOINTS.command(
    "tbreak",
    "Set a breakpoint that is deleted when it is hit.",
    aliases=("tb",),
    arguments=(LOCATION,),
    ranks=True,
)
async def tbreak(call: Call) -> Result:
    return await _set(call, temporary=True)


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
    known = tuple(each.number for each in context.session.breakpoints())
    numbers = call[NUMBERS]
    for number in numbers:
        if number not in known:
            raise BadInput(f"there is no breakpoint {number}", hint="'info breakpoints' lists them")
    if not numbers:
        if known and not await context.confirm("Delete all breakpoints?"):
            return Nothing()
        numbers = known
    for number in numbers:
        await context.session.delete_breakpoint(number)
    return BreakpointsDeleted(numbers)


@BREAKPOINTS.command(
    "info breakpoints",
    "Show the breakpoints.",
    aliases=("info b",),
    requires=Requires.ANY,
)
async def info_breakpoints(call: Call) -> Result:
    return Breakpoints(call.context.session.breakpoints())
