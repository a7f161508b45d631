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
)
async def why_blocked(call: Call) -> Result:
    return Text("\n".join(await call.context.session.why(call.ranks)))
