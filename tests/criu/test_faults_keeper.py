"""The keeper of a job's container is killed: all that it kept ends, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.job.directory import JobDirectory
from crdebug.node import container
from crdebug.session import Session
from harness import looks
from harness.endless import ENDLESS, RANKS, ends_well, stopped_job
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
from harness.jobs import JOB, session
from harness.programs import build

# In these phases nothing is needed of the job any more: its death is the next command's to report.
LAST = ("walk out", "publish")


def keeper() -> int:
    return JobDirectory(JOB).read().keeper


def kill_keeper(killed: list[int]) -> None:
    killed.append(keeper())
    kill(killed[-1])


@contextlib.asynccontextmanager
async def checkpointed() -> AsyncIterator[Session]:
    """A job that stands, with a checkpoint; in the end it ends well."""
    program = build("threads")
    async with session(program, *ENDLESS, ranks=RANKS) as job:
        await stopped_job(job)
        await job.checkpoint()
        yield job
        await ends_well(job, program)


@pytest.mark.sweep
async def test_at_each_phase_of_a_checkpoint() -> None:
    async with checkpointed() as job:
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


@pytest.mark.sweep
async def test_at_each_phase_of_a_restart() -> None:
    """The old container's before the new one is the job, then that one's."""
    async with checkpointed() as job:
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


async def test_while_criu_restores_the_old_job_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    criu = FaultyCriu(monkeypatch, tmp_path)
    async with checkpointed() as job:
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
