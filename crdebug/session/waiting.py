"""When ranks wait for others: steps that need their progress, and barriers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum

from crdebug.base.errors import BadInput, CrdebugError
from crdebug.base.events import GroupStopped
from crdebug.base.ranks import RankSet
from crdebug.debugger.target import BreakpointRequest, TargetState
from crdebug.session.core import Core
from crdebug.session.source_lines import with_file

_LOOK = 0.25  # seconds between two looks at a run that lasts


class StepOthers(Enum):
    """What becomes of a step that does not end because ranks stand still that it may wait for."""

    ASK = "ask"  # the user; who cannot be asked has it stopped
    RUN = "run"  # let them run along
    STOP = "stop"  # stop it


@dataclass(eq=False)
class HeldUp(CrdebugError):
    """Ranks could not do what they were to do, because others stand still. `ranks`: those."""

    others: RankSet = field(default_factory=RankSet)


@dataclass(frozen=True, slots=True)
class AtBarrier:
    """How a barrier ended. there: who has come to it; missing: who has not.  stop: why it ended.
    held_up: because those that are missing wait for those that are there."""

    there: RankSet
    missing: RankSet
    stop: GroupStopped
    held_up: bool = False


class Waiting(Core):
    """The part of the verbs that is about ranks which need others.

    patience: seconds after which a step that does not end is looked at; 0: never.
    step_others: what is done then.  ask: asks the user, None if nobody is there.
    """

    patience: float = 10.0
    step_others: StepOthers = StepOthers.ASK
    ask: Callable[[str], Awaitable[bool]] | None = None

    def _inside_mpi(self, ranks: RankSet) -> RankSet:
        """Those of the ranks that are inside MPI calls, or may be: it is known of recorded jobs."""
        history = self.history
        if history is None or not history.recorded:
            return ranks
        inside = set()
        for clock in history.traveller.clocks():
            with contextlib.suppress(ProcessLookupError):
                if clock.read().now % 2:
                    inside.add(clock.rank)
        return ranks & RankSet.of(inside)

    @contextlib.asynccontextmanager
    async def _patiently(self, verb: str, *, along: bool) -> AsyncIterator[None]:
        """Around a run: does it wait for ranks that stand still? along: they may be let run.

        Raises HeldUp when it was stopped for that.
        """
        problems: list[HeldUp] = []
        guard = asyncio.create_task(self._watch(verb, along, problems)) if self.patience else None
        try:
            yield
        finally:
            if guard is not None:
                guard.cancel()
                await asyncio.gather(guard, return_exceptions=True)
        for problem in problems:
            raise problem

    async def _watch(self, verb: str, along: bool, problems: list[HeldUp]) -> None:
        group, loop = self._group, asyncio.get_running_loop()
        while True:
            run = group.under_way
            quiet = loop.time() - run.changed if run is not None else 0.0
            if run is None or quiet < self.patience:
                await asyncio.sleep(max(self.patience - quiet, _LOOK))
                continue
            pending = run.pending
            waiting = self._inside_mpi(pending)
            others = group.in_state(TargetState.STOPPED)
            if not others or waiting != pending:
                await asyncio.sleep(_LOOK)
                continue  # it computes: that may last
            told = HeldUp(
                f"{verb} is still running after {self.patience:g} s: "
                f"{_are(waiting)} waiting inside MPI while {_are(others)} stopped",
                ranks=waiting,
                others=others,
                hint="'[all] continue' runs all; 'set step-others run' runs the others too",
            )
            if not along:
                problems.append(told)
            elif self.step_others is StepOthers.RUN or await self._agreed(told):
                group.run_along(others)
                return
            else:
                problems.append(told)
            await group.interrupt()
            return

    async def _agreed(self, told: HeldUp) -> bool:
        if self.step_others is StepOthers.STOP or self.ask is None:
            return False
        return await self.ask(f"{told.problem}. Run them too?")

    async def barrier(self, ranks: RankSet, location: str) -> AtBarrier:
        """Run ranks until each of them has come to a location, where it waits for the others.

        Ends before that when a rank stops for another reason, and when those that are missing wait
        for those that are there. Somebody who was ahead of the others does so too: they go on to
        the location once more. Raises BadInput for a location that there is not.
        """
        location = await with_file(self._group, ranks, location)
        point = await self._group.add_breakpoint(ranks, BreakpointRequest(location))
        try:
            if not any(point.places.values()):
                raise BadInput(f"there is no '{location}' that ranks could come to", ranks=ranks)
            reached = await self._to_barrier(ranks, point.number)
            if reached.held_up and reached.there:
                reached = await self._to_barrier(ranks, point.number)
            return reached
        finally:
            with contextlib.suppress(BadInput):  # somebody else has taken it away
                await self._group.delete_breakpoint(point.number)

    async def _to_barrier(self, ranks: RankSet, number: int) -> AtBarrier:
        held_up: list[HeldUp] = []
        stopped: list[GroupStopped] = []

        async def gathered() -> GroupStopped:
            try:
                async with self._patiently("the barrier", along=False):
                    stopped.append(await self._group.gather(ranks, number))
            except HeldUp as error:  # who is missing, and where, is the answer
                held_up.append(error)
            return stopped[0]

        stop = await self._run(gathered)
        there = RankSet.of(each.rank for each in stop.stops if each.detail == str(number))
        return AtBarrier(there, ranks - there, stop, bool(held_up))


def _are(ranks: RankSet) -> str:
    return f"{ranks.words} {'are' if len(ranks) > 1 else 'is'}"
