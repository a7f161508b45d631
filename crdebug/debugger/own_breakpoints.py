"""crdebug's own breakpoints and watchpoints during a replay, and the user's meanwhile; see
gdbscripts/breakpoints.py."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from crdebug.base.deadline import Deadline
from crdebug.base.errors import GdbError
from crdebug.debugger.target import Target
from crdebug.gdbscripts.wire import Command

# ---- the user's ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts of the user's breakpoints, while each hit stops. All by GDB's numbers.

    ignored: how many hits should not stop.
    temporary: those that should be deleted at a hit.
    """

    ignored: Mapping[str, int]
    temporary: tuple[str, ...]


async def switch_off(target: Target, deadline: Deadline) -> None:
    """Keep the user's breakpoints from stopping or printing, until `switch_on`. May be nested."""
    await target.mi(f"{Command.BREAKPOINTS} off", deadline)


async def count_each(target: Target, deadline: Deadline) -> Counted:
    """Make every hit stop, and leave the user's counts alone, until `switch_on`."""
    told = (await target.mi(f"{Command.BREAKPOINTS} count", deadline)).payload
    rows = told.list("ignored").tuples()
    ignored = {row.text("number"): row.number("left") for row in rows}
    return Counted(ignored, told.list("temporary").texts())


async def switch_on(target: Target, deadline: Deadline) -> tuple[str, ...]:
    """Restore everything. Returns the numbers of the breakpoints that GDB has deleted meanwhile."""
    told = (await target.mi(f"{Command.BREAKPOINTS} on", deadline)).payload
    return told.list("gone").texts() if "gone" in told else ()


async def ignore_hits(target: Target, number: str, hits: int, deadline: Deadline) -> None:
    await target.mi(f"-break-after {number} {hits}", deadline)


# ---- crdebug's ----------------------------------------------------------------------------------


async def insert_at(
    target: Target, address: int, deadline: Deadline, *, sp: int | None = None, passages: int = 1
) -> str:
    """Insert a breakpoint that stops once, at the given passage of the address with that stack
    pointer (None: any), and is then deleted. Returns GDB's number."""
    condition = "" if sp is None else f'-c "$rsp == {sp}" '
    ignore = f"-i {passages - 1} " if passages > 1 else ""
    command = f"-break-insert --language c -t {condition}{ignore}*{address}"
    return (await target.mi(command, deadline)).payload.tuple("bkpt").text("number")


async def watch_memory(target: Target, address: int, size: int, deadline: Deadline) -> str:
    """Watch this many bytes; returns GDB's number of the watchpoint. Raises GdbError."""
    # By address, because 'watch -location EXPRESSION' only works in C (GDB 13, seen in Fortran).
    there = f"*(char (*)[{size}]) {address:#x}"
    said = await target.console(f"with language c -- watch -location {there}", deadline)
    number = re.search(r"atchpoint (\d+):", said)
    if number is None:
        raise GdbError(said.strip() or f"cannot watch {size} bytes at {address:#x}", "watch")
    return number[1]


async def delete(target: Target, number: str, deadline: Deadline) -> None:
    await target.mi(f"-break-delete {number}", deadline)


async def delete_left(target: Target, number: str, deadline: Deadline) -> None:
    """Delete a breakpoint that may be gone."""
    with contextlib.suppress(GdbError):
        await delete(target, number, deadline)


async def numbers(target: Target, deadline: Deadline) -> set[str]:
    """GDB's numbers of all breakpoints."""
    told = (await target.mi("-break-list", deadline)).payload
    return {row.text("number") for row in told.tuple("BreakpointTable").list("body").tuples()}
