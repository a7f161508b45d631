"""Is a recorded piece the same each time: verify."""

from __future__ import annotations

from crdebug.commands.arguments import word
from crdebug.commands.history import HISTORY, history
from crdebug.commands.registry import Call, Requires
from crdebug.commands.results import Repeated, Result

PIECE = word(
    "CHECKPOINT", "N or aN, where the piece begins; without it, as early as can be", default=""
)


@HISTORY.command(
    "verify",
    """
Repeat what is recorded twice, and tell whether both times were the same.

The piece begins at a checkpoint, and ends where the record does. At up to 40 places on the way,
the variables of the ranks are compared: global and static ones, those of the main thread's
functions, and what they point to. If one differs, something outside of MPI's messages has a say: a
data race between threads, the time, random numbers. What differs is named, with its rank and the
tick, the first one in front. Not compared are pointers themselves, and ranks into whose memory a
message may come at any moment. The job is afterwards where it stood, or, if threads begin on the
way there, at the last MPI call before it.

    verify
    verify 2
""",
    arguments=(PIECE,),
    requires=Requires.ANY,
    ranks=True,
)
async def verify(call: Call) -> Result:
    past = history(call)
    return Repeated(await past.verify(call[PIECE], past.focus(call.ranks)))
