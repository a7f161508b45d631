"""One question to several ranks at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from crdebug.base.answers import Answers, T
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, Ended
from crdebug.base.events import StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger.frames import at_program
from crdebug.debugger.target import Target, TargetState

V = TypeVar("V")


async def ask(targets: Sequence[Target], question: Callable[[Target], Awaitable[T]]) -> Answers[T]:
    """Ask all targets at once. question: a coroutine function. Its CrdebugErrors become the ranks'
    errors; any other exception is a fault of ours and is raised."""
    results = await asyncio.gather(*(_outcome(question(target)) for target in targets))
    values: dict[int, T] = {}
    errors: dict[int, CrdebugError] = {}
    for target, result in zip(targets, results, strict=True):
        if isinstance(result, CrdebugError):
            errors[target.rank] = result
        else:
            values[target.rank] = result
    return Answers(values, errors)


async def look(
    targets: Sequence[Target],
    question: Callable[[Target], Awaitable[T]],
    deadline: Deadline,
    *,
    also_ended: bool = False,
) -> Answers[T]:
    """`ask`, for questions about the ranks' memory and registers. A rank that has ended gets an
    error (Ended), because its GDB would answer from the executable file. See frames.py for the
    frame that the question applies to.

    also_ended: ask ended ranks too, because the question is only about the program's files.
    """

    async def of_process(target: Target) -> T:
        if target.state in (TargetState.EXITED, TargetState.IDLE) and not also_ended:
            raise Ended(_ended(target), ranks=RankSet.of([target.rank]))
        await at_program(target, deadline)
        return await question(target)

    return await ask(targets, of_process)


def _ended(target: Target) -> str:
    """The end of a rank that has no process, as words that follow its number."""
    stop = target.last_stop
    if stop is not None and stop.reason is StopReason.EXITED:
        return f"exited with status {stop.detail or '0'}"
    if stop is not None and stop.reason is StopReason.KILLED:
        return f"ended, killed by {stop.detail}" if stop.detail else "ended, killed"
    return "ended" if target.state is TargetState.EXITED else "can show nothing without a process"


async def _outcome(answer: Awaitable[V]) -> V | CrdebugError:
    try:
        return await answer
    except CrdebugError as error:
        return error
