"""A job of two ranks that runs until the test ends it, for faults in between."""

from __future__ import annotations

from pathlib import Path

from crdebug.session import Session
from harness import looks
from harness.jobs import run_to_end
from harness.mpirun import reference

RANKS = 2
ENDLESS = ("--steps", 10**6, "--delay-us", 10000)


async def stopped_job(job: Session) -> None:
    await job.add_breakpoint(job.ranks, "work_step")
    await job.resume(job.ranks)


async def ends_well(job: Session, program: Path) -> None:
    """It ends as an undisturbed run of as many steps."""
    last = looks.end_soon()
    status = await run_to_end(job)
    assert (looks.output(), status) == (reference(program, "--steps", last, ranks=RANKS), 0)
