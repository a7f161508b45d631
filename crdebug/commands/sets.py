"""Sets of ranks: focus, define-set, undefine-set, info sets."""

from __future__ import annotations

from collections.abc import Iterable

from crdebug.base.rank_expressions import STATES
from crdebug.commands.arguments import rest, word
from crdebug.commands.context import Context
from crdebug.commands.registry import Call, Group, Requires
from crdebug.commands.results import Nothing, Result, Sets, Text

SETS = Group("sets", "Sets of ranks", of_cores=True)


def set_words(context: Context) -> Iterable[str]:
    """What can be a rank set, for completion."""
    session = context.session
    at = (*STATES, *session.hosts)
    return ("all", "where", *session.sets, *(f"@{each}" for each in at))


def _names(context: Context) -> Iterable[str]:
    return tuple(context.session.sets)


FOCUS = rest("SET", "a rank set; without one, the focus is shown", default="", candidates=set_words)
NEW = word("NAME", "a name for it")
SET = rest("SET", "a rank set", candidates=set_words)
NAME = word("NAME", "the set's name", candidates=_names)


@SETS.command(
    "focus",
    """
Choose the ranks that commands address when no set is written in front of them.

The prompt shows them; 'focus all' undoes it. A rank set is one of

    0,3-7                   ranks
    all                     every rank
    edge                    a set with a name, see 'define-set'
    @stopped @running @exited @dead
                            the ranks that are in this state (dead: their GDB died)
    @n7                     the ranks on a host, see 'info hosts'
    where x > 3             the ranks on which an expression is true
    all - edge              without; also a & b (both), a | b or a,b (either), and brackets

A comma binds tightest, then - and & from the left, then |. What comes after 'where' is in the
program's language, up to the end of the set or the bracket around it: (where x > 3) - 0. States and
expressions are evaluated once, when the command is typed.
""",
    arguments=(FOCUS,),
    requires=Requires.ANY,
)
async def focus(call: Call) -> Result:
    context, text = call.context, call[FOCUS]
    if text:
        ranks = await context.rank_set(text)
        context.focus = None if ranks == context.session.ranks else ranks
    return Text(f"focus: [{context.addressed}]")


@SETS.command(
    "define-set",
    """
Give a rank set a name, to use wherever a set can be written.

The name keeps the ranks that are in the set now; 'help focus' explains how sets are written.

    define-set edge 0,3
    define-set bad where x != x
    [all - edge] print u[0]
""",
    arguments=(NEW, SET),
    requires=Requires.ANY,
)
async def define_set(call: Call) -> Result:
    session = call.context.session
    session.sets.define(call[NEW], await session.select(call[SET]))
    return Text(f"{call[NEW]}: [{session.sets[call[NEW]]}]")


@SETS.command(
    "undefine-set",
    "Forget a set's name.",
    arguments=(NAME,),
    requires=Requires.ANY,
)
async def undefine_set(call: Call) -> Result:
    call.context.session.sets.undefine(call[NAME])
    return Nothing()


@SETS.command(
    "info sets",
    "Show the rank sets that have a name, and which ranks are in which state.",
    requires=Requires.ANY,
)
async def info_sets(call: Call) -> Result:
    session = call.context.session
    states = ((f"@{state}", session.in_state(state)) for state in STATES)
    named = ((name, session.sets[name]) for name in session.sets)
    everybody = ("all", session.ranks)
    return Sets((everybody, *((name, ranks) for name, ranks in states if ranks), *named))
