"""How soon a job runs on with a second place for its checkpoints, beside the time without.

Bound (issue 5): the job is released within 1.1 x the time without staging. The time is that from
the request until the image is written and the job runs on. The copy of the one before is over
by then, or still under way; each round begins with another of the three.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from common import Pairs, main, report

from crdebug.base.events import Event, Progress
from crdebug.base.settings import Settings
from crdebug.detached import batch, jobs
from harness import looks, mpirun
from harness.jobs import JOB
from harness.programs import build

ROUNDS = 9


async def released() -> tuple[float, str]:
    """Seconds until the job ran on; and the checkpoint's handle."""
    began, at = time.perf_counter(), [0.0]

    def note(event: Event) -> None:
        if isinstance(event, Progress) and event.phase == "publish" and not at[0]:
            at[0] = time.perf_counter()

    taken = await jobs.take_checkpoint(JOB, "", False, note)
    return at[0] - began, taken.handle


async def run() -> None:
    mib, rounds = ([int(word) for word in sys.argv[1:]] + [64, ROUNDS][len(sys.argv) - 1 :])[:2]
    program = build("memory")
    argv = mpirun.command(program, "--mib", mib, "--steps", 10**9, "--delay-us", 5000, ranks=2)
    calm = Pairs(f"released, 2 ranks x {mib} MiB", 1.1, 0.0)
    busy = Pairs("released, the last copy under way", 1.1, 0.0)
    bare: list[float] = []
    calm.bare = busy.bare = bare
    place = Path.cwd() / "second"

    async def without(handle: str) -> str:
        return await timed(bare)

    async def with_a_place(handle: str) -> str:
        taken = await timed(calm.ours)
        await batch.stage(taken, place)
        return taken

    async def while_copying(handle: str) -> str:
        copying = asyncio.create_task(batch.stage(handle, place))
        taken = await timed(busy.ours)
        await copying
        return taken

    async def timed(into: list[float]) -> str:
        seconds, taken = await released()
        into.append(seconds)
        return taken

    await jobs.run_detached(argv, JOB, Settings())
    try:
        await looks.reach(5)
        _, last = await released()
        cases = (without, with_a_place, while_copying)
        for number in range(rounds):
            for case in range(3):
                taken = await cases[(number + case) % 3](last)
                await jobs.delete(last)
                last = taken
    finally:
        await jobs.kill(JOB)
    report([calm, busy])


if __name__ == "__main__":
    main(run)
