"""Stop a rank that is about to end abnormally, before its launcher notices.

Launchers end all ranks when one of them calls MPI_Abort, exits with a status other than 0, or exits
without MPI_Finalize. We put internal breakpoints at the functions that do this; signals that end a
rank stop it under GDB anyway.

-crdebug-endings on|off [OFFSET]
    OFFSET: of `initialized` in the MPI layer's clock (crdebug/native/recorder/clock.h).
-crdebug-left-mpi
    {left="1"} if the rank is in MPI_Finalize, or after it; 0 if it is not, or if that is unknown: a
    GDB that was attached later knows it only of Open MPI.

Sanitizers report a fault, and then end the rank in ways of their own, or let it go on: the rank
stops at the report.

Right before the stop we print the cause on the console, as one line that begins with wire.ENDING;
the stop itself is at a breakpoint with a negative number.
"""

from __future__ import annotations

import contextlib

import gdb

from .rank_state import symbol_address
from .wire import ENDING, REPORT, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire import Answer

MOST_FRAMES = 64
# For each function the register with the status (System V ABI, x86-64).
ABORTS = {"PMPI_Abort": "rsi", "ompi_mpi_abort": "rsi", "MPID_Abort": "rdx"}
MPI_OWN = ("ompi_mpi_abort", "MPID_Abort")
EXITS = {"exit": "rdi", "_exit": "rdi"}
HOLDERS = {**ABORTS, **EXITS}
SUMMARY, LONGEST = "__sanitizer_report_error_summary", 300
START = "__libc_start"  # begins the name of main's caller
RANK, NO_RANK = 8, 0xFFFFFFFF  # in the MPI layer's clock; before MPI_Init
wanted = {"on": True, "offset": 0}
finalizing: set[int] = set()  # processes that have called MPI_Finalize, as far as we have seen it


def word(name: str, offset: int = 0) -> int | None:
    """Four bytes at an offset from a symbol's address; None if there is no such symbol."""
    try:
        address = symbol_address(name) + offset
        data = gdb.selected_inferior().read_memory(address, 4).tobytes()
    except gdb.error:
        return None
    return int.from_bytes(data, "little")


def known(name: str) -> bool:
    """Is there such a symbol?"""
    try:
        return symbol_address(name) != 0
    except gdb.error:
        return False


def in_mpi() -> bool | None:
    """Is the rank between MPI_Init and MPI_Finalize? None if that is unknown."""
    if wanted["offset"]:
        state = word("crdebug_clock", wanted["offset"])
        if state is not None:
            return state != 0
    state = word("ompi_mpi_state")  # Open MPI: ompi/runtime/mpiruntime.h
    return None if state is None else 0 < state < 5


def left_mpi() -> bool:
    """Has the rank called MPI_Finalize?"""
    rank = word("crdebug_clock", RANK) if wanted["offset"] else None
    if rank is not None:
        return rank != NO_RANK and not in_mpi()
    state = word("ompi_mpi_state")  # Open MPI: ompi/runtime/mpiruntime.h
    return state >= 3 if state is not None else gdb.selected_inferior().pid in finalizing


def callers() -> list[tuple[str, str]]:
    """The frames above, as (name, place in the source or "")."""
    found: list[tuple[str, str]] = []
    frame = gdb.newest_frame().older()
    while frame is not None and len(found) < MOST_FRAMES:
        place = frame.find_sal()
        known = place.symtab is not None and frame.function() is not None
        text = f"{place.symtab.filename}:{place.line}" if known else ""
        found.append((frame.name() or "", text))
        frame = frame.older()
    return found


def main_returned() -> bool:
    """Is the caller the function that calls main? In a libc without symbols (Debian 13's) it has no
    name, but its own caller has."""
    newest = gdb.newest_frame()
    library, frame = gdb.solib_name(newest.pc()), newest.older()
    while (
        frame is not None and not frame.name() and library and library == gdb.solib_name(frame.pc())
    ):
        frame = frame.older()
    return frame is not None and (frame.name() or "").startswith(START)


def plain(name: str) -> str:
    return name.removeprefix("__GI_")


class Watch(gdb.Breakpoint):
    """A breakpoint at a function: by its name, or at one of its addresses."""

    def __init__(self, name: str, address: int = 0) -> None:
        self.name = name
        where = {"spec": f"*{address:#x}"} if address else {"function": name, "qualified": True}
        super().__init__(**where, internal=True)


class Ending(Watch):
    """At one of the functions that end a rank."""

    def stop(self) -> bool:
        if not wanted["on"]:
            return False
        if self.name == "PMPI_Abort" and any(map(known, MPI_OWN)):
            return False  # a tail call of one of those follows, without this frame
        above = callers()
        if any(plain(name) in (*ABORTS, *EXITS) for name, _ in above):
            return False  # an outer call has been reported
        value = int(gdb.newest_frame().read_register(HOLDERS[self.name])) & 0xFFFFFFFF
        value -= (value >> 31) << 32
        if self.name in EXITS:
            initialized = in_mpi()
            if not initialized and value & 0xFF == 0:
                return False
            note = " without MPI_Finalize" if initialized else ""
            fortran = next((name for name, _ in above if name.startswith("_gfortran")), "")
            note += f", by {fortran}" if fortran else ""
            what = f"exit({value}){note}"
        else:
            fatal = any("errors_are_fatal" in name for name, _ in above)
            what = f"abort({value}) after an error in MPI" if fatal else f"MPI_Abort({value})"
        if main_returned():
            what += ", which main returned"
        else:
            own = next(
                (each for each in above if all(each) and not each[0].startswith(START)), None
            )
            what += f", from {own[0]} at {own[1]}" if own else ""
        gdb.write(f"{ENDING}{what}\n")
        gdb.flush()
        return True


class Finalizing(Watch):
    """At MPI_Finalize, for an MPI that says nowhere whether it has been called."""

    def stop(self) -> bool:
        finalizing.add(gdb.selected_inferior().pid)
        return False


class Report(Watch):
    """At the function that a sanitizer calls after a report. All of them except UBSan's get the
    summary (sanitizer/common_interface_defs.h); UBSan calls its own earlier, and we only note that
    (compiler-rt/lib/ubsan/ubsan_monitor.cpp)."""

    def stop(self) -> bool:
        if not wanted["on"]:
            return False
        text = "UndefinedBehaviorSanitizer"
        if self.name == SUMMARY:
            address = int(gdb.newest_frame().read_register("rdi"))
            text = "a sanitizer"
            with contextlib.suppress(gdb.error):
                data = gdb.selected_inferior().read_memory(address, LONGEST).tobytes()
                line = data.partition(b"\0")[0].decode(errors="replace").partition("\n")[0]
                text = line.removeprefix("SUMMARY: ") or text
        gdb.write(f"{ENDING}{REPORT}{text}\n")
        gdb.flush()
        return True


class Endings(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        wanted["on"] = arguments[0] == "on"
        if len(arguments) > 1:
            wanted["offset"] = int(arguments[1])
        return {}


class LeftMpi(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        return {"left": str(int(left_mpi()))}


# GDB looks for all names again when a library is loaded, and an MPI loads a hundred of them: that
# took a sixth of what a GDB does until its rank has returned from MPI_Init. So, as soon as a
# library has the function, breakpoints at its addresses take the place of the one by name, until
# there is another process, or another program in it.
WATCHES = {
    **dict.fromkeys(HOLDERS, Ending),
    **dict.fromkeys((SUMMARY, "__ubsan_on_report"), Report),
    "PMPI_Finalize": Finalizing,
}
ET_EXEC = b"\2\0"  # a program that is always at the same addresses
by_name: list[Watch] = []
by_address: list[Watch] = []


def is_whole(name: str, addresses: list[int]) -> bool:
    """Are these all, and in libraries? ld.so, which is there before libc, has its own `_exit`."""
    libraries = [gdb.solib_name(each) or "" for each in addresses]
    return all(libraries) and (name not in EXITS or any(map(is_libc, libraries)))


def is_libc(path: str) -> bool:
    return "/libc.so" in path


def watch_addresses() -> None:
    for watch in [each for each in by_name if not each.pending]:
        addresses = [each.address for each in watch.locations]
        if is_whole(watch.name, addresses):
            by_name.remove(watch)
            by_address.extend(type(watch)(watch.name, each) for each in addresses)
            watch.delete()


def is_in_place(objfile: gdb.Objfile) -> bool:
    """GDB moves most programs to their addresses only once it has read them; libraries at once."""
    path, space = objfile.filename, gdb.current_progspace()
    if path is None or space is None or path != space.filename:
        return True
    try:
        with open(path, "rb") as file:
            kind: bytes = file.read(18)[16:]
    except OSError:
        return False
    return kind == ET_EXEC


def appeared(event: gdb.NewObjFileEvent) -> None:
    if is_libc(event.new_objfile.filename or ""):
        forget_addresses()  # a process has begun, or GDB has attached to one
    watched = {each.name for each in (*by_name, *by_address)}
    if len(watched) < len(WATCHES) and is_in_place(event.new_objfile):
        by_name.extend(kind(name) for name, kind in WATCHES.items() if name not in watched)
    watch_addresses()


def forget_addresses(_event: gdb.ClearObjFilesEvent | None = None) -> None:
    """In another program, or elsewhere in memory, they mean nothing."""
    for watch in by_address:
        watch.delete()
    by_address.clear()


Endings(Command.ENDINGS)
LeftMpi(Command.LEFT_MPI)
by_name.extend(kind(name) for name, kind in WATCHES.items())
if hasattr(gdb, "BreakpointLocation"):  # GDB 13
    gdb.events.new_objfile.connect(appeared)
    gdb.events.clear_objfiles.connect(forget_addresses)
