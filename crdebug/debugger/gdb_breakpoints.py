"""Set a breakpoint, a watchpoint or a catchpoint in a GDB."""

from __future__ import annotations

import re
from dataclasses import replace

from crdebug.base.deadline import Deadline
from crdebug.base.errors import GdbError, Refused
from crdebug.base.events import Location
from crdebug.base.ranks import RankSet
from crdebug.debugger import mi_values, python_lines, traces
from crdebug.debugger.target import BreakpointRequest, Inserted, PointKind
from crdebug.gdbscripts.wire import Command
from crdebug.mi.connection import Connection
from crdebug.mi.records import quote

PYTHON = "python"  # the event of `catch python`, which is not GDB's
# "Hardware watchpoint 2: x", "Watchpoint 2: x", "Hardware access (read/write) watchpoint 2: x",
# "Catchpoint 3 (throw)"; catch throw may say "Function ... not defined" first.
_NUMBER = re.compile(r"^(.*[Ww]atchpoint|Catchpoint) (\d+)", re.M)


async def insert(
    connection: Connection, rank: int, request: BreakpointRequest, deadline: Deadline
) -> Inserted:
    """Set one; a breakpoint is pending if its location is not known yet. Raises GdbError; Refused
    for memory that the processor cannot watch: GDB would run the rank instruction by
    instruction."""
    if request.kind is PointKind.BREAK and (line := python_lines.place(request.location)):
        return await _insert_python_line(connection, request, line, deadline)
    if request.kind is PointKind.BREAK:
        return await _insert_breakpoint(connection, request, deadline)
    if request.kind is PointKind.TRACE:
        return await _insert_trace_point(connection, request, deadline)
    if request.kind is PointKind.CATCH and request.location == PYTHON:
        made = (await connection.command(Command.CATCH_PYTHON, deadline)).payload
        return await _with_options(connection, made.number("number"), request, deadline)
    said = await connection.console(f"{request.kind.value} {request.location}", deadline)
    found = _NUMBER.search(said)
    if found is None:
        problem = said.strip() or f"gdb did not set {request.kind.value} {request.location}"
        raise GdbError(problem, request.kind.value, ranks=RankSet.of([rank]))
    number = int(found[2])
    try:
        if found[1] == "Watchpoint":
            raise Refused(
                f"'{request.location}' cannot be watched in hardware",
                ranks=RankSet.of([rank]),
                hint="watch something in memory of at most 8 bytes",
            )
        if request.condition:
            await connection.command(f"-break-condition {number} {request.condition}", deadline)
    except (GdbError, Refused):
        await connection.command(f"-break-delete {number}", deadline)
        raise
    return await _with_options(connection, number, request, deadline)


async def _with_options(
    connection: Connection, number: int, request: BreakpointRequest, deadline: Deadline
) -> Inserted:
    if request.ignore:
        await connection.command(f"-break-after {number} {request.ignore}", deadline)
    if not request.enabled:
        await connection.command(f"-break-disable {number}", deadline)
    return Inserted(number, (), ignore=request.ignore)


async def _insert_trace_point(
    connection: Connection, request: BreakpointRequest, deadline: Deadline
) -> Inserted:
    words = traces.arguments(request.location, request.condition)
    found = await connection.command(f"{Command.TRACE} {words}", deadline)
    number = found.payload.number("number")
    return await _with_options(connection, number, request, deadline)


async def _insert_python_line(
    connection: Connection, request: BreakpointRequest, line: Location, deadline: Deadline
) -> Inserted:
    words = [quote(line.file), str(line.line)]
    if request.temporary:
        words.insert(0, "-t")
    if request.condition:
        words.append(quote(request.condition))
    made = await connection.command(f"{Command.PYTHON_LINE} {' '.join(words)}", deadline)
    inserted = await _with_options(connection, made.payload.number("number"), request, deadline)
    return replace(inserted, locations=(line,))


async def _insert_breakpoint(
    connection: Connection, request: BreakpointRequest, deadline: Deadline
) -> Inserted:
    options = ["-f"]
    if request.temporary:
        options.append("-t")
    if not request.enabled:
        options.append("-d")
    if request.condition:
        options += ["-c", quote(request.condition)]
    if request.ignore:
        options += ["-i", str(request.ignore)]
    command = f"-break-insert {' '.join(options)} -- {quote(request.location)}"
    result = await connection.command(command, deadline)
    return mi_values.breakpoint_(result.payload.tuple("bkpt"))
