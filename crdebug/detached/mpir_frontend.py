"""Run a job on behalf of an MPIR tool (TotalView, DDT), which starts native/starter/front.c in
place of the launcher.

Over a socket that program learns who the ranks are, and reports when the tool has seen them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crdebug.base.deadline import FOR_EVER, Deadline
from crdebug.base.errors import CrdebugError, DeadlineExpired
from crdebug.base.settings import Settings
from crdebug.detached import jobs
from crdebug.job.directory import JobDirectory
from crdebug.job.given import Given
from crdebug.job.holds import with_shims
from crdebug.job.ranks_there import await_ranks
from crdebug.native.build import build


async def program(settings: Settings) -> Path:
    """What tools start in the launcher's place, with the option --front. Raises NotAvailable."""
    return (await build(settings.compiler, Deadline(settings.launch))).starter


@dataclass(frozen=True, slots=True)
class Front:
    """channel: the descriptor of our end of its socket.  held: no rank comes to its main before
    the tool has seen them all."""

    channel: int
    held: bool

    async def start(
        self, argv: Sequence[str], name: str | None, settings: Settings, given: Given
    ) -> jobs.JobInfo:
        return await jobs.run_detached(argv, name, settings, given, hold=self.held, here=True)

    @contextlib.asynccontextmanager
    async def shown(self, job: str, settings: Settings) -> AsyncIterator[None]:
        """Inside the block, the ranks are shown to the tool as soon as they are there."""
        showing = asyncio.create_task(self._show(job, settings))
        try:
            yield
        finally:
            showing.cancel()
            done = await asyncio.gather(showing, return_exceptions=True)
        if isinstance(done[0], Exception):
            raise done[0]

    async def _show(self, job: str, settings: Settings) -> None:
        directory = JobDirectory(job)
        there = socket.socket(fileno=self.channel)
        reader, writer = await asyncio.open_connection(sock=there)
        limit = Deadline(settings.launch if self.held else FOR_EVER)
        try:
            holds = (await await_ranks(directory, directory.read(), limit)).holds
            rows = [f"rank {each.pid} {each.entry.executable}\n" for each in holds]
            writer.write("".join([f"job {job}\n", *rows, "all\n"]).encode())
            await writer.drain()
            # However long: the user of the tool sets the pace. When the tool ends, they go on too.
            await reader.readline()
            if self.held:
                for shim in with_shims(holds):
                    await shim.let_begin()
        except DeadlineExpired:
            await jobs.kill(job, settings)  # the ranks that are there wait for the others
            raise
        except (CrdebugError, OSError):
            pass  # it has ended; its follower reports that
        finally:
            writer.close()
