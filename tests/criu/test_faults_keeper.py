"""The keeper of a job's container is killed: all that it kept ends, and nothing else."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.job.directory import JobDirectory
from crdebug.node import container
from crdebug.session import Session
from harness import looks
from harness.faults import (
    CHECKPOINT,
    RESTART,
    At,
    FaultyCriu,
    at_phase,
    gone,
    half_checkpoints,
    kill,
)
from harness.jobs import JOB, run_to_end, session
from harness.mpirun import reference
from harness.programs import build

RANKS = 2
ENDLESS = ("--steps", 10**6, "--delay-us", 10000)
# In these phases nothing is needed of the job any more: its death is the next command's to report.
LAST = ("walk out", "publish")


def keeper() -> int:
    return JobDirectory(JOB).read().keeper


def kill_keeper(killed: list[int]) -> None:
    killed.append(keeper())
    kill(killed[-1])


async def stopped(job: Session) -> None:
    await job.add_breakpoint(job.ranks, "work_step")
    await job.resume(job.ranks)


async def ends_well(job: Session, program: Path) -> None:
    last = looks.end_soon()
    status = await run_to_end(job)
    assert (looks.output(), status) == (reference(program, "--steps", last, ranks=RANKS), 0)


@pytest.mark.sweep
async def test_at_each_phase_of_a_checkpoint() -> None:
    program = build("threads")
    async with session(program, *ENDLESS, ranks=RANKS) as job:
        await stopped(job)
        await job.checkpoint()
        for phase in CHECKPOINT:
            kept = [keeper(), *(shim.pid for shim in looks.shims())]
            with at_phase(job, "checkpoint", phase, functools.partial(kill, kept[0])):
                try:
                    await job.checkpoint()
                    assert phase in LAST
                except CrdebugError as error:
                    assert set(error.ranks or ()) <= set(range(RANKS)), error
            assert half_checkpoints() == []
            await job.restart(1)
            await gone(kept)
        await ends_well(job, program)


@pytest.mark.sweep
async def test_at_each_phase_of_a_restart() -> None:
    """The old container's before the new one is the job, then that one's."""
    program = build("threads")
    async with session(program, *ENDLESS, ranks=RANKS) as job:
        await stopped(job)
        await job.checkpoint()
        for phase in RESTART:
            killed: list[int] = []
            at = At("restart", phase, functools.partial(kill_keeper, killed))
            unsubscribe = job.subscribe(at)
            try:
                await job.restart()
                assert phase == "restore" or phase in LAST
            except CrdebugError as error:
                assert set(error.ranks or ()) <= set(range(RANKS)), error
            unsubscribe()
            assert at.reached
            await gone(killed)
        await job.restart()
        await ends_well(job, program)


async def test_while_criu_restores_the_old_job_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = build("threads")
    criu = FaultyCriu(monkeypatch, tmp_path)
    async with session(program, *ENDLESS, ranks=RANKS) as job:
        await stopped(job)
        await job.checkpoint()
        old = keeper()
        new = JobDirectory(JOB).run(2)
        criu.will("hang", "restore", at=r"Forking task with (?!20001 )\d+ pid")
        restart = asyncio.create_task(job.restart())
        await Deadline(60).until(lambda: criu.reached, "CRIU to be in the middle")
        (its,) = container.containers_of(new)
        kill(its)
        with pytest.raises(CrdebugError, match="criu restore was killed by signal 9"):
            await restart
        criu.work_again()
        assert keeper() == old
        assert container.containers_of(new) == ()
        await ends_well(job, program)
