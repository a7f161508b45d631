"""Running: continue, step, next, finish, until, advance, return, jump, call, interrupt, ..."""

from __future__ import annotations

from dataclasses import replace

from crdebug.base.answers import some
from crdebug.base.errors import Refused
from crdebug.commands.arguments import Argument, Kind, flag, integer, rest
from crdebug.commands.registry import Call, Group, Requires
from crdebug.commands.results import (
    Frames,
    Gathered,
    Nothing,
    Printed,
    Result,
    Said,
    Stopped,
    Text,
)
from crdebug.commands.setting import read_seconds

RUNNING = Group("running", "Running the job")

TIMES = integer("N", "how many times", default=1)
PLACE = rest("LOCATION", "a function, FILE:LINE, LINE, or *ADDRESS")
PLACE_OR_NONE = rest("LOCATION", "a function, FILE:LINE, LINE, or *ADDRESS", default="")
VALUE = rest(
    "VALUE", "the value to return; without it, the caller gets whatever is there", default=""
)
EXPRESSION = rest("EXPR", "an expression in the program's language")
ASSIGNMENT = rest("VARIABLE = VALUE", "an expression in the program's language")
SIGNAL = rest("SIGNAL KEYWORDS", "stop, nostop, print, noprint, pass, nopass; as GDB takes them")
TIME: Argument[float | None] = Argument(
    "TIME",
    "the longest wait (5, 5s, 2m); without it, there is no limit",
    Kind.WORD,
    read_seconds,
    None,
)
TO_END = flag("--to-end", "run on when ranks exit with status 0, until the job has ended")


@RUNNING.command(
    "continue",
    """
Run the ranks until one of them stops; then the others are stopped too.

If a rank exits normally (status 0) and the others have called MPI_Finalize, those run on to the
end. With --to-end they do so wherever they are, and the command returns when the job has ended; any
other stop ends it as usual. After 'set stop-mode rank' it returns at once: each rank's stop is
shown when it happens, and 'wait' waits for it.
""",
    aliases=("c", "fg"),
    arguments=(TO_END,),
    ranks=True,
    repeats=True,
)
async def continue_(call: Call) -> Result:
    session = call.context.session
    if session.apart and not call[TO_END]:
        return Text(f"[{await session.let_run(call.ranks)}] running")
    return Stopped(await session.run_on(call.ranks, to_end=call[TO_END]))


@RUNNING.command(
    "step",
    """
Run the ranks to the next source line, into functions.

An empty line steps again. The other ranks stay where they are.
""",
    aliases=("s",),
    arguments=(TIMES,),
    ranks=True,
    repeats=True,
)
async def step(call: Call) -> Result:
    return Stopped(await call.context.session.step(call.ranks, call[TIMES]))


@RUNNING.command(
    "next",
    """
Run the ranks to the next source line of the same function.

An empty line does it again. The other ranks stay where they are. If a rank waits in MPI for one of
them, you are told after a while (set step-patience), and they can run too (set step-others).
""",
    aliases=("n",),
    arguments=(TIMES,),
    ranks=True,
    repeats=True,
)
async def next_(call: Call) -> Result:
    return Stopped(await call.context.session.next(call.ranks, call[TIMES]))


@RUNNING.command(
    "finish",
    "Run the ranks until the innermost function returns.",
    aliases=("fin",),
    ranks=True,
)
async def finish(call: Call) -> Result:
    return Stopped(await call.context.session.finish(call.ranks))


@RUNNING.command(
    "stepi",
    "Run the ranks by one instruction, into functions.",
    aliases=("si",),
    arguments=(TIMES,),
    ranks=True,
    repeats=True,
)
async def stepi(call: Call) -> Result:
    return Stopped(await call.context.session.stepi(call.ranks, call[TIMES]))


@RUNNING.command(
    "nexti",
    "Run the ranks by one instruction, over functions.",
    aliases=("ni",),
    arguments=(TIMES,),
    ranks=True,
    repeats=True,
)
async def nexti(call: Call) -> Result:
    return Stopped(await call.context.session.nexti(call.ranks, call[TIMES]))


@RUNNING.command(
    "until",
    """
Run the ranks to a line after the current one, or to a location.

Without a location it is a 'next' that does not go back in a loop; with one it also ends where the
function returns.
""",
    aliases=("u",),
    arguments=(PLACE_OR_NONE,),
    ranks=True,
    repeats=True,
)
async def until(call: Call) -> Result:
    return Stopped(await call.context.session.until(call.ranks, call[PLACE_OR_NONE]))


@RUNNING.command(
    "advance",
    "Run the ranks until a location, or until the function returns.",
    arguments=(PLACE,),
    ranks=True,
)
async def advance(call: Call) -> Result:
    return Stopped(await call.context.session.advance(call.ranks, call[PLACE]))


@RUNNING.command(
    "jump",
    """
Run the ranks on from elsewhere in the function, skipping the code in between.

Their future is not the recorded one any more: a new branch of history begins.
""",
    aliases=("j",),
    arguments=(PLACE,),
    ranks=True,
    changes=True,
)
async def jump(call: Call) -> Result:
    return Stopped(await call.context.session.jump(call.ranks, call[PLACE]))


@RUNNING.command(
    "return",
    """
Make the selected function return at once, skipping the rest of it.

The ranks do not run yet. When they do, a new branch of history begins.
""",
    arguments=(VALUE,),
    ranks=True,
    changes=True,
)
async def return_(call: Call) -> Result:
    session = call.context.session
    some(await session.return_(call.ranks, call[VALUE]))
    return Frames(await session.select_frame(call.ranks))


@RUNNING.command(
    "call",
    "Evaluate an expression on each rank for its side effects; show any value.",
    arguments=(EXPRESSION,),
    ranks=True,
    changes=True,
)
async def call_(call: Call) -> Result:
    answers = some(await call.context.session.call(call.ranks, call[EXPRESSION]))
    return Printed(replace(answers, values={r: v for r, v in answers.values.items() if v}))


@RUNNING.command(
    "set var",
    """
Change a variable, or memory, of each rank.

When the ranks run on, a new branch of history begins.

    set var step = 10
    [1] set var u[3] = 0.5
""",
    aliases=("set variable",),
    arguments=(ASSIGNMENT,),
    ranks=True,
    changes=True,
)
async def set_variable(call: Call) -> Result:
    return Said(some(await call.context.session.set_variable(call.ranks, call[ASSIGNMENT])))


@RUNNING.command(
    "handle",
    """
Choose what the ranks' GDBs do on a signal.

    handle SIGUSR1 nostop noprint pass
    handle SIGFPE stop
""",
    arguments=(SIGNAL,),
    ranks=True,
)
async def handle(call: Call) -> Result:
    return Said(some(await call.context.session.handle(call.ranks, call[SIGNAL])))


@RUNNING.command(
    "barrier",
    """
Run the ranks until each of them has reached a location, where it waits.

If one was ahead and waits for the others, they run to the location once more. If not all of them
can get there, the command shows which did, which did not, and where those are.

    barrier exchange
    [0-1] barrier heat.c:41
""",
    arguments=(PLACE,),
    ranks=True,
)
async def barrier(call: Call) -> Result:
    return Gathered(await call.context.session.barrier(call.ranks, call[PLACE]))


@RUNNING.command(
    "wait",
    """
Wait until the ranks have stopped or ended, and show why.

For ranks that run independently ('set stop-mode rank'). Ctrl-C stops those ranks;
after TIME, the command shows which still run.

    wait
    [0,2] wait 10
""",
    arguments=(TIME,),
    requires=Requires.ANY,
    ranks=True,
)
async def wait(call: Call) -> Result:
    waited = await call.context.session.wait(call.ranks, call[TIME])
    if waited.missing:
        call.context.show(Text(f"[{waited.missing}] still running"))
    return Stopped(waited.stop)


@RUNNING.command(
    "interrupt",
    """
Stop the running ranks.

At the prompt, Ctrl-C does this while a command runs the ranks.
""",
    requires=Requires.ALIVE,
    ranks=True,
)
async def interrupt(call: Call) -> Result:
    session = call.context.session
    if not session.running & call.ranks:
        raise Refused("no rank is running", hint="'continue' runs them")
    await session.interrupt(call.ranks)
    return Nothing()
