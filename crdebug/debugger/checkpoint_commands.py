"""A checkpoint's requests to a rank's GDB, about its threads and their signals.

Every verb raises GdbError with GDB's own message, GdbDied, or DeadlineExpired.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.debugger.target import Target
from crdebug.gdbscripts.wire import Command, Thread, gdb_signal_name
from crdebug.mi.records import quote


@dataclass(frozen=True, slots=True)
class Threads:
    """All threads of a rank. selected: the TID of the thread that commands apply to."""

    all: tuple[Thread, ...]
    selected: int


async def threads(target: Target, deadline: Deadline) -> Threads:
    told = (await target.mi(Command.THREADS, deadline)).payload
    found = tuple(map(Thread.of, told.list("threads").texts()))
    return Threads(found, told.number("selected"))


async def unblock(target: Target, signal: int, tids: Iterable[int], deadline: Deadline) -> None:
    """Take a signal out of the set that these threads block."""
    words = " ".join(map(str, (signal, *tids)))
    await target.mi(f"{Command.UNBLOCK} {words}", deadline)


async def put_before_calls(target: Target, deadline: Deadline) -> None:
    """Put threads that a stop interrupted in a system call back to just before that call."""
    await target.mi(Command.BEFORE_CALLS, deadline)


async def pass_signal(target: Target, signal: int, deadline: Deadline) -> None:
    """Make GDB pass this signal to the rank silently."""
    await target.console(f"handle {gdb_signal_name(signal)} nostop noprint pass", deadline)


@dataclass(frozen=True, slots=True)
class Injection:
    """A library to load into a rank, where it will handle the waitpoint's signal.

    dlopen, errno: the addresses of dlopen and __errno_location in the rank.
    """

    library: Path
    dlopen: int
    errno: int
    signal: int


async def inject(target: Target, what: Injection, deadline: Deadline) -> tuple[str, ...]:
    """Load the library. Returns the TIDs of threads that had to run on first, out of malloc or
    dlopen. If it raises GdbError, the rank is as before."""
    words = f"{what.dlopen:#x} {what.errno:#x} {what.signal} {target.rank}"
    command = f"{Command.INJECT} {words} {quote(str(what.library))}"
    return (await target.mi(command, deadline)).payload.list("moved").texts()
