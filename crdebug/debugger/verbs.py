"""The verbs of one target as questions to many, on whatever host they are."""

from __future__ import annotations

from crdebug.base.deadline import Deadline
from crdebug.base.events import RankStopped, StopReason
from crdebug.debugger.frames import Stack, alike_stacks, at_program
from crdebug.debugger.question import answers_alike, question
from crdebug.debugger.target import (
    BreakpointRequest,
    Frame,
    Inserted,
    Motion,
    SelectedBy,
    Target,
    TargetState,
    ThreadInfo,
)


@question
async def evaluate(target: Target, expression: str, deadline: Deadline, format: str) -> str:
    return await target.evaluate(expression, deadline, format)


@question
async def backtrace(target: Target, limit: int, deadline: Deadline) -> tuple[Frame, ...]:
    return await target.backtrace(limit, deadline)


@answers_alike(alike_stacks)
async def stack(target: Target, limit: int, deadline: Deadline) -> Stack:
    """`backtrace`, for where the ranks are."""
    return Stack.of(await target.backtrace(limit, deadline))


@question
async def threads(target: Target, deadline: Deadline) -> tuple[ThreadInfo, ...]:
    return await target.threads(deadline)


@question
async def select_thread(target: Target, number: int, deadline: Deadline) -> None:
    await target.select_thread(number, deadline)


@question
async def console(target: Target, command: str, deadline: Deadline) -> str:
    return await target.console(command, deadline)


@question
async def chosen(target: Target) -> None:
    """Note that the user has chosen the frame."""
    target.selection.by = SelectedBy.USER


@question
async def insert(target: Target, request: BreakpointRequest, deadline: Deadline) -> Inserted:
    """Insert a breakpoint, as seen from the program's frame."""
    await at_program(target, deadline)
    return await target.insert_breakpoint(request, deadline)


@question
async def delete(target: Target, gdb_number: int, deadline: Deadline) -> None:
    if target.state is not TargetState.DEAD:
        await target.delete_breakpoint(gdb_number, deadline)


@question
async def command(target: Target, line: str, deadline: Deadline) -> None:
    """An MI command without an answer."""
    await target.mi(line, deadline)


@question
async def resume(target: Target, deadline: Deadline) -> None:
    await target.resume(deadline)


@question
async def finish(target: Target, deadline: Deadline, level: int) -> None:
    await target.finish(deadline, level)


@question
async def run(target: Target, motion: Motion, deadline: Deadline) -> None:
    await target.run(motion, deadline)


@question
async def arrive(target: Target, deadline: Deadline) -> None:
    await target.arrive(deadline)


@question
async def detach(target: Target, deadline: Deadline, hold: bool) -> None:
    await target.detach(deadline, hold=hold)


@question
async def interrupt(target: Target, deadline: Deadline, reason: StopReason) -> RankStopped:
    return await target.interrupt(deadline, reason)
