"""crdebug and CRIU are killed while a restart becomes final: their script runs on alone, and the
next crdebug waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.checkpoint.criu import Criu
from crdebug.detached import jobs
from crdebug.job.directory import JobDirectory
from crdebug.node import container, proc
from harness import looks
from harness.faults import moves_on
from harness.jobs import JOB, Heard, bare_job
from harness.lines import require_nothing_lost
from harness.programs import build

RANKS = 2
ENDLESS = ("--steps", 10**6, "--delay-us", 5000)
# It reports when the plan is written, and continues on demand.
RESTART = """
import asyncio, sys
from crdebug.detached import jobs
from crdebug.checkpoint.commit import Plan
write = Plan.write
def told(plan, path):
    written = write(plan, path)
    print("written", flush=True)
    sys.stdin.readline()
    return written
Plan.write = told
asyncio.run(jobs.restart(sys.argv[1], lambda event: None))
"""


@contextlib.asynccontextmanager
async def leased(path: Path) -> AsyncIterator[asyncio.Event]:
    """Make whoever opens the file wait for the end of the block (fcntl(2), "Leases"), and set the
    event."""
    opened, loop = asyncio.Event(), asyncio.get_running_loop()
    file = os.open(path, os.O_RDONLY)
    loop.add_signal_handler(signal.SIGURG, opened.set)
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield opened
    finally:
        os.close(file)
        loop.remove_signal_handler(signal.SIGURG)


async def left_alone(handle: str) -> int:
    """A restart in which crdebug and CRIU are killed; returns its script, which is stopped
    (SIGSTOP) after it has ended the job, and before it rolls the files back."""
    directory, limit = JobDirectory(JOB), Deadline(60)
    crdebug = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", RESTART, handle),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert crdebug.stdin is not None and crdebug.stdout is not None
    assert await limit.wait(crdebug.stdout.readline(), "the plan") == b"written\n"
    copy = max((directory.store.path(1) / "files").iterdir(), key=lambda path: path.stat().st_size)
    async with leased(copy) as opened:
        crdebug.stdin.write(b"\n")
        await limit.wait(opened.wait(), "the files to be rolled back")
        (script,) = container.scripts_at_work(directory.path)
        os.kill(script, signal.SIGSTOP)
        await limit.until(lambda: proc.is_stopped(script), "the script to stand")
    crdebug.kill()
    await crdebug.wait()
    await container.end_all(lambda: container.crs_at_work(directory.path), limit)
    return script


async def test_the_next_crdebug_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    beside: list[tuple[int, ...]] = []
    restore = Criu.restore

    async def noting(*arguments: object, **named: object) -> object:
        beside.append(container.scripts_at_work(JobDirectory(JOB).path))
        return await restore(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Criu, "restore", noting)
    async with bare_job(build("files"), *ENDLESS, ranks=RANKS):
        await looks.reach(5)
        await jobs.take_checkpoint(JOB, "", False, Heard())
        await moves_on()
        script = await left_alone(f"{JOB}:1")
        asyncio.get_running_loop().call_later(1.0, os.kill, script, signal.SIGCONT)
        job = await jobs.restart(f"{JOB}:1", Heard())
        assert beside == [()]
        assert job.incarnation == 3  # the script has made the second one the job
        await moves_on()
        require_nothing_lost(RANKS)
    await jobs.delete(f"{JOB}:1")
