"""A table of values: info table."""

from __future__ import annotations

from crdebug.base.answers import some
from crdebug.base.expression_lists import expressions
from crdebug.commands.arguments import rest
from crdebug.commands.looking import DATA, EACH
from crdebug.commands.registry import Call
from crdebug.commands.results import Result, Tabled

TABLED = rest("EXPR[, EXPR...]", "expressions in the program's language, with commas between them")


@DATA.command(
    "info table",
    """
Show several expressions as a table, with a line for equal ranks.

Below are the least and the greatest number of each column, with the ranks that have it, and the
mean. A value with a '*' is unlike those of the other ranks, as 'compare' finds them. If there are
many different lines, only those with such a value are shown.

    info table residual, step
    [0-7] info table u[0], u[n - 1], sizeof(u)
""",
    arguments=(EACH, TABLED),
    ranks=True,
)
async def info_table(call: Call) -> Result:
    session = call.context.session
    columns = []
    for expression in expressions(call[TABLED]):
        columns.append((expression, await session.evaluate(call.ranks, expression)))
    if not any(answers.values for _, answers in columns):
        some(columns[0][1])
    return Tabled(tuple(columns), call[EACH])
