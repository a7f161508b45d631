"""One question to several ranks at once, here and on other hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, cast

from crdebug.base.answers import Answers, T
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, Ended
from crdebug.base.events import StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger.frames import at_program
from crdebug.debugger.node import Node
from crdebug.debugger.question import Question
from crdebug.debugger.target import Target, TargetState

V = TypeVar("V")


Asks = Callable[[Target], Awaitable[T]] | Question[T]
"""A question: as data, or as a coroutine function. A function is carried out here, so that each of
its steps is a message of its own if the rank is on another host."""


async def ask(targets: Sequence[Target], question: Asks[T]) -> Answers[T]:
    """Ask all targets at once. Their CrdebugErrors become the ranks' errors; any other exception is
    a fault of ours and is raised."""
    here, elsewhere = _by_node(targets, question)
    return joined(
        await asyncio.gather(
            _ask_here(here, question, question),
            *(node.ask(cast(Question[T], question), ranks) for node, ranks in elsewhere.items()),
        )
    )


async def look(
    targets: Sequence[Target],
    question: Asks[T],
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

    here, elsewhere = _by_node(targets, question)
    return joined(
        await asyncio.gather(
            _ask_here(here, of_process, question),
            *(
                node.look(cast(Question[T], question), ranks, deadline, also_ended)
                for node, ranks in elsewhere.items()
            ),
        )
    )


def _by_node(
    targets: Sequence[Target], question: Asks[T]
) -> tuple[list[Target], dict[Node, RankSet]]:
    """The targets to ask here, and the ranks to ask on each other host."""
    here: list[Target] = []
    elsewhere: dict[Node, list[int]] = {}
    for target in targets:
        if target.node is None or not isinstance(question, Question):
            here.append(target)
        else:
            elsewhere.setdefault(target.node, []).append(target.rank)
    return here, {node: RankSet.of(ranks) for node, ranks in elsewhere.items()}


async def _ask_here(
    targets: Sequence[Target], ask_one: Callable[[Target], Awaitable[T]], question: Asks[T]
) -> Answers[T]:
    results = await asyncio.gather(*(_outcome(ask_one(target)) for target in targets))
    values: dict[int, T] = {}
    errors: dict[int, CrdebugError] = {}
    for target, result in zip(targets, results, strict=True):
        if isinstance(result, CrdebugError):
            errors[target.rank] = result
        else:
            values[target.rank] = result
    if isinstance(question, Question):
        return Answers(question.made_alike(values), errors)
    return Answers(values, errors)


def joined(parts: Sequence[Answers[T]]) -> Answers[T]:
    """The answers of different ranks as one."""
    if len(parts) == 1:
        return parts[0]
    values: dict[int, T] = {}
    errors: dict[int, CrdebugError] = {}
    for part in parts:
        values.update(part.values)
        errors.update(part.errors)
    return Answers(dict(sorted(values.items())), dict(sorted(errors.items())))


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
