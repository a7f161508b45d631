"""Letting ranks run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from crdebug.deadline import Deadline
from crdebug.events import GroupStopped
from crdebug.ranks import RankSet
from crdebug.target.interface import Target
from crdebug.verbs.core import Core


class Running(Core):
    """The verbs that let ranks run until they stand again."""

    async def resume(self, ranks: RankSet) -> GroupStopped:
        """continue: run these ranks until one of them stops; then stop the others.

        Raises Refused when a rank is not stopped, or when none of them is alive.
        """
        history = self.history
        return await self._interludes.run(
            lambda: self._run(lambda: self._group.resume(ranks)),
            history.interlude if history else None,
            await history.begin_run() if history else 0.0,
        )

    async def step(self, ranks: RankSet, count: int = 1) -> GroupStopped:
        limit = Deadline(self.settings.command)
        return await self._step(
            ranks, lambda each: each.step(count, limit), lambda: self._group.step(ranks, count)
        )

    async def next(self, ranks: RankSet, count: int = 1) -> GroupStopped:
        limit = Deadline(self.settings.command)
        return await self._step(
            ranks, lambda each: each.next(count, limit), lambda: self._group.next(ranks, count)
        )

    async def finish(self, ranks: RankSet) -> GroupStopped:
        limit = Deadline(self.settings.command)
        return await self._step(
            ranks, lambda each: each.finish(limit), lambda: self._group.finish(ranks)
        )

    async def _step(
        self,
        ranks: RankSet,
        one: Callable[[Target], Awaitable[None]],
        many: Callable[[], Awaitable[GroupStopped]],
    ) -> GroupStopped:
        """one: lets a rank step.  many: all of them."""
        history = self.history
        return await self._run(lambda: history.run(ranks, one, many) if history else many())

    async def interrupt(self) -> None:
        """Ask all running ranks to stop; the pending resume/step returns then. May be called
        while another verb runs (the one exception to one operation at a time)."""
        self._interludes.user_interrupts()
        await self._group.interrupt()

    async def job_end(self) -> int:
        """Wait until the launcher has ended, which it does soon after its last rank; returns its
        status. Raises DeadlineExpired."""
        if self._attended is not None:
            await self._attended.wait_ended(Deadline(self.settings.stop))
        status = self.ended
        assert status is not None
        return status
