"""Hosts without processes: real agents with made-up ranks, at the other ends of real wires."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fake_target import FakeTarget

from crdebug.acquire.discovery import FoundJob
from crdebug.acquire.mpir import ProcDesc
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, NotAvailable
from crdebug.base.events import Location, RankStopped, StopReason
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.target import Frame, Motion, TargetState
from crdebug.hosts.agent import Agent
from crdebug.hosts.messages import Attach
from crdebug.hosts.starting import Start
from crdebug.hosts.wire import MARK, Stream

DEPTH = 25
LEAVES = 200  # different innermost frames

_FILE = "big.c"


class MadeUp(FakeTarget):
    """A rank that takes steps at once, with values and a stack by formula. No two have the same
    addresses, as those of programs that are loaded anywhere. slow: its steps end when the test says
    so."""

    slow = False

    @property
    def _base(self) -> int:
        return self.rank << 16

    async def evaluate(self, expression: str, deadline: Deadline, format: str = "") -> str:
        return "17" if expression == "same" else f"{self.rank * 0.37 % 91:.6g}"

    async def run(self, motion: Motion, deadline: Deadline) -> None:
        await super().run(motion, deadline)
        if not self.slow:
            self.stops(StopReason.STEP, at=Location(self._base, "main", _FILE, 8))

    def ends_unseen(self) -> None:
        """Without a word of its debugger."""
        self._state, self._pid = TargetState.EXITED, None
        self._last = RankStopped(self.rank, StopReason.EXITED, "0")

    async def close(self, deadline: Deadline) -> None:
        """Also after its death."""

    async def backtrace(self, limit: int, deadline: Deadline) -> tuple[Frame, ...]:
        leaf = self.rank % LEAVES
        names = [f"f{level}" for level in range(15)]
        names += [f"f{level}_{leaf % (level - 13)}" for level in range(15, DEPTH)]
        names.append(f"leaf{leaf}")
        frames = [
            Frame(
                level,
                Location(self._base | level, name, _FILE, 10 + level),
                f"u={self._base + level:#x}",
            )
            for level, name in enumerate(reversed(names))
        ]
        return tuple(frames[:limit] if limit else frames)


class FakeAgent(Agent):
    """An agent whose ranks are made up."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.ranks: dict[int, MadeUp] = {}
        stream.write(MARK)

    async def _acquire(self, request: Attach) -> TargetGroup | None:
        self.ranks = {entry.rank: MadeUp(entry.rank) for entry in request.entries}
        return TargetGroup(self.ranks.values(), settings=request.settings)


class End:
    """One end of a pair of streams. written: how many messages were written to it."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader(limit=1 << 26)
        self.other: End
        self.written = 0

    async def read(self, size: int) -> bytes:
        return await self.reader.readexactly(size)

    def write(self, data: bytes) -> None:
        self.written += 1
        if not self.other.reader.at_eof():
            self.other.reader.feed_data(data)

    def close(self) -> None:
        self.other.reader.feed_eof()


def pair() -> tuple[End, End]:
    here, there = End(), End()
    here.other, there.other = there, here
    return here, there


class Near:
    """An agent in this process (crdebug.hosts.starting.Started)."""

    def __init__(self) -> None:
        self.stream, self.there = pair()
        self.agent = FakeAgent(self.there)
        self._serving = asyncio.create_task(self.agent.run())

    async def why_not(self, error: CrdebugError, deadline: Deadline) -> NotAvailable:
        return NotAvailable(error.clause())

    async def close(self, deadline: Deadline) -> None:
        self.stream.close()
        await deadline.wait(self._serving, "the agent to end")


@asynccontextmanager
async def near_agents() -> AsyncIterator[tuple[Start, dict[str, Near]]]:
    """Starts agents in this process; those that were started, by host."""
    made: dict[str, Near] = {}

    async def start(host: str, deadline: Deadline) -> Near:
        made[host] = Near()
        return made[host]

    yield start, made


def spread(hosts: Sequence[str], ranks: int, root: int) -> FoundJob:
    """A job with so many ranks on each of these hosts. root: its launcher's process."""
    entries = tuple(
        ProcDesc(rank, hosts[rank // ranks], "big", 100 + rank)
        for rank in range(len(hosts) * ranks)
    )
    return FoundJob(root, "the test", (), len(entries), elsewhere=entries)
