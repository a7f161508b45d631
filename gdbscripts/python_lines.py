"""Stops at lines of Python.

-crdebug-python-line [-t] FILE LINE [CONDITION]
    {number=N}: a breakpoint that stops before Python runs this line. FILE: the end of its path.
    CONDITION: an expression of Python's. -t: it is deleted when it is hit.
-crdebug-python-condition N [CONDITION]
    Another condition for it, or none.
-crdebug-python-place
    {line, function, path, depth, passed, counted, now}: where the last of these stops was. passed:
    how many breakpoints there were at the line that runs now. counted: see the next command; now:
    the recorder's clock at the last of these.
-crdebug-python-count DEEPEST WANTED
    From now on, or from where the memory is put back to, count the lines in functions that are at
    most so deep on the stack (0: none); and stop at the one of this number, if it is not 0.
-crdebug-python-step step|next|finish N
    The next run, from a stop at a line of Python, ends after so many lines: anywhere, or in the
    function where it begins (once that has returned, in its caller), or in its caller.

The shim in the rank calls a function of its own for each line (crdebug/native/shim/python.c), where
the breakpoint is. What we write there is memory of the rank: a checkpoint and a snapshot take it
back. So we look before each run whether all is there.

Right before a stop we print its place on the console, as one line that begins with wire.AT_PYTHON.
"""

from __future__ import annotations

import contextlib
import os

import gdb

from .inject import Caller, Ending, lead_to_safety
from .ptrace import threads
from .rank_state import Selection, before_runs, symbol_address
from .wire import (
    AT_PYTHON,
    PYTHON_ASKED,
    PYTHON_COUNT,
    PYTHON_COUNTED,
    PYTHON_FUNCTION,
    PYTHON_LINES,
    PYTHON_OFF,
    PYTHON_STATE,
    PYTHON_STEP,
    PYTHON_STEPS,
    PYTHON_STOP,
    PYTHON_TAKEN,
    PYTHON_WANTED,
    Command,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire import Answer

SIZE = PYTHON_WANTED.size + PYTHON_STEP.size + PYTHON_COUNT.size
NONE = (0, 0)

lines: dict[int, PythonLine] = {}  # by their numbers in the rank
step = [NONE]  # of the next run: its kind, and how many
count = [NONE]  # of lines: how deep, and which is wanted
own: list[gdb.Breakpoint] = []  # once it was needed
used = [False]  # is anything of ours in the rank's memory?


def text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="replace")


def place() -> Answer:
    at = symbol_address("crdebug_python") + PYTHON_STATE.size + SIZE
    size = PYTHON_COUNTED.size + PYTHON_STOP.size
    data = bytes(gdb.selected_inferior().read_memory(at, size))
    (counted,) = PYTHON_COUNTED.unpack_from(data)
    found = PYTHON_STOP.unpack_from(data, PYTHON_COUNTED.size)
    now, depth, passed, line, function, path = found
    numbers = {"counted": counted, "now": now, "depth": depth, "passed": passed, "line": line}
    texts = {"function": text(function), "path": text(path)}
    return {**{name: str(value) for name, value in numbers.items()}, **texts}


class AtFunction(gdb.Breakpoint):
    """At the shim's function of this number."""

    def __init__(self, number: int, **options: bool) -> None:
        with gdb.with_parameter("language", "c"):  # GDB remembers it
            super().__init__(f"*{PYTHON_FUNCTION}{number}", **options)


class PythonStop(AtFunction):
    def stop(self) -> bool:
        there = place()
        gdb.write(f"{AT_PYTHON}{there['line']}\t{there['function']}\t{there['path']}\n")
        gdb.flush()
        return True


class PythonLine(PythonStop):
    def __init__(self, number: int, file: str, line: int, wanted: str, temporary: bool) -> None:
        super().__init__(number, temporary=temporary)
        self.file, self.line, self.wanted = file, line, wanted


class Taken(AtFunction):
    """Says, once, that the program has a trace function of its own."""

    told = False

    def stop(self) -> bool:
        if not Taken.told:
            gdb.write(
                "no line of Python stops it: it has a trace function of its own\n", gdb.STDERR
            )
        Taken.told = True
        return False


def all_wanted() -> bytes:
    """As it is in the rank's memory."""
    numbers, files, conditions = [0] * PYTHON_LINES, [b""] * PYTHON_LINES, [b""] * PYTHON_LINES
    for number, each in lines.items():
        numbers[number], files[number] = each.line, os.fsencode(each.file)
        conditions[number] = os.fsencode(each.wanted)
    table = PYTHON_WANTED.pack(*numbers, *files, *conditions)
    return table + PYTHON_STEP.pack(*step[0]) + PYTHON_COUNT.pack(*count[0])


def write() -> None:
    """Put into the rank what is wanted, unless it is there."""
    at, data = symbol_address("crdebug_python") + PYTHON_STATE.size, all_wanted()
    inferior = gdb.selected_inferior()
    if bytes(inferior.read_memory(at, SIZE)) != data:
        inferior.write_memory(at, data + PYTHON_COUNTED.pack(0))


def before_run() -> None:
    """Put into the rank what is wanted; and have Python call the shim, if it does not do so yet."""
    if gdb.parameter("scheduler-locking") == "on":
        return  # a thread is to go into a signal that is queued for it, and no further
    wanted = bool(lines) or step[0] != NONE or count[0] != NONE
    if not wanted and not used[0]:
        return
    try:
        at = symbol_address("crdebug_python")
    except gdb.error:
        return  # the process is another program by now
    write()
    step[0] = NONE
    used[0] = wanted
    if not own:
        own.extend(
            (PythonStop(PYTHON_LINES, internal=True), Taken(PYTHON_LINES + 1, internal=True))
        )
    inferior = gdb.selected_inferior()
    (state,) = PYTHON_STATE.unpack(bytes(inferior.read_memory(at, PYTHON_STATE.size)))
    if wanted and state in (PYTHON_OFF, PYTHON_TAKEN):
        inferior.write_memory(at, PYTHON_STATE.pack(PYTHON_ASKED))
        with Selection():
            begin(began=state == PYTHON_TAKEN)


def call(function: str, *arguments: int) -> int:
    """The result of a function in the rank's first thread."""
    threads()[0].switch()
    caller = Caller(threads()[0].ptid[1])
    try:
        return caller.call(symbol_address(function), *arguments) & 0xFFFFFFFF
    finally:
        caller.restore()
        gdb.execute("maint flush register-cache", to_string=True)


def begin(*, began: bool) -> None:
    """Have Python call the shim's `crdebug_python_begin`, or see to it that it will. began: Python
    has run already."""
    if call("Py_IsInitialized"):
        call("Py_AddPendingCall", symbol_address("crdebug_python_begin"), 0)
    elif not began:
        with contextlib.suppress(Ending):
            lead_to_safety()  # the hook takes memory
            call("PySys_AddAuditHook", symbol_address("crdebug_python_audit"), 0)


def forget(breakpoint: gdb.Breakpoint) -> None:
    for number in [number for number, each in lines.items() if each.number == breakpoint.number]:
        del lines[number]


class SetLine(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        temporary = arguments[0] == "-t"
        file, line, *condition = arguments[temporary:]
        try:
            symbol_address("Py_AddPendingCall")
        except gdb.error:
            raise gdb.GdbError("it runs no Python") from None
        try:
            symbol_address("crdebug_python")
        except gdb.error:
            raise gdb.GdbError(
                "lines of Python need crdebug's library in it, which 'crdebug run' loads, and the "
                "first checkpoint of a job that was started without it"
            ) from None
        free = [number for number in range(PYTHON_LINES) if number not in lines]
        if not free:
            raise gdb.GdbError(f"it has breakpoints at {PYTHON_LINES} lines of Python already")
        made = PythonLine(free[0], file, int(line), "".join(condition), temporary)
        lines[free[0]] = made
        return {"number": str(made.number)}


class SetCondition(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        number, *condition = arguments
        for each in lines.values():
            if each.number == int(number):
                each.wanted = "".join(condition)
        return {}


class Count(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        deepest, wanted = map(int, arguments)
        count[0] = deepest, wanted
        write()  # a snapshot before the next run must not count
        return {}


class Place(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        return place()


class SetStep(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        kind, times = arguments
        step[0] = PYTHON_STEPS.index(kind) + 1, int(times)
        return {}


gdb.events.breakpoint_deleted.connect(forget)
before_runs.append(before_run)
SetLine(Command.PYTHON_LINE)
SetCondition(Command.PYTHON_CONDITION)
Count(Command.PYTHON_COUNT)
Place(Command.PYTHON_PLACE)
SetStep(Command.PYTHON_STEP)
