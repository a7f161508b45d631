"""Ranks that run each for itself are stopped for what their GDBs can do only then, and run on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from crdebug.base.deadline import Deadline
from crdebug.base.events import JobSays, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger.answers import Answers
from crdebug.session.core import Core


class Pausing(Core):
    """What verbs use that have to do with ranks which run apart."""

    @property
    def alone(self) -> RankSet:
        """The ranks that run each for itself now."""
        return self._alone & self.running

    @contextlib.asynccontextmanager
    async def _pause(self, ranks: RankSet) -> AsyncIterator[None]:
        """Around what needs ranks to stand. Those that stop for a reason of their own just then
        have stopped, as if nothing had been done."""
        if not ranks & self.alone:
            yield
            return
        async with self._busy:
            limit = Deadline(self.settings.stop)
            self._paused, self._resumed = ranks & self.alone, asyncio.Event()
            stops = await self._group.stop_all(StopReason.FOLLOWED, limit, self._paused)
            try:
                yield
            finally:
                await self._go_on(stops)
                self._paused = RankSet()
                self._resumed.set()

    async def _go_on(self, stops: Answers[RankStopped]) -> None:
        limit = Deadline(self.settings.stop)
        stopped = stops.values.items()
        ranks = RankSet.of(r for r, stop in stopped if stop.reason is StopReason.FOLLOWED)
        told = await self._group.ask(ranks, lambda each: each.resume(limit))
        for error in (*stops.errors.values(), *told.errors.values()):
            self._tell(JobSays(str(error)))

    async def _own_stop(self, rank: int) -> RankStopped:
        """How a rank that runs apart stops for a reason of its own."""
        while True:
            stop = await self._group[rank].stopped()
            if rank not in self._paused:
                return stop
            await self._resumed.wait()
