"""Stops at lines of Python, of which GDB knows nothing; see gdbscripts/python_lines.py. Pure."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from crdebug.base.errors import BadInput
from crdebug.base.events import Location, RankStopped, StopReason
from crdebug.debugger.target import Motion
from crdebug.gdbscripts.wire import (
    AT_PYTHON,
    PYTHON_FUNCTION,
    PYTHON_STEPS,
    PYTHON_TEXT,
    Command,
)
from crdebug.mi.records import MiTuple

_LINE = re.compile(r"""(?P<quote>["']?)(?P<file>[^"']+\.py)(?P=quote):(?P<line>\d+)""")


def place(location: str) -> Location | None:
    """The line of Python that a user names, as FILE.py:LINE; None if it is another location. The
    file is the end of a path. Raises BadInput for a name that is too long."""
    found = _LINE.fullmatch(location.strip())
    if found is None:
        return None
    file = found["file"].removeprefix("./")
    if len(os.fsencode(file)) >= PYTHON_TEXT:
        raise BadInput("the file's name is too long", hint="its last part is enough")
    return Location(0, "", file, int(found["line"]))


def require_expression(condition: str) -> None:
    """Raises BadInput unless it is an expression of Python's, or ""."""
    if len(os.fsencode(condition)) >= PYTHON_TEXT:
        raise BadInput(f"the condition has more than {PYTHON_TEXT} characters")
    try:
        if condition:
            compile(condition, "<condition>", "eval")
    except (SyntaxError, ValueError) as error:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise BadInput(
            f"the condition is no expression of Python's: {said}",
            hint="at a line of Python it is evaluated there",
        ) from None


def told(console: str) -> Location | None:
    """The place of a stop that a rank's GDB tells, if this line does."""
    words = console.partition(AT_PYTHON)[2].partition("\n")[0].split("\t", 2)
    return _line(*words) if len(words) == 3 else None


def line(there: Location, told: MiTuple) -> Location:
    """The line of Python for a place of which this is the answer."""
    found = _line(told.text("line"), told.text("function"), told.text("path"))
    return replace(found, address=there.address)


def _line(line: str, function: str, path: str) -> Location:
    return Location(0, function, os.path.basename(path), int(line), path)


def in_python(stop: RankStopped, there: Location | None, goal: StopReason) -> RankStopped:
    """A stop as it is in Python, if that is where the rank has stopped. goal: the reason of the
    stop that ends its run, if that goes by lines of Python."""
    at = stop.location
    if there is None or stop.reason is not StopReason.BREAKPOINT or not (at and is_line(at)):
        return stop
    stop = replace(stop, location=replace(there, address=at.address))
    return replace(stop, reason=goal, detail="") if stop.detail.startswith("-") else stop


def is_line(at: Location) -> bool:
    """Is this place what C has for a line of Python?"""
    return at.function.startswith(PYTHON_FUNCTION)


def is_in_python(stop: RankStopped | None) -> bool:
    """Does it stand before a line of Python?"""
    return stop is not None and stop.location is not None and stop.location.path.endswith(".py")


def step(motion: Motion) -> str | None:
    """The MI command before a run that is this motion in Python; None if it is none there."""
    if motion.verb.value not in PYTHON_STEPS:
        return None
    return f"{Command.PYTHON_STEP} {motion.verb.value} {motion.count}"
