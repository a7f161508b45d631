"""-crdebug-program-frame: select the frame for a user's question that names none.

That is the innermost one with the program's own debug information: a rank that stopped because of
another one may be anywhere, most often in the C library, below the MPI, where the user does not
mean the local names. crdebug's libraries, the MPI's, and those with debug information from the
distribution's packages do not count as the program's own. If there is no such frame, the command
selects the innermost one. {level=N} is the answer.

-crdebug-line LINE: the place of a line without a file, as {file=PATH, line=N}: in the file of that
frame, or in the one that `list` has shown since. LINE may also be ``+N`` or ``-N``, counted from
the line of that frame.
-crdebug-innermost-frame: select the innermost frame. Neither command changes another thread's
frame.
crdebug-at-program COMMAND: run a command of GDB's in the program's frame of the selected thread.

Breakpoints are never in crdebug's own libraries: if a function there has the same name as one of
the program, we disable its location at once. In the layer above the MPI only the functions that the
program calls itself, MPI_..., keep theirs; and so do locations that the user gives as addresses.

"""

from __future__ import annotations

import os
import re

import gdb

from .wire import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire import Answer

# The libraries that crdebug loads into ranks, by their place in the cache
# (crdebug/native/build.py).
OF_CRDEBUG = re.compile(r"/native/(\w+-)?[0-9a-f]{16}/[^/]+\.so$")
# The libraries of Open MPI and MPICH, and those of their transports.
OF_MPI = re.compile(
    r"lib(mpi|pmpi|mpich|mpl|opa|oshmem|open-(rte|pal)|mca_|pmix|prrte|uc[mpst]|psm|fabric)"
    r"|mca_|pmix_|prte_"
)


def of_package(objfile: gdb.Objfile) -> bool:
    """Is it debug information from a separate file of the distribution?"""
    places = str(gdb.parameter("debug-file-directory")).split(":")
    return any((objfile.filename or "").startswith(f"{place}/") for place in places if place)


def of_program(frame: gdb.Frame) -> bool:
    """Does this frame have the program's own debug information?"""
    table = frame.find_sal().symtab
    if table is None or frame.function() is None:
        return False
    owner = table.objfile.owner or table.objfile
    path, space = owner.filename or "", gdb.current_progspace()
    if space is not None and path == space.filename:
        return True
    foreign = OF_CRDEBUG.search(path) or OF_MPI.match(os.path.basename(path))
    return not foreign and not of_package(table.objfile)


def program_frame() -> gdb.Frame | None:
    """The frame, or None."""
    frame: gdb.Frame | None = gdb.newest_frame()
    while frame is not None and not of_program(frame):
        try:
            frame = frame.older()
        except gdb.error:  # the rest of the stack is unreadable
            return None
    return frame


def select_program_frame() -> int:
    frame = program_frame()
    if frame is None or frame.level() == 0:
        gdb.newest_frame().select()
        return 0
    # not frame.select(), which does not move the line where `list` begins
    gdb.execute(f"frame {frame.level()}", to_string=True)
    return frame.level()


def line_in_its_file(text: str) -> Answer:
    table: gdb.Symtab | None
    if text[0] in "+-":
        here = gdb.selected_frame().find_sal()
        table, line = here.symtab, here.line + int(text)
    else:
        _rest, found = gdb.decode_line()
        table, line = found[0].symtab if found else None, int(text)
    if table is None:
        raise gdb.GdbError(f"line {text} of which file? Write FILE:LINE")
    try:
        gdb.decode_line(f'"{table.fullname()}":{line}')
    except gdb.error as error:  # there is no such line
        raise gdb.GdbError(str(error)) from None
    return {"file": table.fullname(), "line": str(line)}


MPI_CALLS = re.compile(r"P?MPI_|p?mpi_")


def keep_out(breakpoint: gdb.Breakpoint) -> None:
    """Disable the locations of a breakpoint that are in crdebug's own code."""
    if breakpoint.type != gdb.BP_BREAKPOINT or (breakpoint.location or "*").startswith("*"):
        return
    for place in getattr(breakpoint, "locations", ()):  # GDB 12 has none
        library = gdb.solib_name(place.address) or ""
        own = OF_CRDEBUG.search(library) and not MPI_CALLS.match(place.function or "")
        if own and place.enabled:
            place.enabled = False


class Line(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        return line_in_its_file(arguments[0])


class ProgramFrame(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        return {"level": str(select_program_frame())}


class InnermostFrame(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        gdb.newest_frame().select()
        return {}


class AtProgram(gdb.Command):
    def __init__(self) -> None:
        super().__init__("crdebug-at-program", gdb.COMMAND_OBSCURE)

    def invoke(self, argument: str, from_tty: bool) -> None:
        (program_frame() or gdb.newest_frame()).select()
        gdb.execute(argument)


for event in (gdb.events.breakpoint_created, gdb.events.breakpoint_modified):
    event.connect(keep_out)
Line(Command.LINE)
ProgramFrame(Command.PROGRAM_FRAME)
InnermostFrame(Command.INNERMOST_FRAME)
AtProgram()
