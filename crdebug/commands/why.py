"""Why ranks wait: why-blocked."""

from __future__ import annotations

from crdebug.commands.history import HISTORY
from crdebug.commands.registry import Call, Requires
from crdebug.commands.results import Result, Text


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

Also where it went well this time: collectives whose members call another one, or with another root
or size; messages that nobody received and receives that nobody completed by MPI_Finalize; calls
that the MPI refused. Equal ones are one line, with the source line and the tick to go to. Ask at
the end of the job: only then it is known what is missing.
""",
    requires=Requires.ANY,
    ranks=True,
)
async def check(call: Call) -> Result:
    return Text(await call.context.session.check(call.ranks))
