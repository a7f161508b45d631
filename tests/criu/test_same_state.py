"""Exactness: whatever the threads were doing, after a checkpoint or a restart they continue just
that.

MPI calls are recorded, with automatic checkpoints and snapshots, as by default; except for threads
in long system calls, which each automatic checkpoint restarts, and at random interrupts.
"""

from __future__ import annotations

import random

import pytest

from crdebug.base.events import StopReason
from crdebug.base.ranks import RankSet
from crdebug.session import Session
from harness import looks
from harness.exact import expect_at_most_too_soon, look
from harness.jobs import Heard, as_by_default, interrupt_after, run_to_end, session
from harness.mpirun import reference
from harness.programs import build

pytestmark = pytest.mark.every_mpi("exact", by_turns=True)

_CALLS = "poll,nanosleep,select,sem_timedwait,epoll_wait,read"


async def _same_after_checkpoints_and_restarts(job: Session, checkpoints: int = 2) -> None:
    before = await look(job)
    taken = []
    for _ in range(checkpoints):
        taken.append(await job.checkpoint())
        before.expect_same(await look(job), "a checkpoint")
    for checkpoint in (*taken, taken[0]):
        await job.restart(checkpoint.number)
        assert not before.differences_after_restart(await look(job))


async def test_at_a_breakpoint_in_user_code() -> None:
    program, heard = build("threads"), Heard()
    async with session(
        program, "--steps", 30, "--rest-us", 0, heard=heard, settings=as_by_default()
    ) as job:
        await job.add_breakpoint(job.ranks, "work_step")
        for _ in range(2):
            await job.resume(job.ranks)
            await _same_after_checkpoints_and_restarts(job)
        assert await run_to_end(job) == 0
    assert sorted(heard.text().splitlines()) == sorted(
        reference(program, "--steps", 30).splitlines()
    )


async def _inside_mpi(job: Session) -> bool:
    """Is any rank in code that the MPI library runs, below one of its functions?"""
    stacks = (await job.backtrace(job.ranks)).values
    return any(
        frame.location.function.startswith(("MPI_", "PMPI_"))
        for frames in stacks.values()
        for frame in frames[1:]
    )


async def test_at_interrupts_at_any_time_also_deep_inside_the_mpi_library() -> None:
    program, heard = build("threads"), Heard()
    inside = 0
    async with session(program, "--steps", 10**6, "--rest-us", 0, heard=heard) as job:
        # into the loop, where the main threads do little else than to call MPI
        entered = await job.add_breakpoint(job.ranks, "work_step")
        await job.resume(job.ranks)
        await job.delete_breakpoint(entered.number)
        for _ in range(3):
            await interrupt_after(job, random.uniform(0.001, 0.1))
            inside += await _inside_mpi(job)
            await _same_after_checkpoints_and_restarts(job, checkpoints=1)
        assert inside
        last = looks.end_soon()
        assert await run_to_end(job) == 0
    assert heard.text() == reference(program, "--steps", last)


async def test_at_a_breakpoint_in_a_thread_other_than_the_main_one() -> None:
    """The user then sees that thread, too."""
    program, heard = build("threads"), Heard()
    async with session(
        program, "--steps", 30, "--rest-us", 0, heard=heard, settings=as_by_default()
    ) as job:
        await job.add_breakpoint(job.ranks, "integer_block")
        for _ in range(2):
            stop = await job.resume(job.ranks)
            assert {(each.reason, each.thread > 1) for each in stop.cause} == {
                (StopReason.BREAKPOINT, True)
            }
            before = await look(job)
            rank = stop.cause[0].rank
            location = stop.cause[0].location
            assert location is not None and location.function == "integer_block"
            main = min(before.ranks[rank].numbers, key=before.ranks[rank].numbers.__getitem__)
            assert before.ranks[rank].selected[0] != main
            await _same_after_checkpoints_and_restarts(job, checkpoints=1)
            ran = await job.step(RankSet.of([rank]))
            assert {each.thread for each in ran.cause} == {stop.cause[0].thread}
        assert await run_to_end(job) == 0
    assert sorted(heard.text().splitlines()) == sorted(
        reference(program, "--steps", 30).splitlines()
    )


async def test_at_a_watchpoint_which_still_watches_afterwards() -> None:
    program, heard = build("threads"), Heard()
    async with session(
        program, "--steps", 30, "--rest-us", 0, heard=heard, settings=as_by_default()
    ) as job:
        entered = await job.add_breakpoint(job.ranks, "work_step")
        await job.resume(job.ranks)
        await job.delete_breakpoint(entered.number)
        said = await job.gdb(job.ranks, "watch 'threads.c'::step")
        assert not said.errors and all("atchpoint" in text for text in said.values.values())
        for _ in range(2):
            stop = await job.resume(job.ranks)
            assert {each.reason for each in stop.cause} == {StopReason.WATCHPOINT}
            await _same_after_checkpoints_and_restarts(job, checkpoints=1)
        await job.gdb(job.ranks, "delete")
        assert await run_to_end(job) == 0
    assert sorted(heard.text().splitlines()) == sorted(
        reference(program, "--steps", 30).splitlines()
    )


@pytest.mark.parametrize("stops", [1, 3])
async def test_inside_system_calls_of_which_none_may_return_eintr(stops: int) -> None:
    heard = Heard()
    arguments = ("--only", _CALLS, "--timeout-ms", 3000, "--steps", 5)
    async with session(build("syscalls"), *arguments, heard=heard) as job:
        await job.add_breakpoint(job.ranks, "work_step")
        for _ in range(stops):
            await job.resume(job.ranks)
        before = await look(job)
        await job.checkpoint()
        before.expect_same(await look(job), "a checkpoint")
        assert await run_to_end(job) == 0
        assert heard.text().splitlines() == [f"rank {rank}: syscalls ok" for rank in job.ranks]
        await job.restart()
        assert not before.differences_after_restart(await look(job))
        status = await run_to_end(job)
    after = heard.text().splitlines()[len(job.ranks) :]
    assert len(after) == len(job.ranks)
    expect_at_most_too_soon(after, status)


async def test_a_thread_that_blocks_all_signals() -> None:
    program, heard = build("blocker"), Heard()
    async with session(
        program, "--steps", 20, ranks=2, heard=heard, settings=as_by_default()
    ) as job:
        await job.add_breakpoint(job.ranks, "work_step")
        await job.resume(job.ranks)
        await _same_after_checkpoints_and_restarts(job)
        assert await run_to_end(job) == 0
    assert sorted(heard.text().splitlines()) == sorted(
        reference(program, "--steps", 20, ranks=2).splitlines()
    )


async def test_at_a_signal_that_is_yet_to_be_delivered() -> None:
    """The program counts the signals that it sends and gets."""
    async with session(
        build("catcher"), "--signal", 40, "--steps", 3, ranks=2, settings=as_by_default()
    ) as job:
        stop = await job.resume(job.ranks)
        assert {(each.reason, each.detail) for each in stop.cause} == {(StopReason.SIGNAL, "SIG40")}
        threads = (await job.info_threads(job.ranks)).values
        before = await look(job)
        await job.checkpoint()
        before.expect_same(await look(job), "a checkpoint")
        await job.restart()
        # Other threads than those that were stopped by it may have the signal, too: in their queue,
        # or taken from there by their GDB, which has not told of it.
        told = [
            f"rank {each.rank}: thread {thread.tid}:"
            for each in stop.cause
            for thread in threads[each.rank]
            if thread.number == each.thread
        ]
        assert len(told) == len(stop.cause)
        lines = before.differences_after_restart(await look(job))
        assert not [
            line
            for line in lines
            if line.startswith(tuple(told)) or not line.endswith(f"pending={1 << 39})")
        ]
        assert await run_to_end(job) == 0
