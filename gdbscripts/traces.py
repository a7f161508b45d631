"""Trace points: breakpoints that note values, and let the rank run on.

-crdebug-trace LOCATION CONDITION EXPRESSION...
    {number=N}: set one; an empty condition is always true.
-crdebug-traced LOCATION CONDITION EXPRESSION...
    {hits=N, rows=[{values=[TEXT...]}]}: the hits of the one that was set so, and the values at the
    last of them, oldest first.

While a replay has the user's breakpoints switched off, nothing is noted: these hits were noted when
the rank was there first.
"""

from __future__ import annotations

from collections import deque

import gdb

from .breakpoints import undone
from .wire import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire import Answer

KEPT = 1000  # hits
LONGEST = 200  # characters of a value
traces: dict[tuple[str, ...], Trace] = {}


def text(expression: str) -> str:
    try:
        return gdb.parse_and_eval(expression).format_string(max_elements=20)[:LONGEST]
    except gdb.error as error:
        return f"<{error}>"[:LONGEST]


class Trace(gdb.Breakpoint):
    def __init__(self, location: str, condition: str, expressions: list[str]) -> None:
        super().__init__(location)
        # GDB evaluates either a condition of its own, or `stop`.
        self.wanted, self.expressions = condition, expressions
        self.count = 0
        self.rows: deque[list[str]] = deque(maxlen=KEPT)

    def stop(self) -> bool:
        if undone:
            return False
        if self.wanted:
            try:
                if not gdb.parse_and_eval(self.wanted):
                    return False
            except gdb.error:
                return False
        self.count += 1
        self.rows.append([text(each) for each in self.expressions])
        return False


class Set(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        location, condition, *expressions = arguments
        traces[tuple(arguments)] = made = Trace(location, condition, expressions)
        return {"number": str(made.number)}


class Traced(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        found = traces.get(tuple(arguments))
        if found is None or not found.is_valid():
            raise gdb.GdbError("there is no such trace point")
        return {"hits": str(found.count), "rows": [{"values": row} for row in found.rows]}


Set(Command.TRACE)
Traced(Command.TRACED)
