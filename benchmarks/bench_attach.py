"""Attaching to 8 ranks, beside eight bare `gdb -p` in parallel (issue 2, "Speed": <= 1.3 x)."""

from __future__ import annotations

import asyncio
import sys
import time

from common import Pairs, main, report

from crdebug.base.deadline import Deadline
from crdebug.base.settings import Settings
from crdebug.detached import jobs
from crdebug.job.directory import JobDirectory
from crdebug.job.ranks_there import await_ranks
from crdebug.session import Session
from harness import mpirun
from harness.programs import build

ROUNDS = 7


async def bare_gdbs(pids: list[int]) -> float:
    """As a user would: eight GDBs at once, each attaches, reads symbols, and lets go."""
    started = time.perf_counter()
    done = await asyncio.gather(
        *(
            asyncio.create_subprocess_exec(
                *("gdb", "-nx", "-batch", "-p", str(pid)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            for pid in pids
        )
    )
    await asyncio.gather(*(each.wait() for each in done))
    return time.perf_counter() - started


async def run() -> None:
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    argv = mpirun.command(
        build("memory"), "--steps", 1_000_000, "--delay-us", 20000, "--mib", 1, ranks=ranks
    )
    await jobs.run_detached(argv, "bench", Settings())
    directory = JobDirectory("bench")
    job = await await_ranks(directory, directory.read(), Deadline(60))
    attaching = Pairs(f"attach to {ranks} ranks", 1.3, 0.0)
    try:
        for _ in range(ROUNDS):
            started = time.perf_counter()
            session = await Session.attach("bench")
            attaching.ours.append(time.perf_counter() - started)
            await session.detach()
            attaching.bare.append(await bare_gdbs([hold.pid for hold in job.holds]))
    finally:
        await jobs.kill("bench")
    report([attaching])


if __name__ == "__main__":
    main(run)
