"""Jobs in which a rank has ended: it is left out, and the others are a job as before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crdebug.acquire.discovery import find_job
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, NotAvailable, Refused
from crdebug.base.events import JobSays, StopReason
from crdebug.base.ranks import RankSet
from crdebug.detached import jobs
from crdebug.job.directory import JobDirectory
from crdebug.job.ranks_there import await_ranks
from crdebug.node import proc
from crdebug.session import Session
from harness import looks, mpirun, mpis, plain
from harness.jobs import JOB, Heard, bare_job, run_to_end, session
from harness.mpis import MPIS
from harness.nobody import needs_root
from harness.programs import build

RANKS, GONE = 3, 1
LEFT = RankSet.of([0, 2])
ENDLESS = ("--steps", 10**9, "--delay-us", 2000)
STATES = ["stopped", "exited", "stopped"]
SAID = JobSays("rank 1 has ended")


def require_whole(text: str, steps: int = 0) -> None:
    """Each remaining rank has written each of its lines once."""
    for rank in LEFT:
        mine = [line for line in text.splitlines() if line.startswith(f"rank {rank}:")]
        count = steps or len(mine)
        assert mine == [f"rank {rank}: step {step}" for step in range(1, count + 1)]


def states(job: Session) -> list[str]:
    return [info.state for info in job.info_ranks()]


@asynccontextmanager
async def job_without_one() -> AsyncIterator[None]:
    """A job without a debugger in which a rank has ended, and the others take their steps."""
    async with bare_job(build("early"), *ENDLESS, ranks=RANKS):
        directory = JobDirectory(JOB)
        ranks = (await await_ranks(directory, directory.read(), Deadline(60))).holds
        if len(ranks) == RANKS:
            await Deadline(60).until(lambda: not proc.is_alive(ranks[GONE].pid), "a rank to end")
        await looks.reach(1)
        yield


async def let_end(job: Session) -> int:
    """Let the ranks run to their end from wherever they are, which is inside the program."""
    for pid, where in [
        (shim.pid, looks.address(shim, name)) for shim in looks.shims() for name in ["steps"]
    ]:
        proc.write_memory(pid, where, (0).to_bytes(8, "little"))
    return await run_to_end(job)


async def test_the_others_are_checkpointed_attached_to_held_released_and_restarted() -> None:
    heard = Heard()
    async with job_without_one():
        assert (await jobs.take_checkpoint(JOB, "bare", False, heard)).locations[GONE] == "ended"
        job = await Session.attach(JOB, subscriber=heard)
        assert states(job) == STATES
        assert SAID in heard.events
        assert await job.checkpoint("attached")
        with pytest.raises(Refused, match=r"^rank 1: .*no rank is alive"):
            await job.step(RankSet.of([GONE]))
        await job.detach(hold=True)
        (info,) = await jobs.list_jobs()
        assert info.state == "held"

        job = await Session.attach(JOB)  # and the held ones are released again
        assert states(job) == STATES
        await job.detach(hold=True)
        assert await jobs.release(JOB) == tuple(f"rank {rank} let go" for rank in LEFT)
        before = looks.steps()
        await looks.reach(max(before) + 2)
        with pytest.raises(NotAvailable, match=r"^rank 1: has ended"):
            await Session.attach(JOB, "0-1")

    await jobs.restart(f"{JOB}:1", heard)
    assert [shim.rank for shim in looks.shims()] == list(LEFT)
    await looks.reach(max(looks.steps()) + 2)
    last = looks.end_soon()
    assert await jobs.follow(JOB, heard) == 0
    require_whole(looks.output(), last)

    heard = Heard()
    job = await Session.restart_from(f"{JOB}:2", subscriber=heard)
    try:
        assert states(job) == STATES
        assert SAID in heard.events
        assert await let_end(job) == 0
    finally:
        await job.close()
    require_whole(looks.output())


async def test_going_back_to_before_its_end_brings_a_rank_back() -> None:
    """And forward again it has ended, in a session that has seen it end."""
    heard = Heard()
    async with session(build("early"), *ENDLESS, ranks=RANKS, heard=heard) as job:
        at = await job.add_breakpoint(job.ranks, "exchange")
        await job.resume(job.ranks)
        first = await job.checkpoint("all there")
        await job.delete_breakpoint(at.number)
        stop = await job.resume(job.ranks)
        while states(job) != STATES:
            stop = await job.resume(RankSet.of(stop.rank for stop in stop.stops if stop.location))
        second = await job.checkpoint("one gone")
        assert states(job) == STATES

        await job.restart(first.number)
        assert states(job) == ["stopped"] * RANKS
        await job.restart(second.number)
        assert states(job) == STATES
        assert heard.events.count(SAID) == 1
        await job.add_breakpoint(LEFT, "work_step")
        stop = await job.resume(LEFT)
        assert {each.reason for each in stop.cause} == {StopReason.BREAKPOINT}
        await job.restart(first.number)
        ended = await let_end(job)
        assert (ended, states(job)) == (0, ["exited"] * RANKS)


@needs_root
async def test_a_job_that_crdebug_did_not_start(tmp_path: Path) -> None:
    """crdebug finds its ranks in the launcher's table (Open MPI 4.1), or each rank knows its
    number."""
    others = [each for each in MPIS if each.name.startswith("MPICH")]
    for number, mpi in enumerate((MPIS[0], *others[:1])):
        with mpis.using(mpi):
            argv = mpirun.command(build("early"), *ENDLESS, ranks=RANKS)
        output = tmp_path / f"output{number}"
        with plain.started(argv, output) as launcher:

            def without_one(pid: int = launcher.pid, output: Path = output) -> bool:
                if "step 1" not in output.read_text():  # before that, it may not have begun
                    return False
                try:
                    found = find_job(pid)
                except (CrdebugError, OSError):
                    return False
                return found.ended == RankSet.of([GONE]) and found.ranks == LEFT

            await Deadline(60).until(without_one, f"a rank of {mpi.name} to end")
            job = await Session.attach(str(launcher.pid))
            assert states(job) == STATES
            taken = await job.checkpoint()
            if mpi in others:  # Open MPI's has a pseudo-terminal, whose number is anybody's
                await job.restart(taken.number)
                assert states(job) == STATES
            await job.detach()
            await jobs.take_checkpoint(taken.job, "without a debugger", True, Heard())
            if mpi in others:
                await jobs.restart(f"{taken.job}:2", Heard())
                await jobs.kill(taken.job)
