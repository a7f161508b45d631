"""The threads of a rank under GDB: all their stacks, the selected one, a command for each."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, CrdebugError
from crdebug.base.events import Location
from crdebug.base.ranks import RankSet
from crdebug.debugger import mi_values
from crdebug.debugger.folding import folded
from crdebug.debugger.frames import Stack
from crdebug.debugger.question import question
from crdebug.debugger.target import Frame, Target, ThreadInfo

Stacks = tuple[tuple[Frame, ...], ...]
"""The stacks of one rank's threads, each innermost frame first."""


@question
async def calls(target: Target, deadline: Deadline) -> Stack:
    """The stack of the selected thread, without arguments: of one that has overflown, GDB needs ten
    times as long for them."""
    listing = await target.mi("-stack-list-frames", deadline)
    return Stack.of(folded(mi_values.frames(listing.payload)))


@question
async def stacks(target: Target, deadline: Deadline) -> Stacks:
    """The stacks of all threads, without arguments; the selected thread and frame stay."""
    threads = await target.threads(deadline)
    listings = await asyncio.gather(
        *(target.mi(f"-stack-list-frames --thread {t.number}", deadline) for t in threads)
    )
    return tuple(folded(mi_values.frames(listing.payload)) for listing in listings)


@question
async def backtraces(
    target: Target, numbers: tuple[int, ...] | None, limit: int, deadline: Deadline
) -> tuple[tuple[int, tuple[Frame, ...] | CrdebugError], ...]:
    """The stacks of these threads (None: all), by GDB's numbers, with arguments. At most `limit`
    frames of each unless it is 0."""
    there = [each.number for each in await target.threads(deadline)]
    found: list[tuple[int, tuple[Frame, ...] | CrdebugError]] = []
    for number in sorted(there) if numbers is None else numbers:
        if number not in there:
            found.append((number, _no_thread(target, number)))
            continue
        listing, arguments = await asyncio.gather(
            target.mi(f"-stack-list-frames --thread {number}", deadline),
            target.mi(f"-stack-list-arguments --thread {number} --simple-values", deadline),
        )
        frames = folded(mi_values.frames(listing.payload, arguments.payload))
        found.append((number, frames[: limit or None]))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class LibraryFrame:
    """A frame, and its library.

    library: the path of the shared library that it is in; "" if it is in none, or if GDB knows the
    source.
    """

    level: int
    library: str
    location: Location


@question
async def library_frames(
    target: Target, number: int, deadline: Deadline
) -> tuple[LibraryFrame, ...]:
    """The stack of a thread as GDB has it, including crdebug's own frames."""
    told = (await target.mi(f"-stack-list-frames --thread {number}", deadline)).payload
    return tuple(
        LibraryFrame(each.number("level"), each.text("from", ""), mi_values.location(each))
        for each in told.list("stack").tuples()
    )


@question
async def selected(target: Target, deadline: Deadline) -> tuple[ThreadInfo, ...]:
    """The thread that commands apply to, at its selected frame."""
    listing = (await target.mi("-thread-info", deadline)).payload
    number = listing.number("current-thread-id", 0)
    found = [each for each in mi_values.threads(listing) if each.number == number]
    return tuple([replace(each, location=await target.location(deadline)) for each in found])


@question
async def apply(
    target: Target, numbers: tuple[int, ...] | None, command: str, deadline: Deadline
) -> tuple[tuple[int, str | CrdebugError], ...]:
    """GDB's output of a command for each of these threads (None: all), by GDB's numbers."""
    there = [each.number for each in await target.threads(deadline)]
    told: list[tuple[int, str | CrdebugError]] = []
    for number in sorted(there) if numbers is None else numbers:
        if number not in there:
            told.append((number, _no_thread(target, number)))
            continue
        try:
            line = f"thread apply {number} -q crdebug-at-program {command}"
            text = await target.console(line, deadline)
        except CrdebugError as error:
            told.append((number, error))
        else:
            told.append((number, mi_values.without_history(text)))
    return tuple(told)


def _no_thread(target: Target, number: int) -> BadInput:
    return BadInput(f"there is no thread {number}", ranks=RankSet.of([target.rank]))
