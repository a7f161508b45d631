"""Running: continue, step, next, finish, interrupt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crdebug.commands.arguments import flag, integer
from crdebug.commands.registry import Call, Group, Requires
from crdebug.commands.results import Nothing, Result, Stopped
from crdebug.errors import Refused
from crdebug.events import GroupStopped, RankStopped, StopReason
from crdebug.ranks import RankSet

if TYPE_CHECKING:
    from crdebug.session import Session

RUNNING = Group("running", "Running the job")

TIMES = integer("N", "how many times", default=1)
TO_END = flag("--to-end", "run on when ranks exit with status 0, until the job has ended")


@RUNNING.command(
    "continue",
    """
Run the ranks until one of them stops; then the others are stopped too.

With --to-end the job runs on when ranks exit normally (status 0), and the command returns when
the job has ended. Any other stop ends it as usual.
""",
    aliases=("c", "fg"),
    arguments=(TO_END,),
    ranks=True,
    repeats=True,
)
async def continue_(call: Call) -> Result:
    session = call.context.session
    if call[TO_END]:
        return Stopped(await run_to_end(session, call.ranks))
    return Stopped(await session.resume(call.ranks))


async def run_to_end(session: Session, ranks: RankSet) -> GroupStopped:
    """Resume after each normal exit of ranks until the job has ended, or something else stops it.

    The stop that is returned names all the ranks that exited on the way.
    """
    done: tuple[RankStopped, ...] = ()
    while True:
        stop = await session.resume(ranks)
        exits = tuple(s for s in stop.stops if _normal_exit(s))
        done += exits
        if not all(map(_normal_exit, stop.cause)):
            return stop
        ranks -= RankSet.of(s.rank for s in exits)
        if session.ended is not None or not ranks:
            break
    if not any(info.pid is not None for info in session.info_ranks()):
        await session.job_end()  # the launcher still has to collect its ranks
    return GroupStopped(done, done)


def _normal_exit(stop: RankStopped) -> bool:
    return stop.reason is StopReason.EXITED and stop.detail in ("", "0")


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

An empty line does it again. The other ranks stay where they are: a rank that waits in MPI for
one of them comes back only when that one runs too, or on Ctrl-C.
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
    "interrupt",
    """
Stop the running ranks.

At the prompt Ctrl-C does it while the job runs.
""",
    requires=Requires.ALIVE,
)
async def interrupt(call: Call) -> Result:
    session = call.context.session
    if not session.running:
        raise Refused("no rank is running", hint="'continue' runs them")
    await session.interrupt()
    return Nothing()
