"""Ranks whose main thread has ended: impossible operations are refused before anything changes."""

from __future__ import annotations

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.detached import jobs
from crdebug.node.leaderless import leader_has_ended
from crdebug.session import Session
from harness import looks
from harness.jobs import JOB, Heard, bare_job, run_to_end, session
from harness.programs import build

RANKS = 2
GONE = r"rank [01].*: its main thread has ended \(pthread_exit\), and "


async def gone() -> None:
    pids = [shim.pid for shim in looks.shims()]
    await Deadline(60).until(lambda: all(map(leader_has_ended, pids)), "the main threads to end")


async def test_without_a_debugger_the_job_is_looked_at_and_goes_on() -> None:
    async with bare_job(build("leader"), ranks=RANKS):
        await looks.reach(1)
        await gone()
        (info,) = await jobs.list_jobs()
        assert (info.state, info.ranks) == ("running", RANKS)
        with pytest.raises(Refused, match=GONE + "CRIU cannot dump"):
            await jobs.take_checkpoint(JOB, "", False, Heard())
        with pytest.raises(Refused, match=GONE + "GDB cannot attach"):
            await Session.attach(JOB)
        assert await jobs.release(JOB) == ()
        await looks.reach(max(looks.steps()) + 2)
        looks.end_soon()
        assert await jobs.follow(JOB, Heard()) == 0


async def test_under_the_debugger_the_rank_stays_and_a_checkpoint_brings_the_thread_back() -> None:
    async with session(build("leader"), ranks=RANKS, settings=Settings(record=True)) as job:
        await job.add_breakpoint(job.ranks, "work_step", condition="step == 5")
        left = job.ranks
        while left:
            await job.resume(left)
            values = (await job.evaluate(job.ranks, "'leader.c'::step")).values
            left = RankSet.of(rank for rank, value in values.items() if value != "5")
        await gone()
        with pytest.raises(Refused, match=GONE + "CRIU cannot dump"):
            await job.checkpoint()
        assert set((await job.evaluate(job.ranks, "'leader.c'::step")).values.values()) == {"5"}
        assert [info.state for info in job.info_ranks()] == ["stopped"] * RANKS
        for point in job.breakpoints():
            await job.delete_breakpoint(point.number)
        assert job.history is not None
        await job.history.goto_tick(0, 1)  # to where main is about to start the thread
        assert not any(leader_has_ended(shim.pid) for shim in looks.shims())
        await job.set_variable(job.ranks, "'leader.c'::steps = 10")
        assert await run_to_end(job) == 0
