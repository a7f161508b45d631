"""Expressions of crdebug's own: the language of the frame is the user's, and may have no casts."""

from __future__ import annotations

from crdebug.base.deadline import Deadline
from crdebug.debugger.target import Target


async def number_in_c(target: Target, expression: str, deadline: Deadline, option: str = "") -> int:
    """Its value. option: of MI, like ``--thread 2``. Raises GdbError."""
    command = f'-data-evaluate-expression {option} --language c "(unsigned long)({expression})"'
    # 'set output-radix' is the user's too
    return (await target.mi(command, deadline)).payload.number("value", base=0)
