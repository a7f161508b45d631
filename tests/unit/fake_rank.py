"""One target over a GDB in memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest_asyncio
from fake_mi import FakeGdb

from crdebug.base.deadline import Deadline
from crdebug.base.events import Location, RankStopped
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.target import Notice

PID = os.getpid()  # it lives: whether a rank has ended is looked up in /proc
WORK = Location(0x1000, "work", "ring.c", 7)
BREAKPOINT = 'reason="breakpoint-hit",disp="keep",bkptno="1",'
SIGSEGV = 'reason="signal-received",signal-name="SIGSEGV",'


def soon() -> Deadline:
    return Deadline(10.0)


async def turn() -> None:
    """Let every task run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


class Rank:
    """Rank 2, its GDB, and its events."""

    def __init__(self) -> None:
        self.gdb = FakeGdb()
        self.told: list[Notice] = []
        self.target = GdbTarget(
            2, self.gdb.transport, subscriber=self.told.append, signals=self.gdb
        )

    async def attach(self) -> None:
        """Attach to process PID, and forget how."""
        await self.target.attach(PID, soon())
        self.gdb.alone.clear()
        self.gdb.transport.commands.clear()

    def stops(self) -> list[RankStopped]:
        return [each for each in self.told if isinstance(each, RankStopped)]


@pytest_asyncio.fixture
async def rank() -> AsyncIterator[Rank]:
    rank = Rank()
    yield rank
    await rank.target.close(soon())


@pytest_asyncio.fixture
async def attached(rank: Rank) -> Rank:
    await rank.attach()
    return rank


VERBS: dict[str, Callable[[GdbTarget], Awaitable[object]]] = {
    "continue": lambda target: target.resume(soon()),
    "step": lambda target: target.step(1, soon()),
    "next": lambda target: target.next(1, soon()),
    "finish": lambda target: target.finish(soon()),
    "detach": lambda target: target.detach(soon()),
    "kill": lambda target: target.kill(soon()),
}
