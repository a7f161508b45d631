"""Trace points: what they have noted on a rank (gdbscripts/traces.py)."""

from __future__ import annotations

from dataclasses import dataclass

from crdebug.base.deadline import Deadline
from crdebug.base.expression_lists import expressions
from crdebug.debugger.question import question
from crdebug.debugger.target import Target
from crdebug.gdbscripts.wire import Command
from crdebug.mi.records import quote


@dataclass(frozen=True, slots=True)
class Traced:
    """hits: how often the rank came there.  rows: the values at the last of them, oldest first."""

    hits: int
    rows: tuple[tuple[str, ...], ...]


def arguments(text: str, condition: str) -> str:
    """Of the MI commands. text: ``LOCATION, EXPR, ...``. Raises BadInput."""
    location, *values = expressions(text)
    return " ".join(quote(each) for each in (location, condition, *values))


@question
async def traced(target: Target, text: str, condition: str, deadline: Deadline) -> Traced:
    """What the trace point that was set so has noted. Raises GdbError."""
    command = f"{Command.TRACED} {arguments(text, condition)}"
    found = (await target.mi(command, deadline)).payload
    rows = tuple(tuple(row.list("values").texts()) for row in found.list("rows").tuples())
    return Traced(found.number("hits"), rows)
