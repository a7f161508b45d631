"""Why ranks wait, and what is wrong with their calls: why-blocked, check, info races, try."""

from __future__ import annotations

from crdebug.base.errors import BadInput
from crdebug.commands.arguments import integer, word
from crdebug.commands.history import HISTORY
from crdebug.commands.registry import Call, Requires
from crdebug.commands.results import Result, Stopped, Text


@HISTORY.command(
    "why-blocked",
    """
Tell why ranks wait: for whom, and whether they can ever go on.

Equal answers are one line, with the source line of the call. crdebug calls it a deadlock only where
that is proved: whatever the other ranks do, those that are named cannot go on. It names collectives
whose calls do not fit, and messages that nobody has asked for. If there is no deadlock, it says who
is waited for. If the job's MPI calls are not recorded, it says what the stacks show. In the shell,
'crdebug why JOB' does the same.
""",
    requires=Requires.ANY,
    ranks=True,
    of_cores=True,
)
async def why_blocked(call: Call) -> Result:
    return Text("\n".join(await call.context.session.why(call.ranks)))


@HISTORY.command(
    "check",
    """
Tell what the recorded MPI calls show to be wrong.

Also where it went well this time: collectives whose members call another one, or with another
root, type, operation or size; messages that are received as another type, or by nobody, and
receives that nobody completed by MPI_Finalize; calls that the MPI refused. Below titles of their
own, receives that could have got another message ('info races'), and sends and collectives that
hang if the MPI waits in them. Equal ones are one line, with the source line and the tick to go to.
Ask at the end of the job: only then it is known what is missing.
""",
    requires=Requires.ANY,
    ranks=True,
)
async def check(call: Call) -> Result:
    return Text(await call.context.session.check(call.ranks))


@HISTORY.command(
    "info races",
    """
List the receives and probes that could have got another message.

Each of them took a message from whichever rank; and as the record shows, a message of another rank
could have been there first. That is no error where any order is fine; where it is not, the program
goes wrong now and then. Of each source line of a rank the first one is named, with the tick to go
to; 'try N' runs the job on from there with another message.
""",
    requires=Requires.ANY,
    ranks=True,
)
async def info_races(call: Call) -> Result:
    return Text(await call.context.session.races(call.ranks))


NUMBER = integer("N", "its number in 'info races'")
SOURCE = word("RANK", "the rank whose message it gets; one that could have come first", default="")


@HISTORY.command(
    "try",
    """
Run on with another choice of messages than the one on record.

The job goes to where the receive or probe of that number is about to be called, begins a branch of
history there, and runs on: that call gets the message of the other rank, and from then on MPI
chooses. If the result is another one, the program depends on who comes first. What was recorded
stays as the branch that the job was on: 'compare EXPR main try-1' compares both ends, and 'switch
main' goes back.

    info races
    try 1
    try 2 3
""",
    arguments=(NUMBER, SOURCE),
    requires=Requires.ANY,
    ranks=True,
)
async def try_(call: Call) -> Result:
    session = call.context.session
    if call[SOURCE] and not (call[SOURCE].isascii() and call[SOURCE].isdigit()):
        raise BadInput(f"'{call[SOURCE]}' is not a rank")
    source = int(call[SOURCE]) if call[SOURCE] else None
    await session.try_another(call[NUMBER], source, call.ranks)
    return Stopped(await session.run_on(session.ranks, to_end=True))
