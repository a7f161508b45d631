"""Serve requests while the user's `continue` lasts: stop the job for them, and let it run on.

They are for a checkpoint: another crdebug requests one, or one of our own is due.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from crdebug.base.errors import CrdebugError, Interrupted
from crdebug.base.events import GroupStopped, StopReason

_AGAIN = 0.1  # seconds


class Interludes:
    """Serves requests between two runs of the job.

    interrupt: stops the running ranks.
    """

    def __init__(self, interrupt: Callable[[], Awaitable[None]]) -> None:
        self._interrupt = interrupt
        self._waiting: list[tuple[Callable[[], Awaitable[int]], asyncio.Future[int]]] = []
        self._user_asked = False
        self._runs = False  # the job runs, or is about to
        self.possible = False  # the user's `continue` is under way

    def begin(self) -> None:
        """The user's `continue` begins."""
        self._user_asked = False

    def user_interrupts(self) -> None:
        """The next stop is the user's: the job does not run on."""
        self._user_asked = True

    async def ask(self, serve: Callable[[], Awaitable[int]]) -> int:
        """Stop the job for a request. Only allowed while that is `possible`."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((serve, answer))
        while not answer.done():
            if self._runs:
                await self._interrupt()
            # A run that is about to begin misses the interrupt, so try again.
            await asyncio.wait({answer}, timeout=_AGAIN)
        return answer.result()

    async def run(
        self,
        run: Callable[[], Awaitable[GroupStopped]],
        own: Callable[[float], Awaitable[float]] | None,
        after: float,
        passes: Callable[[GroupStopped], Awaitable[bool]] | None = None,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> GroupStopped:
        """Run until a stop that is not an interlude.

        own: called when the job has run for `after` seconds (0: never), with the time.monotonic()
        from which on it counts as stopped for this; returns the next `after`, or less than 0 to end
        the run.  wait: lets these
        pass, or fewer if it is due earlier.
        passes: does the job run on by itself after such a stop?
        Raises Interrupted if the user has interrupted since `begin`, before anything ran.
        """
        self.possible = True
        try:
            while True:
                if self._user_asked:
                    raise Interrupted("interrupted before the ranks ran")
                self._runs = True
                async with self._timer(after, wait) as due:
                    stop = await run()
                self._runs = False
                if self._waiting or due.done():
                    begun = time.monotonic()
                    await self._serve_all()
                    served = time.monotonic() - begun
                    interrupted = all(each.reason is StopReason.INTERRUPT for each in stop.cause)
                    if own is not None and due.done() and interrupted:
                        after = await own(due.result() + served)
                    if self._user_asked or after < 0:
                        return stop
                    if interrupted:
                        continue
                    stop = _without_interrupts(stop)
                on = not self._user_asked and passes is not None and await passes(stop)
                if not on or self._user_asked:
                    return stop
        finally:
            self.possible = self._runs = False
            await self._serve_all()

    @contextlib.asynccontextmanager
    async def _timer(
        self, after: float, wait: Callable[[float], Awaitable[None]]
    ) -> AsyncIterator[asyncio.Future[float]]:
        """Interrupt the job after a time; the future gets the moment of that."""
        due: asyncio.Future[float] = asyncio.get_running_loop().create_future()

        async def ring() -> None:
            await wait(after)
            due.set_result(time.monotonic())
            while True:  # a run that is about to begin misses the interrupt
                await self._interrupt()
                await asyncio.sleep(_AGAIN)

        bell = asyncio.create_task(ring()) if after else None
        try:
            yield due
        finally:
            if bell is not None:
                bell.cancel()
                await asyncio.gather(bell, return_exceptions=True)

    async def _serve_all(self) -> None:
        while self._waiting:
            serve, answer = self._waiting.pop(0)
            try:
                answer.set_result(await serve())
            except CrdebugError as error:
                answer.set_exception(error)
            finally:
                answer.cancel()  # whatever happened, nobody waits for ever


def _without_interrupts(stop: GroupStopped) -> GroupStopped:
    """The stop as the user sees it, if a rank stopped for a reason of its own just when the others
    were interrupted for an interlude: they were stopped with it."""
    return GroupStopped(
        tuple(each for each in stop.cause if each.reason is not StopReason.INTERRUPT),
        tuple(
            replace(each, reason=StopReason.FOLLOWED)
            if each.reason is StopReason.INTERRUPT
            else each
            for each in stop.stops
        ),
    )
