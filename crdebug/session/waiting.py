"""Steps and barriers in which ranks wait for others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum

from crdebug.base.errors import CrdebugError
from crdebug.base.events import GroupStopped
from crdebug.base.ranks import RankSet
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.target import TargetState
from crdebug.travel.history import History

_LOOK = 0.25  # seconds between two checks of a long run


class StepOthers(Enum):
    """What to do about a step that may never end because it waits for stopped ranks."""

    ASK = "ask"  # the user; stop it if there is no user to ask
    RUN = "run"  # let them run along
    STOP = "stop"  # stop it


@dataclass(eq=False)
class HeldUp(CrdebugError):
    """Ranks could not finish, because they wait for others that are stopped."""

    others: RankSet = field(default_factory=RankSet)


@dataclass(frozen=True, slots=True)
class AtBarrier:
    """The result of a barrier.

    there: the ranks that have come to it.
    missing: the ranks that have not.
    stop: the stop with which it ended.
    held_up: it ended because the missing ranks wait for those that are there.
    """

    there: RankSet
    missing: RankSet
    stop: GroupStopped
    held_up: bool = False


@contextlib.asynccontextmanager
async def patiently(
    group: TargetGroup,
    history: History | None,
    verb: str,
    patience: float,
    along: Callable[[HeldUp], Awaitable[bool]] | None,
) -> AsyncIterator[None]:
    """Watch the run in the block: does it wait for stopped ranks?

    patience: seconds after which to check a run that has not ended; 0: never.
    along: may the stopped ranks run along? None: no.
    Raises HeldUp if the run was stopped because it waits for them.
    """
    if not patience:
        yield
        return
    problems: list[HeldUp] = []
    guard = asyncio.create_task(_watch(group, history, verb, patience, along, problems))
    try:
        yield
    finally:
        guard.cancel()
        await asyncio.gather(guard, return_exceptions=True)
    for problem in problems:
        raise problem


async def _watch(
    group: TargetGroup,
    history: History | None,
    verb: str,
    patience: float,
    along: Callable[[HeldUp], Awaitable[bool]] | None,
    problems: list[HeldUp],
) -> None:
    loop = asyncio.get_running_loop()
    while True:
        run = group.under_way
        quiet = loop.time() - run.changed if run is not None else 0.0
        if run is None or quiet < patience:
            await asyncio.sleep(max(patience - quiet, _LOOK))
            continue
        pending = run.pending
        if history is not None:
            await history.refresh(logs=False)
        waiting = _inside_mpi(history, pending)
        others = group.in_state(TargetState.STOPPED)
        if not others or waiting != pending:
            await asyncio.sleep(_LOOK)
            continue  # it computes, which may take long
        told = HeldUp(
            f"{verb} is still running after {patience:g} s: "
            f"{_are(waiting)} waiting inside MPI while {_are(others)} stopped",
            ranks=waiting,
            others=others,
            hint="'[all] continue' runs all; 'set step-others run' runs the others too",
        )
        if along is not None and await along(told):
            group.run_along(others)
        else:
            problems.append(told)
            await group.interrupt()
        return


def _inside_mpi(history: History | None, ranks: RankSet) -> RankSet:
    """The ranks that are inside MPI calls; all of them in jobs that are not recorded, where we do
    not know."""
    if history is None or not history.recorded:
        return ranks
    states = history.traveller.recorded.states()
    return ranks & RankSet.of(rank for rank, state in states if state.now.inside)


def _are(ranks: RankSet) -> str:
    return f"{ranks.words} {'are' if len(ranks) > 1 else 'is'}"
