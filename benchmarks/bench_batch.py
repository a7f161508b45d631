"""A job of some length that is killed again and again: the right result, and what each kill costs.

    bench_batch.py [KILLS [SECONDS [EVERY]]]

Bound (issue 5): the time lost by a kill is at most the interval and the time of the restart.
The time lost is that from the checkpoint that the job goes on from until it runs again.
"""

from __future__ import annotations

import asyncio
import functools
import random
import sys
import time

from common import main

from crdebug.base.deadline import Deadline
from crdebug.base.settings import Settings
from crdebug.checkpoint.retention import Keep, Upkeep
from crdebug.checkpoint.store import CheckpointStore
from crdebug.detached import batch, jobs
from crdebug.job.directory import JobDirectory
from crdebug.node import signals
from harness import looks, mpirun
from harness.jobs import JOB
from harness.programs import build

RANKS = 2
DELAY = 5000  # microseconds
SEED = 1


def nothing(event: object) -> None:
    """What happens is not shown."""


def _is_newer(store: CheckpointStore, number: int) -> bool:
    """Is there a checkpoint after this one?"""
    return max(store.numbers(), default=0) > number


async def run() -> None:
    kills, seconds, every = (
        [float(word) for word in sys.argv[1:]] + [10.0, 120.0, 10.0][len(sys.argv) - 1 :]
    )[:3]
    program, last = build("memory"), int(seconds * 1e6 / (DELAY * 1.2))
    arguments = ("--mib", 16, "--steps", last)
    expected = mpirun.run(mpirun.command(program, *arguments, ranks=RANKS), seconds=9 * seconds)
    chance = random.Random(SEED)
    care = Upkeep(every=every, keep=Keep(count=2))
    store = JobDirectory(JOB).store
    began = time.time()
    slowly = mpirun.command(program, *arguments, "--delay-us", DELAY, ranks=RANKS)
    await jobs.run_detached(slowly, JOB, Settings())
    worst, met = 0.0, 0
    for kill in range(1, int(kills) + 1):
        attended = asyncio.create_task(batch.attend(JOB, care, nothing))
        record, before = JobDirectory(JOB).read(), max(store.numbers(), default=0)
        newer = functools.partial(_is_newer, store, before)
        await Deadline(9 * every + 60).until(newer, "a checkpoint")
        await asyncio.sleep(chance.uniform(0, every))
        killed, seen = time.time(), looks.steps()
        signals.kill(record.pid, record.start)
        assert await attended == 128 + 9
        again = time.time()
        taken = store.load(store.newest_good()).time
        await jobs.restart(await batch.handle_of(JOB), nothing)
        runs = time.time()
        met += killed - taken <= every
        worst = max(worst, killed - taken)
        print(
            f"kill {kill:2} at step {max(seen)}: {killed - taken:5.2f} s of work lost, "
            f"restart {runs - again:.2f} s, back at step {min(looks.steps())}; "
            f"{'met' if killed - taken <= every else 'missed'}",
            flush=True,
        )
    assert await batch.attend(JOB, care, nothing) == 0
    right = looks.output() == expected.expect().stdout
    print(
        f"{met} of {int(kills)} kills lost at most the interval of {every:g} s and the restart "
        f"(most {worst:.2f} s); the job lasted {time.time() - began:.1f} s; "
        f"the result is {'right' if right else 'WRONG'}"
    )
    if not right:
        raise SystemExit(1)


if __name__ == "__main__":
    main(run)
