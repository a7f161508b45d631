"""Branches of history: branch, info branches, switch, compare."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from crdebug.base.errors import BadInput
from crdebug.commands.arguments import rest, word
from crdebug.commands.context import Context
from crdebug.commands.history import HISTORY, history, moved
from crdebug.commands.registry import Call, Requires
from crdebug.commands.results import Comparison, Ranked, Result, Text
from crdebug.debugger.answers import some
from crdebug.timeline.branches import branches_text


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

The recorded future stays as the branch that the job was on, and from here on MPI is asked anew: the
messages may come in another order. After a change of the state (an assignment, a function called)
that happens of itself when the job runs on. A checkpoint is taken, to come back to here.
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

Each below the one that it left, with where it left it, and what was changed there. The job is on
the one with the star.
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

It is brought back from a checkpoint and repeated as it was recorded; ranks that had ended are then
before they left MPI.
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
Compare an expression's values: of the ranks, or at the ends of two branches.

Of the ranks: the ones whose value is unlike the others' are named. If more than half of them agree,
those are all the others; if not, of numbers, those that are far from the median. Strings are
compared as texts; addresses are not compared, but for null pointers among others.

With two branches: a branch that the job is not at the end of is brought back beside it, in a
container and with GDBs of its own, for as long as this takes; the job stays where it is.

    compare total
    [all - edge] compare u[1]
    compare total main branch-1
""",
    arguments=(COMPARISON,),
    requires=Requires.ANY,
    ranks=True,
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
