"""`crdebug checkpoint JOB` from elsewhere, while a session is attached."""

from __future__ import annotations

import asyncio

from crdebug.base.events import Progress, RankRunning, StopReason
from crdebug.detached import jobs
from harness import looks
from harness.jobs import JOB, Heard, run_to_end, session
from harness.mpirun import reference
from harness.programs import build


async def test_a_session_takes_the_checkpoint_that_another_crdebug_asks_for() -> None:
    program = build("threads")
    async with session(program, "--steps", 10) as job:
        taken = await jobs.take_checkpoint(JOB, "from outside", False, lambda event: None)
        assert [(each.number, each.note) for each in job.checkpoints()] == [(1, "from outside")]
        assert taken.debugger
        assert await run_to_end(job) == 0


async def test_a_job_that_runs_under_the_debugger_is_stopped_for_it_and_runs_on() -> None:
    program = build("threads")
    heard = Heard()
    runs = asyncio.Event()
    async with session(program, "--steps", 10**9, "--delay-us", 1000, heard=heard) as job:
        job.subscribe(lambda event: runs.set() if isinstance(event, RankRunning) else None)
        running = asyncio.create_task(job.resume(job.ranks))
        await runs.wait()
        for number in (1, 2, 3):
            taken = await jobs.take_checkpoint(JOB, "", False, lambda event: None)
            assert taken.number == number
        assert not running.done(), "the user's continue goes on"
        await looks.reach(1)  # it has read its options
        last = looks.end_soon(more=1000)  # the ranks run on while the news reaches them
        stop = await running
        assert {each.reason for each in stop.cause} == {StopReason.EXITED}
        assert await run_to_end(job) == 0
    ended = [e for e in heard.events if isinstance(e, Progress) and e.phase == "ended"]
    assert len(ended) == 3
    wanted = reference(program, "--steps", last)
    assert sorted(heard.text().splitlines()) == sorted(wanted.splitlines())


async def test_the_users_interrupt_counts_beside_a_request() -> None:
    program = build("threads")
    runs = asyncio.Event()
    async with session(program, "--steps", 2000) as job:
        job.subscribe(lambda event: runs.set() if isinstance(event, RankRunning) else None)
        running = asyncio.create_task(job.resume(job.ranks))
        await runs.wait()
        asked = asyncio.create_task(jobs.take_checkpoint(JOB, "", False, lambda event: None))
        await job.interrupt()
        stop = await running
        assert {each.reason for each in stop.cause} == {StopReason.INTERRUPT}
        assert (await asked).number == 1
        assert not job.running
