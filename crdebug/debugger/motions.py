"""The motions of a rank as GDB's commands."""

from __future__ import annotations

from crdebug.base.events import StopReason
from crdebug.debugger.target import Motion, Verb
from crdebug.mi.records import quote


def command(motion: Motion) -> str:
    match motion.verb:
        case Verb.STEP:
            return f"-exec-step {motion.count}"
        case Verb.NEXT:
            return f"-exec-next {motion.count}"
        case Verb.STEPI:
            return f"-exec-step-instruction {motion.count}"
        case Verb.NEXTI:
            return f"-exec-next-instruction {motion.count}"
        case Verb.FINISH:
            return "-exec-finish"
        case Verb.UNTIL:
            return f"-exec-until {motion.location}".rstrip()
        case Verb.ADVANCE:  # MI has none
            return f"-interpreter-exec console {quote(f'advance {motion.location}&')}"


def completed(motion: Motion) -> StopReason:
    """The reason of the stop that completes a motion."""
    return StopReason.FINISH if motion.verb is Verb.FINISH else StopReason.STEP
