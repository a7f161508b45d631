"""Looking: info ranks, info threads, print, gdb, echo."""

from __future__ import annotations

from crdebug.base.answers import NoRankAnswered, same_places, some
from crdebug.commands.arguments import Completes, flag, letters, rest
from crdebug.commands.registry import Call, Family, Group, Requires
from crdebug.commands.results import (
    Hosts,
    Printed,
    Ranks,
    Result,
    Said,
    Text,
    Threads,
)

INFO = Family("info", "Show the state of things", aliases=("i",))
DATA = Group("data", "Looking at the job", families=(INFO,), of_cores=True)

EACH = flag("--each", "a line for every rank")
EXPRESSION = rest("EXPR", "an expression in the program's language", completes=Completes.EXPRESSION)
FORMAT = letters("f", "GDB's format letter: x, d, u, o, t, c, f, a, s, z")
GDB_COMMAND = rest(
    "COMMAND", "what you would type at GDB's own prompt", completes=Completes.COMMAND
)
ECHO = rest("TEXT", "what to show", default="")


@DATA.command(
    "info ranks",
    "Show every rank: state, process, host, and where it is.",
    aliases=("info r",),
    requires=Requires.ANY,
    ranks=True,
)
async def info_ranks(call: Call) -> Result:
    return Ranks(tuple(r for r in call.context.session.info_ranks() if r.rank in call.ranks))


@DATA.command(
    "info hosts",
    """
Show the hosts that have ranks, and whether crdebug can reach its agents there.

A host's name after an @ stands for its ranks: '[@n7] backtrace'.
""",
    requires=Requires.ANY,
)
async def info_hosts(call: Call) -> Result:
    return Hosts(call.context.session.info_hosts())


@DATA.command(
    "info threads",
    "Show the threads of the ranks; equal ones as one line.",
    ranks=True,
)
async def info_threads(call: Call) -> Result:
    return Threads(some(await call.context.session.info_threads(call.ranks)))


@DATA.command(
    "print",
    """
Evaluate an expression on each rank; equal values are shown as one.

The most frequent value comes first. If there are many different numbers, their range is shown, with
the ranks at its ends and those with nan and infinities. Where the expression cannot be evaluated,
GDB's own message follows the values.

Each rank's GDB numbers its own values, so no numbers are shown: '$' is the rank's last value, and
'$$' the one before it. Values of displays, 'compare' and conditions count too; to keep one, put it
into a variable of GDB's ('set var $x = n').

    [0,2-3] print x
    print/x flags
""",
    aliases=("p", "inspect"),
    arguments=(FORMAT, EACH, EXPRESSION),
    ranks=True,
)
async def print_(call: Call) -> Result:
    session = call.context.session
    format = f"/{call[FORMAT]}" if call[FORMAT] else ""
    answers = await session.evaluate(call.ranks, call[EXPRESSION], format)
    try:
        return Printed(some(answers if call[EACH] else same_places(answers)), call[EACH])
    except NoRankAnswered as failed:
        if failed.problem.startswith("No symbol"):
            failed.hint = "'backtrace' shows where ranks are, 'info locals' the variables there"
        raise


@DATA.command(
    "gdb",
    """
Pass a command to the ranks' GDBs, as typed.

    [0] gdb info auxv
    gdb set print elements 20
""",
    arguments=(GDB_COMMAND,),
    ranks=True,
    changes=True,
)
async def gdb(call: Call) -> Result:
    return Said(some(await call.context.session.gdb(call.ranks, call[GDB_COMMAND])))


@DATA.command(
    "echo",
    "Show a text: a heading in a script's output.",
    arguments=(ECHO,),
    requires=Requires.ANY,
    echoed=False,
)
async def echo(call: Call) -> Result:
    return Text(call[ECHO])
