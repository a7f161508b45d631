"""Exactness: whatever the threads were doing, after a checkpoint or a restart they do just that."""

from __future__ import annotations

import asyncio

import pytest

from crdebug.events import RankRunning
from crdebug.session import Session
from harness.exact import Look, look
from harness.jobs import Heard, run_to_end, session
from harness.mpirun import reference
from harness.programs import build

_CALLS = "poll,nanosleep,select,sem_timedwait,epoll_wait,read"


def _differences(before: Look, after: Look) -> list[str]:
    """After a restart. GDB has attached anew, and where a function is inlined it names the inner
    one for the same address, while at a stop of its own it names the outer one: no difference."""
    lines = before.differences(after)
    return [line for line in lines if "the place of the stop was" not in line]


async def _same_after_checkpoints_and_restarts(job: Session) -> None:
    before = await look(job)
    taken = []
    for _ in range(2):
        taken.append(await job.checkpoint())
        before.expect_same(await look(job), "a checkpoint")
    for checkpoint in (*taken, taken[0]):
        await job.restart(checkpoint.number)
        assert not _differences(before, await look(job))


async def _interrupt_soon(job: Session) -> None:
    runs = asyncio.Event()
    unsubscribe = job.subscribe(lambda e: runs.set() if isinstance(e, RankRunning) else None)
    running = asyncio.create_task(job.resume(job.ranks))
    await runs.wait()
    await asyncio.sleep(0.05)  # somewhere in the program, wherever that is
    await job.interrupt()
    await running
    unsubscribe()


async def test_at_a_breakpoint_in_user_code() -> None:
    program, heard = build("threads"), Heard()
    async with session(program, "--steps", 30, heard=heard) as job:
        await job.add_breakpoint(job.ranks, "work_step")
        for _ in range(2):
            await job.resume(job.ranks)
            await _same_after_checkpoints_and_restarts(job)
        assert await run_to_end(job) == 0
    assert sorted(heard.text().splitlines()) == sorted(
        reference(program, "--steps", 30).splitlines()
    )


async def test_at_an_interrupt_deep_inside_the_mpi_library() -> None:
    program, heard = build("threads"), Heard()
    async with session(program, "--steps", 1000, heard=heard) as job:
        for _ in range(3):
            await _interrupt_soon(job)
            await _same_after_checkpoints_and_restarts(job)
        assert await run_to_end(job) == 0
    assert sorted(heard.text().splitlines()) == sorted(
        reference(program, "--steps", 1000).splitlines()
    )


@pytest.mark.parametrize("stops", [1, 3])
async def test_inside_system_calls_of_which_none_may_return_eintr(stops: int) -> None:
    heard = Heard()
    arguments = ("--only", _CALLS, "--timeout-ms", 3000, "--steps", 5)
    async with session(build("syscalls"), *arguments, ranks=4, heard=heard) as job:
        await job.add_breakpoint(job.ranks, "work_step")
        for _ in range(stops):
            await job.resume(job.ranks)
        before = await look(job)
        await job.checkpoint()
        before.expect_same(await look(job), "a checkpoint")
        assert await run_to_end(job) == 0
        assert heard.text().splitlines() == [f"rank {rank}: syscalls ok" for rank in range(4)]
        await job.restart()
        assert not _differences(before, await look(job))
        # A wait until a point in time may be over sooner after a restart: then it says so, with 3.
        assert await run_to_end(job) in (0, 3)
    after = heard.text().splitlines()[4:]
    assert len(after) == 4
    assert not [line for line in after if "EINTR" in line]


async def test_a_thread_that_blocks_all_signals() -> None:
    program, heard = build("blocker"), Heard()
    async with session(program, "--steps", 20, ranks=2, heard=heard) as job:
        await job.add_breakpoint(job.ranks, "work_step")
        await job.resume(job.ranks)
        await _same_after_checkpoints_and_restarts(job)
        assert await run_to_end(job) == 0
    assert sorted(heard.text().splitlines()) == sorted(
        reference(program, "--steps", 20, ranks=2).splitlines()
    )
