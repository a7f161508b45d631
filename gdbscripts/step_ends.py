"""-crdebug-step-ends VERB: the rank has stopped at a breakpoint during a step, next or until of one
line. {ended=yes} if it would have ended there without the breakpoint, too.
-crdebug-step-ends VERB LOCATION: the same of an until or advance to a location.

GDB reports a step that ends at a breakpoint as the hit of that breakpoint. As the frame and line
where the step began count, they are noted each time before the rank runs.
"""

from __future__ import annotations

from contextlib import suppress

import gdb

from .rank_state import preparations
from .wire import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire import Answer


class Start:
    """Where the selected thread is."""

    def __init__(self) -> None:
        self.thread = gdb.selected_thread().num
        self.frame = gdb.newest_frame()
        self.pc = self.frame.pc()
        self.line = self.frame.find_sal().line

    def ends(self, verb: str) -> bool:
        """Would a step from here have ended where the selected thread is now?"""
        now = gdb.newest_frame()
        place = now.find_sal()
        if gdb.selected_thread().num != self.thread or place.symtab is None:
            return False
        if now == self.frame:
            back = verb == "until" and now.pc() <= self.pc
            return place.line != self.line and place.pc == now.pc() and not back
        if not self.frame.is_valid():
            return True  # it has returned to a caller
        return verb == "step" and now.older() == self.frame


last: list[Start] = []  # of the present or last run; none if it is not known


def note() -> bool:
    last.clear()
    with suppress(gdb.error, AttributeError):  # no frame can be read, or no thread is selected
        last.append(Start())
    return False


def is_at(location: str) -> bool:
    """Is the selected thread at a location, as GDB resolves it for breakpoints and motions?"""
    point = gdb.Breakpoint(location, internal=True)
    try:
        pc = gdb.newest_frame().pc()
        return any(place.address == pc for place in point.locations)  # from GDB 13 on
    finally:
        point.delete()


class StepEnds(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        verb, *location = arguments
        ended = is_at(location[0]) if location else bool(last) and last[0].ends(verb)
        return {"ended": "yes" if ended else "no"}


preparations.append(note)
StepEnds(Command.STEP_ENDS)
