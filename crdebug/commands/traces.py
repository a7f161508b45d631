"""Trace points: trace, info trace."""

from __future__ import annotations

from crdebug.base.errors import BadInput
from crdebug.base.expression_lists import expressions
from crdebug.commands.arguments import Completes, integer, natural, rest
from crdebug.commands.breakpoints import BREAKPOINTS, split_condition
from crdebug.commands.context import Context
from crdebug.commands.registry import Call, Requires
from crdebug.commands.results import BreakpointSet, Result, TraceTable
from crdebug.session.values import PointKind

TRACED = rest(
    "LOCATION, EXPR[, EXPR...] [if CONDITION]",
    "where, and what to note there; as for 'break' and 'info table'",
    completes=Completes.LOCATION,
)


def _trace_points(context: Context) -> list[str]:
    known = context.session.breakpoints()
    return [str(each.number) for each in known if each.kind is PointKind.TRACE]


NUMBER = integer("N", "a trace point's number", default=0, candidates=_trace_points)
LAST = natural("LAST", "how many hits to show", default=10)


@BREAKPOINTS.command(
    "trace",
    """
Set a trace point: the ranks note values there, and run on.

'info trace' shows the values as a table, by hit and rank. Each hit holds the rank for a
moment. Hits while the job goes back in time do not count; they were noted when the job was there
first.

    trace relax, residual, step
    [0] trace heat.c:41, u[0], u[n - 1] if step > 10
""",
    arguments=(TRACED,),
    ranks=True,
)
async def trace(call: Call) -> Result:
    location, condition = split_condition(call[TRACED])
    if len(expressions(location)) < 2:
        raise BadInput("an expression is missing", hint="write trace LOCATION, EXPR")
    return BreakpointSet(
        await call.context.session.add_breakpoint(
            call.ranks, location, condition=condition, kind=PointKind.TRACE
        )
    )


@BREAKPOINTS.command(
    "info trace",
    """
Show what a trace point has noted, by hit and rank.

Ranks with equal values are one line. Without N it is the newest trace point. Of each rank the last
1000 hits are there.
""",
    arguments=(NUMBER, LAST),
    requires=Requires.ALIVE,
    ranks=True,
)
async def info_trace(call: Call) -> Result:
    known = _trace_points(call.context)
    if not known:
        raise BadInput("there is no trace point", hint="'trace' sets one")
    number = call[NUMBER] or int(known[-1])
    session = call.context.session
    found = await session.traced(number)
    (point,) = (each for each in session.breakpoints() if each.number == number)
    names = expressions(point.location)[1:]
    return TraceTable(point, names, found.among(call.ranks), call[LAST])
