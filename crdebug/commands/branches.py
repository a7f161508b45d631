"""Branches of history: branch, info branches, switch, compare."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from crdebug.base.answers import some
from crdebug.base.errors import BadInput
from crdebug.commands.arguments import rest, word
from crdebug.commands.context import Context
from crdebug.commands.history import HISTORY, history, moved
from crdebug.commands.registry import Call, Requires
from crdebug.commands.results import Comparison, Ranked, Result, Text
from crdebug.timeline.text import branches_text


def _names(context: Context) -> Iterable[str]:
    past = context.session.history
    return past.branching.branches.known if past is not None else ()


NAME = word("NAME", "a name for it; without one it gets a number", default="")
BRANCH = word("BRANCH", "the branch's name", candidates=_names)
COMPARISON = rest("EXPR [BRANCH1 BRANCH2]", "an expression, and two branches", candidates=_names)


@HISTORY.command(
    "branch",
    """
Begin a new branch of history here.

The recorded future is kept as the branch that the job was on. From here on the job no longer
repeats it: messages may come in another order. After a change of state (an assignment, a function
call) a branch begins by itself when the job runs on. A checkpoint is taken, so that you can come
back here.
""",
    arguments=(NAME,),
)
async def branch(call: Call) -> Result:
    past = history(call)
    await past.branch(call[NAME])
    return Text(branches_text(past.branching.branches, past.focus(call.ranks)))


@HISTORY.command(
    "info branches",
    """
Show the branches of history.

Each is shown below the branch that it left, with the place and the change. A star marks the one
that the job is on.
""",
    requires=Requires.ANY,
)
async def info_branches(call: Call) -> Result:
    past = history(call)
    return Text(branches_text(past.branching.branches, past.focus(call.ranks)))


@HISTORY.command(
    "switch",
    """
Go to the end of another branch of history.

The job is brought back from a checkpoint and repeats the branch as it was recorded; ranks that had
ended stop just before they leave MPI.
""",
    arguments=(BRANCH,),
    requires=Requires.ANY,
)
async def switch(call: Call) -> Result:
    past = history(call)
    return moved(call, await past.switch(call[BRANCH], past.focus(call.ranks)))


@HISTORY.command(
    "compare",
    """
Compare an expression's values across ranks, or at the ends of two branches.

Across ranks: the ranks whose value is unlike the others' are named. If more than half of the ranks
agree, these are all the rest; if not, and the values are numbers, these are the ones far from the
median. Strings are compared as text. Addresses are not compared, except that a null pointer differs
from any other.

With two branches: unless the job is already at the end of a branch, a second job is brought there
for the comparison, in a container and with GDBs of its own; your job stays where it is.

    compare total
    [all - edge] compare u[1]
    compare total main branch-1
""",
    arguments=(COMPARISON,),
    requires=Requires.ANY,
    ranks=True,
    of_cores=True,
)
async def compare(call: Call) -> Result:
    words = call[COMPARISON].split()
    branches = tuple(_names(call.context))
    if len(words) < 2 or not any(word in branches for word in words[-2:]):
        answers, deviating = await call.context.session.compare(call.ranks, call[COMPARISON])
        return Ranked(some(answers), deviating)
    if len(words) < 3:
        raise BadInput("an expression and two branches are needed", hint="compare EXPR B1 B2")
    expression, *names = call[COMPARISON].rsplit(maxsplit=2)
    compared = await history(call).compare(expression, tuple(names))
    return Comparison(
        tuple(replace(each, answers=each.answers.among(call.ranks)) for each in compared)
    )
