"""Select the frame that a question applies to: the user's choice, or else the program's.

gdbscripts/frames.py finds the program's frame. Commands that let a rank run (finish, return, until)
apply to the place where it is stopped, the innermost frame, unless the user has chosen another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, GdbError
from crdebug.base.events import RankStopped
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


Stack = tuple[Frame, ...]


def alike_frames(stacks: Mapping[int, Stack]) -> Mapping[int, Stack]:
    """Stacks with the same functions at the same lines as one: with the arguments that all agree
    in, "..." for others, and the addresses of the first."""
    found: dict[tuple[tuple[int, bool, str], ...], list[int]] = {}
    for rank, stack in stacks.items():
        found.setdefault(tuple(map(shape, stack)), []).append(rank)
    made = {}
    for ranks in found.values():
        first = stacks[ranks[0]]
        if len(ranks) > 1:
            first = tuple(map(_agreed, zip(*(stacks[rank] for rank in ranks), strict=True)))
        made |= dict.fromkeys(ranks, first)
    return {rank: made[rank] for rank in stacks}


def shape(frame: Frame) -> tuple[int, bool, str]:
    """What is compared of a frame."""
    return frame.level, frame.python, str(frame.location)


def _agreed(same: tuple[Frame, ...]) -> Frame:
    first = same[0]
    if all(each.arguments == first.arguments for each in same):
        return first
    return replace(first, arguments=DIFFERING)
