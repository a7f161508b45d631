"""Evaluate crdebug's own expressions in C: the frame's language may not have casts."""

from __future__ import annotations

from crdebug.base.deadline import Deadline
from crdebug.debugger.target import Target


async def number_in_c(target: Target, expression: str, deadline: Deadline, option: str = "") -> int:
    """The value of an expression. option: of MI, like ``--thread 2``. Raises GdbError."""
    command = f'-data-evaluate-expression {option} --language c "(unsigned long)({expression})"'
    # the user may have set output-radix
    return (await target.mi(command, deadline)).payload.number("value", base=0)
