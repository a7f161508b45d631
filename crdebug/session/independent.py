"""Ranks that run and stop each for itself: `set stop-mode rank`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, Refused
from crdebug.base.events import GroupStopped, JobSays, RankStopped
from crdebug.base.ranks import RankSet
from crdebug.debugger.target import TargetState
from crdebug.session.pausing import Pausing
from crdebug.travel.history import past


class StopMode(Enum):
    """What a rank's stop is to the others."""

    JOB = "job"  # they are stopped too
    RANK = "rank"  # they run on


@dataclass(frozen=True, slots=True)
class Waited:
    """How waiting for ranks ended.

    stop: those that stand or have ended, by how they came to that; its cause are those that had
    been let run and for which nobody had waited yet.  missing: those that still run.
    """

    stop: GroupStopped
    missing: RankSet


class Independent(Pausing):
    """The verbs for ranks that are not stopped with others.

    stop_mode: what the verbs that step do with the other ranks of a step when one of them stops
    for another reason; and what the console's `continue` does.
    """

    stop_mode: StopMode = StopMode.JOB

    @property
    def apart(self) -> bool:
        """May ranks run each for itself now? Not in the past: there they need each other."""
        in_the_past = self.history is not None and self.history.in_the_past
        return self.stop_mode is StopMode.RANK and not in_the_past

    async def let_run(self, ranks: RankSet) -> RankSet:
        """Let stopped ranks run; returns, with those that do, as soon as they run.

        Each stop is an event (GroupStopped, of one rank), unless `wait` is waiting for it. Raises
        Refused when none of the ranks is stopped, and the first error if none could be let run.
        """
        group, history = self._group, self.history
        chosen = ranks & group.in_state(TargetState.STOPPED)
        if not chosen:
            raise Refused("cannot continue: not stopped", ranks=ranks)
        if self._attended is not None:
            self._attended.begin()
        if history is not None and not group.running:
            await history.begin_run()
        async with self._busy:
            await self._before_running(chosen)
            await self._arrive(chosen)
            limit = Deadline(self.settings.command)
            self._alone |= chosen
            answers = await group.ask(chosen, lambda each: each.resume(limit))
            started = RankSet.of(answers.values)
            self._alone -= chosen - started
            self._unmet |= started
            if started:
                following = asyncio.create_task(self._follow(started))
                self._following.add(following)
                following.add_done_callback(self._following.discard)
        for error in answers.errors.values():
            if not started:
                raise error
            self._tell(JobSays(str(error)))
        return started

    async def _follow(self, ranks: RankSet) -> None:
        """Note and tell the stops of ranks that were let run."""
        with contextlib.ExitStack() as around:
            stopped: Callable[[GroupStopped], GroupStopped] = lambda stop: stop  # noqa: E731
            if self._attended is not None:
                stopped = around.enter_context(past(self.history).forward())

            async def one(rank: int) -> None:
                try:
                    stop = self._group.table.translate(await self._own_stop(rank))
                except CrdebugError as error:
                    self._tell(JobSays(str(error)))
                    return
                finally:
                    self._alone -= RankSet.of([rank])
                told = stopped(GroupStopped((stop,), (stop,)))
                if rank not in self._awaited:
                    self._tell(told)

            await asyncio.gather(*map(one, ranks))

    async def wait(self, ranks: RankSet, seconds: float | None = None) -> Waited:
        """Until all of these ranks have stopped or ended, or so many seconds have passed (None:
        without a limit; `interrupt` stops those that are waited for)."""
        self._awaited = ranks
        try:
            runs = [asyncio.ensure_future(self._quiet(rank)) for rank in ranks & self.running]
            if runs:
                _, pending = await asyncio.wait(runs, timeout=seconds)
                for each in pending:
                    each.cancel()
        finally:
            self._awaited = RankSet()
        missing = ranks & self.running
        stops = [stop for rank in ranks - missing if (stop := self._how(rank)) is not None]
        met = ranks & self._unmet - missing
        self._unmet -= met
        cause = tuple(stop for stop in stops if stop.rank in met)
        return Waited(GroupStopped(cause, tuple(stops)), missing)

    async def _quiet(self, rank: int) -> None:
        with contextlib.suppress(CrdebugError):  # who follows the rank tells
            await self._own_stop(rank)

    def _how(self, rank: int) -> RankStopped | None:
        stop = self._group[rank].last_stop
        return None if stop is None else self._group.table.translate(stop)

    async def _end_following(self) -> None:
        for each in self._following:
            each.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
