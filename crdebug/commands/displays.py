"""display, undisplay, info display: expressions that are shown after every stop."""

from __future__ import annotations

from collections.abc import Iterable

from crdebug.base.errors import BadInput
from crdebug.commands.after_stop import displayed
from crdebug.commands.arguments import integers, letters, rest
from crdebug.commands.context import Context
from crdebug.commands.gdb_commands import LOOKING
from crdebug.commands.registry import Call, Requires
from crdebug.commands.results import Nothing, Result, Text


def _numbers(context: Context) -> Iterable[str]:
    return (str(each.number) for each in context.session.displays)


EXPRESSION = rest("EXPR", "an expression; without one, all displays are shown now", default="")
FORMAT = letters("f", "GDB's format letter, as for print")
NUMBERS = integers("N...", "numbers of displays, and ranges of them", candidates=_numbers)


@LOOKING.command(
    "display",
    """
Show an expression now, and after every stop, on these ranks.

A rank that cannot evaluate it is left out.

    display step
    [0] display/x flags
""",
    arguments=(FORMAT, EXPRESSION),
    ranks=True,
)
async def display(call: Call) -> Result:
    context = call.context
    if call[EXPRESSION]:
        format = f"/{call[FORMAT]}" if call[FORMAT] else ""
        context.session.display(call.ranks, call[EXPRESSION], format)
    return await displayed(context)


@LOOKING.command(
    "undisplay",
    "Stop showing an expression; without numbers, all of them.",
    arguments=(NUMBERS,),
    requires=Requires.ANY,
)
async def undisplay(call: Call) -> Result:
    session = call.context.session
    known = {each.number for each in session.displays}
    for number in call[NUMBERS]:
        if number not in known:
            raise BadInput(f"there is no display {number}", hint="'info display' lists them")
    session.undisplay(call[NUMBERS] or known)
    return Nothing()


@LOOKING.command("info display", "List the displays.", requires=Requires.ANY)
async def info_display(call: Call) -> Result:
    lines = [
        f"{each.number}: [{each.ranks}] display{each.format} {each.expression}"
        for each in call.context.session.displays
    ]
    return Text("\n".join(lines) or "there are no displays")
