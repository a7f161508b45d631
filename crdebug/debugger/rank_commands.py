"""Typed answers of crdebug's commands in a rank's GDB; gdbscripts/wire.py has their names.

Every question raises GdbError with GDB's own message, GdbDied, or DeadlineExpired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crdebug.base.deadline import Deadline
from crdebug.base.errors import GdbError
from crdebug.base.events import Location
from crdebug.debugger import mi_values
from crdebug.debugger.question import question
from crdebug.debugger.scalars import Kind
from crdebug.debugger.target import Motion, Target
from crdebug.gdbscripts.wire import Command
from crdebug.mi.records import quote


@dataclass(frozen=True, slots=True)
class InMemory:
    """The place of an expression.

    size: in bytes.  kind: of number.
    outer: counts the callers of the frame in which it was evaluated.
    """

    address: int
    size: int
    kind: Kind
    outer: int


@question
async def in_memory(
    target: Target, expression: str, deadline: Deadline, outer: int | None = None
) -> InMemory:
    """outer: the frame to evaluate in, which this selects; None: the selected one."""
    frame = "" if outer is None else f"--outer {outer} "
    found = (await target.mi(f"{Command.LIES} {frame}{expression}", deadline)).payload
    address = found.number("address", base=0)
    kind = Kind(found.text("kind"))
    return InMemory(address, found.number("size"), kind, found.number("outer"))


@question
async def symbol_at(target: Target, address: int, deadline: Deadline) -> str:
    """GDB's description of the symbol at an address, with the section that it is in."""
    return await target.console(f"info symbol {address}", deadline)


@question
async def line_place(target: Target, line: str, deadline: Deadline) -> tuple[str, int]:
    """The file and number of a line that is given without its file, like ``12`` or ``+3``."""
    found = (await target.mi(f"{Command.LINE} {line}", deadline)).payload
    return found.text("file"), found.number("line")


@question
async def step_ends(target: Target, motion: Motion, deadline: Deadline) -> bool:
    """Would the motion have ended where the rank has stopped at a breakpoint?"""
    location = f" {quote(motion.location)}" if motion.location else ""
    told = (await target.mi(f"{Command.STEP_ENDS} {motion.verb.value}{location}", deadline)).payload
    return told.text("ended") == "yes"


async def call_sites(
    target: Target, addresses: Sequence[int], deadline: Deadline
) -> tuple[Location, ...]:
    """The source lines of the calls that return to these addresses, in their order."""
    words = " ".join(map(hex, addresses))
    told = (await target.mi(f"{Command.SITES} {words}", deadline)).payload
    return tuple(mi_values.location(entry) for entry in told.list("sites").tuples())


async def read_memory(target: Target, address: int, size: int, deadline: Deadline) -> bytes:
    """The bytes there; none if nothing is mapped."""
    try:
        told = (await target.mi(f"-data-read-memory-bytes {address} {size}", deadline)).payload
    except GdbError:
        return b""
    return b"".join(bytes.fromhex(each.text("contents")) for each in told.list("memory").tuples())


async def write_memory(target: Target, address: int, data: bytes, deadline: Deadline) -> None:
    if data:
        await target.mi(f"-data-write-memory-bytes {address} {data.hex()}", deadline)


@question
async def heed_endings(target: Target, heed: bool, offset: int, deadline: Deadline) -> None:
    """Choose whether the rank stops when it is about to end with an error. offset: of `initialized`
    in the MPI layer's clock."""
    await target.mi(f"{Command.ENDINGS} {'on' if heed else 'off'} {offset}", deadline)


@question
async def has_left_mpi(target: Target, deadline: Deadline) -> bool:
    """Is it known to have called MPI_Finalize?"""
    return bool((await target.mi(Command.LEFT_MPI, deadline)).payload.number("left"))


@dataclass(frozen=True, slots=True)
class TimedWait:
    """A thread that waits in a system call for a limited time, and repeats the call when it goes
    on.

    place: the call as the program made it, equal for the same call.
    limit: in seconds.
    kept: after a plain stop it waits only for the remaining time.
    leader: it is the main thread.
    """

    tid: int
    place: str
    limit: float
    kept: bool
    leader: bool


@question
async def timed_waits(target: Target, deadline: Deadline) -> tuple[TimedWait, ...]:
    rows = (await target.mi(Command.WAITS, deadline)).payload.list("waits").tuples()
    return tuple(
        TimedWait(
            row.number("tid"),
            row.text("place"),
            row.number("ms") / 1000,
            row.text("kept") == "1",
            row.text("leader") == "1",
        )
        for row in rows
    )
