"""Has a motion of a rank come to its end?

Where there is a breakpoint at the end of a motion, GDB reports a hit of that breakpoint only, and
nothing of the motion. If that counted as another reason to stop, the first of several ranks that
take the same step would stop the others half-way.
"""

from __future__ import annotations

import contextlib

from crdebug.base.deadline import Deadline
from crdebug.base.errors import GdbError
from crdebug.base.events import RankStopped, StopReason
from crdebug.debugger import motions
from crdebug.debugger.question import question
from crdebug.debugger.rank_commands import step_ends
from crdebug.debugger.target import Motion, Target, Verb

_OF_LINES = (Verb.STEP, Verb.NEXT, Verb.UNTIL)


@question
async def is_end(target: Target, stop: RankStopped, motion: Motion, seconds: float) -> bool:
    """Is this stop the end of the motion, if perhaps at a breakpoint? seconds: for the answer.

    Of a step by several lines it is not: GDB ends it at the breakpoint, wherever that is.
    """
    if stop.reason is motions.completed(motion):
        return True
    if stop.reason is not StopReason.BREAKPOINT:
        return False
    if not motion.location and (motion.verb not in _OF_LINES or motion.count > 1):
        return False
    with contextlib.suppress(GdbError):
        return await step_ends(target, motion, Deadline(seconds))
    return False
