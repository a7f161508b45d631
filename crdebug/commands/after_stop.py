"""After a stop: show the displays, and run the breakpoint's commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from crdebug.base.answers import same_places
from crdebug.base.errors import BadInput
from crdebug.base.events import StopReason
from crdebug.base.ranks import RankSet
from crdebug.commands.context import Context
from crdebug.commands.results import Displayed, Moved, Restarted, Result, Several, Stopped

if TYPE_CHECKING:
    from crdebug.commands.registry import Registry
    from crdebug.session.values import Breakpoint

SILENT = "silent"
_AT_POINTS = (StopReason.BREAKPOINT, StopReason.WATCHPOINT, StopReason.CATCHPOINT)


Points = Mapping[str, "Breakpoint"]
"""Breakpoints that have commands, by number."""


def points_with_commands(context: Context) -> Points:
    return {str(each.number): each for each in context.session.breakpoints() if each.commands}


async def follow(registry: Registry, context: Context, points: Points, result: Result) -> Result:
    """The result of a command; if that was a stop, with the displays and the breakpoint's commands
    after it.

    points: the breakpoints before the stop, which deletes temporary ones. A breakpoint's commands
    may resume the job, up to another breakpoint with commands: all of the results but the last go
    to `context.show`.
    """
    while True:
        point, ranks = _point(points, result)
        silent = point is not None and point.commands[0] == SILENT
        if (
            context.session.displays
            and not silent
            and isinstance(result, Stopped | Moved | Restarted)
        ):
            result = Several((result, await displayed(context)))
        if point is None:
            return result
        if not silent:
            context.show(result)
        points = points_with_commands(context)
        result = await _commands(registry, context, point, ranks)


async def displayed(context: Context) -> Displayed:
    """The displays' present values, each on those of its ranks that are stopped."""
    session = context.session
    standing = RankSet.of(info.rank for info in session.info_ranks() if info.location is not None)
    found = []
    for each in session.displays:
        ranks = each.ranks & standing
        if ranks:
            answers = await session.evaluate(ranks, each.expression, each.format)
            found.append((each, same_places(answers)))
    return Displayed(tuple(found))


def _point(points: Points, result: Result) -> tuple[Breakpoint | None, RankSet]:
    """The first breakpoint with commands that ranks have stopped at, and which ranks."""
    cause = result.stop.cause if isinstance(result, Stopped) else ()
    hits = [each for each in cause if each.reason in _AT_POINTS and each.detail in points]
    if not hits:
        return None, RankSet()
    number = hits[0].detail
    return points[number], RankSet.of(each.rank for each in hits if each.detail == number)


async def _commands(
    registry: Registry, context: Context, point: Breakpoint, ranks: RankSet
) -> Result:
    """Run them for the ranks that stopped there; commands that resume the job are for all ranks.

    Ends after the first one that resumed the job: the rest would be about another place.
    """
    result: Result = Several(())
    focus = context.focus
    try:
        for line in point.commands:
            if line == SILENT:
                continue
            context.show(result)
            context.focus = focus if registry.lets_run(line) else ranks
            result = await registry.run_one(context, line)
            if isinstance(result, Stopped):
                break
    except BadInput as error:
        error.problem = f"in the commands of breakpoint {point.number}: {error.problem}"
        raise
    finally:
        context.focus = focus
    return result
