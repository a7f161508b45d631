"""Agents of other hosts, as processes of this one: what differs from real ones is only the way to
them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

from crdebug.acquire.discovery import FoundJob
from crdebug.acquire.mpir import ProcDesc
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, NotAvailable


class PipeStream:
    """A child's standard streams. cut: what is written no longer arrives, and nothing comes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.cut = False

    async def read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = await self._process.stdout.readexactly(size)
        if self.cut:
            await asyncio.get_running_loop().create_future()
        return data

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        if not self.cut and not self._process.stdin.is_closing():
            self._process.stdin.write(data)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()


class LocalAgent:
    """A started agent (crdebug.hosts.starting.Started)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.stream = PipeStream(process)

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    async def why_not(self, error: CrdebugError, deadline: Deadline) -> NotAvailable:
        return NotAvailable(f"no agent answers: {error.clause()}")

    async def close(self, deadline: Deadline) -> None:
        with suppress(ProcessLookupError):
            self.signal(signal.SIGCONT)
        self.stream.close()
        with suppress(CrdebugError):
            await deadline.wait(self.process.wait(), "the agent to end")
        await self.end()

    async def end(self) -> None:
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        # asyncio tells of its end once its output is read; somebody may be reading that now.
        assert self.process.stdout is not None
        with suppress(RuntimeError):
            await self.process.stdout.read()
        await self.process.wait()


class Agents:
    """Starts them, by host. hosts: those that were started; command: instead of an agent.
    fails: no other can be started."""

    def __init__(self, command: Sequence[str] = ()) -> None:
        self.fails = False
        self.hosts: dict[str, LocalAgent] = {}
        self._command = command or (sys.executable, "-m", "crdebug.hosts")

    async def start(self, host: str, deadline: Deadline) -> LocalAgent:
        if self.fails:
            raise NotAvailable("there is no way to start one")
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        self.hosts[host] = LocalAgent(process)
        return self.hosts[host]


@asynccontextmanager
async def agents(command: Sequence[str] = ()) -> AsyncIterator[Agents]:
    """None is left afterwards."""
    made = Agents(command)
    try:
        yield made
    finally:
        for each in made.hosts.values():
            await each.end()


def found(here: Mapping[int, int], elsewhere: Mapping[str, Mapping[int, int]]) -> FoundJob:
    """A job with these processes, by rank; and those that count as other hosts', by host."""
    own = tuple(ProcDesc(rank, os.uname().nodename, "rank", pid) for rank, pid in here.items())
    others = tuple(
        ProcDesc(rank, host, "rank", pid)
        for host, ranks in elsewhere.items()
        for rank, pid in ranks.items()
    )
    size = len(own) + len(others)
    return FoundJob(os.getpid(), "the test", own, size, elsewhere=others)


@contextmanager
def stopped(agent: LocalAgent) -> Iterator[None]:
    """It is stopped in the block."""
    agent.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            agent.signal(signal.SIGCONT)
