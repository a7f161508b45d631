"""A group of ranks without processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from fake_target import FakeTarget

from crdebug.base.events import Event, GroupStopped, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.group import Identity, TargetGroup

ALL = RankSet.span(4)
BREAKPOINT, STEP, FOLLOWED = StopReason.BREAKPOINT, StopReason.STEP, StopReason.FOLLOWED
INTERRUPT, EXITED, FINISH = StopReason.INTERRUPT, StopReason.EXITED, StopReason.FINISH


class Job:
    def __init__(self, size: int = 4, settings: Settings | None = None) -> None:
        self.told: list[Event] = []
        self.targets = [FakeTarget(rank) for rank in range(size)]
        self.group = TargetGroup(
            reversed(self.targets),
            settings=settings,
            subscriber=self.told.append,
            identities={0: Identity("node0", "/bin/ring")},
        )

    async def start(self, verb: Awaitable[GroupStopped]) -> asyncio.Future[GroupStopped]:
        task = asyncio.ensure_future(verb)
        await turn()
        return task

    def __getitem__(self, rank: int) -> FakeTarget:
        return self.targets[rank]


async def turn() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def reasons(stops: tuple[RankStopped, ...]) -> dict[int, StopReason]:
    return {stop.rank: stop.reason for stop in stops}
