"""Time limits: every wait has a Deadline, whose error says what the wait was for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from crdebug.base.errors import DeadlineExpired
from crdebug.base.ranks import RankSet

T = TypeVar("T")

FOR_EVER = 1e9  # seconds


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in time, counted from its creation.

    seconds: how long from now.
    """

    seconds: float
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds that remain, never negative."""
        return max(0.0, self.started + self.seconds - time.monotonic())

    def expired(
        self, what: str, *, ranks: RankSet | None = None, phase: str | None = None
    ) -> DeadlineExpired:
        """The error of a wait for `what`."""
        return DeadlineExpired(what, self.seconds, ranks=ranks, phase=phase)

    async def wait(
        self,
        awaitable: Awaitable[T],
        what: str,
        *,
        ranks: RankSet | None = None,
        phase: str | None = None,
    ) -> T:
        """Await, for at most the time that is left. Raises DeadlineExpired."""
        try:
            async with asyncio.timeout(self.left):
                return await awaitable
        except TimeoutError:
            raise self.expired(what, ranks=ranks, phase=phase) from None

    async def until(
        self,
        predicate: Callable[[], bool],
        what: str,
        *,
        ranks: RankSet | None = None,
        phase: str | None = None,
    ) -> None:
        """Wait for a condition that gives no notice when it changes (a value in /proc).

        Looks again after pauses that grow from 0.2 to 20 ms. Raises DeadlineExpired.
        """
        pause = 0.0002
        while not predicate():
            if self.left == 0.0:
                raise self.expired(what, ranks=ranks, phase=phase)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.02)
