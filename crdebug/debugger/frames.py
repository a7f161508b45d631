"""Select the frame that a question applies to: the user's choice, or else the program's.

gdbscripts/frames.py finds the program's frame. Commands that let a rank run (finish, return, until)
apply to the place where it is stopped, the innermost frame, unless the user has chosen another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, GdbError
from crdebug.base.events import Location, RankStopped
from crdebug.debugger import mi_values
from crdebug.debugger.folding import is_inside
from crdebug.debugger.question import question
from crdebug.debugger.target import LOOKED_AT, Frame, SelectedBy, Target, TargetState
from crdebug.gdbscripts.wire import Command

DIFFERING = "..."  # arguments of a call that are not the same on all ranks


@question
async def at_program(target: Target, deadline: Deadline) -> None:
    """Make the next questions to a stopped rank apply to the program's frame."""
    if target.selection.by is SelectedBy.NOBODY and target.state in LOOKED_AT:
        with contextlib.suppress(GdbError):  # the question itself will report any error
            await target.mi(Command.PROGRAM_FRAME, deadline)
        target.selection.by = SelectedBy.RULE


async def at_innermost(target: Target, deadline: Deadline) -> None:
    """Undo that, before the rank runs."""
    if target.selection.by is SelectedBy.RULE and target.state is TargetState.STOPPED:
        with contextlib.suppress(GdbError):
            await target.mi(Command.INNERMOST_FRAME, deadline)
        target.selection.by = SelectedBy.NOBODY


async def to_level(target: Target, level: int, deadline: Deadline) -> None:
    """Select a frame of the thread's stack; 0 is the innermost."""
    await target.console(f"frame {level}", deadline)


@question
async def select(target: Target, move: str, deadline: Deadline) -> Frame:
    """Choose the frame by a GDB command: ``frame 2``, ``up``, ``frame``. Returns it."""
    await target.console(move, deadline)
    frame = (await target.mi("-stack-info-frame", deadline)).payload.tuple("frame")
    level = frame.number("level")
    command = f"-stack-list-arguments --simple-values {level} {level}"
    return mi_values.frame(frame, (await target.mi(command, deadline)).payload)


@question
async def in_program(target: Target, stop: RankStopped, deadline: Deadline) -> RankStopped:
    """A stop in crdebug's own code as a stop at the program's call of it."""
    if stop.location is None or not is_inside(stop.location):
        return stop
    with contextlib.suppress(CrdebugError):  # report it as it is
        await at_program(target, deadline)
        target.stands(await target.location(deadline))
    return replace(stop, location=(target.last_stop or stop).location)


@dataclass(frozen=True, slots=True)
class CallPath:
    """Frames without what differs between ranks in the same calls: without arguments, and without
    addresses where there is a name. Many ranks have the same ones, which are kept once."""

    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Stack:
    """The calls of a rank, innermost first. arguments: of each frame; DIFFERING if those of ranks
    with the same calls are not the same."""

    path: CallPath
    arguments: tuple[str, ...]

    @classmethod
    def of(cls, frames: Iterable[Frame]) -> Stack:
        every = tuple(frames)
        bare = tuple(Frame(each.level, _named(each.location), "", each.python) for each in every)
        return cls(CallPath(bare), tuple(each.arguments for each in every))


def _named(place: Location) -> Location:
    """As much of it as its text shows."""
    if place.function:
        return Location(0, place.function, place.file, place.line)
    library = place.library.rpartition("/")[2]
    return Location(0 if library else place.address, "", place.file, place.line, "", library)


def alike_stacks(stacks: Mapping[int, Stack]) -> Mapping[int, Stack]:
    """Ranks in the same calls have the same stack."""
    found: dict[CallPath, list[int]] = {}
    for rank, stack in stacks.items():
        found.setdefault(stack.path, []).append(rank)
    made: dict[int, Stack] = {}
    for path, ranks in found.items():
        same = Stack(path, agreed(stacks[rank].arguments for rank in ranks))
        made |= dict.fromkeys(ranks, same)
    return {rank: made[rank] for rank in stacks}


def agreed(arguments: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The arguments of several ranks' frames as those of one."""
    distinct = set(arguments)
    return tuple(
        column[0] if all(each == column[0] for each in column) else DIFFERING
        for column in zip(*distinct, strict=True)
    )
