"""All ranks of a job go back in their GDBs' memories, and on as if they had never left."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, Refused
from crdebug.debugger.job_snapshot import Snapshots
from crdebug.session import Session
from harness.exact import Look, expect_at_most_too_soon, look
from harness.jobs import Heard, interrupt_after, run_to_end, session
from harness.looks import end_soon
from harness.mpirun import reference
from harness.programs import build

T = TypeVar("T")


def soon() -> Deadline:
    return Deadline(60.0)


async def run_steps(job: Session, count: int) -> None:
    """Run until a rank has passed the breakpoint so many times."""
    for _ in range(count):
        await job.resume(job.ranks)


@pytest.mark.parametrize(
    ("name", "function", "arguments"),
    [
        pytest.param("threads", "work_step", ("--steps", 150), marks=pytest.mark.sweep),
        ("heat", "relax", (128, 200, 20)),
    ],
)
async def test_fifty_steps_and_back_again_and_again(
    name: str, function: str, arguments: tuple[object, ...], thorough: bool
) -> None:
    program, heard = build(name), Heard()
    async with session(program, *arguments, heard=heard) as job:
        stop = await job.add_breakpoint(job.ranks, function)
        await run_steps(job, 7)
        await job.delete_breakpoint(stop.number)
        snapshots = Snapshots(job.group)
        before = await look(job)
        # libc, where a rank may be, has a `step` too
        steps = await job.evaluate(job.ranks, f"'{name}.c'::step")
        then = max(int(each) for each in steps.values.values())
        first = await snapshots.keep("here", soon())
        again = await snapshots.keep("there", soon())
        assert again.bytes == first.bytes
        assert again.changed < first.changed / 20
        stop = await job.add_breakpoint(job.ranks, function, condition=f"step == {then + 50}")
        for _ in range(10 if thorough else 2):
            await job.resume(job.ranks)
            assert before.differences(await look(job))
            await snapshots.put_back("here", soon())
            before.expect_same(await look(job), "a way back")
        assert await run_to_end(job) == 0
    # what was printed on the ways out was printed again each time
    assert set(heard.text().splitlines()) == set(reference(program, *arguments).splitlines())
    assert (name == "threads") is (len(heard.text().splitlines()) == 4)


async def once_nothing_is_in_flight(job: Session, way: Callable[[], Awaitable[T]]) -> T:
    """Keep a snapshot or go back to one; where that is refused, run on to another place first."""
    limit = soon()
    while True:
        try:
            return await way()
        except Refused as error:
            assert all("bytes" in each for each in error.problem.split("; ")), error
            assert limit.left, error
        await interrupt_after(job, random.uniform(0.001, 0.05))


async def test_interrupted_anywhere_and_taken_back_there() -> None:
    """Also deep inside the MPI library; a snapshot with messages in flight is refused, and not
    forgotten."""
    program, heard = build("threads"), Heard()
    async with session(program, "--steps", 10**9, "--rest-us", 0, heard=heard) as job:
        stop = await job.add_breakpoint(job.ranks, "work_step")
        await run_steps(job, 2)
        await job.delete_breakpoint(stop.number)
        snapshots = Snapshots(job.group)

        async def keep() -> Look:
            before = await look(job)
            await snapshots.keep("here", soon())
            return before

        for _ in range(6):
            await interrupt_after(job, random.uniform(0.001, 0.05))
            before = await once_nothing_is_in_flight(job, keep)
            await interrupt_after(job, random.uniform(0.001, 0.05))
            await once_nothing_is_in_flight(job, lambda: snapshots.put_back("here", soon()))
            before.expect_same(await look(job), "a way back")
        last = end_soon()
        assert await run_to_end(job) == 0
    assert heard.text() == reference(program, "--steps", last)


async def test_threads_of_all_ranks_in_system_calls_never_see_eintr() -> None:
    calls = "poll,nanosleep,select,sem_timedwait,epoll_wait,read"
    arguments = ("--only", calls, "--timeout-ms", 1500, "--steps", 5, "--rounds", 4)
    heard = Heard()
    async with session(build("syscalls"), *arguments, ranks=2, heard=heard) as job:
        await job.add_breakpoint(job.ranks, "work_step")
        await run_steps(job, 3)
        snapshots = Snapshots(job.group)
        for _ in range(3):
            await snapshots.keep("here", soon())
            before = await look(job)
            await run_steps(job, 5)
            await snapshots.put_back("here", soon())
            before.expect_same(await look(job), "a way back")
            await run_steps(job, 1)
        status = await run_to_end(job)
    expect_at_most_too_soon(heard.text().splitlines(), status)


async def test_all_ranks_or_none() -> None:
    program, heard = build("threads"), Heard()
    async with session(program, "--steps", 60, "--rest-us", 0, ranks=2, heard=heard) as job:
        await job.add_breakpoint(job.ranks, "work_step")
        await run_steps(job, 3)
        snapshots = Snapshots(job.group)
        await snapshots.keep("here", soon())
        await run_steps(job, 5)
        # as if rank 1 had opened a file meanwhile
        opened = await job.group[1].evaluate('(int)open("/dev/null", 0)', soon())
        before = await look(job)
        (problem,) = await snapshots.obstacles("here", soon())
        assert problem == f"rank 1: file descriptor {opened} (/dev/null) is new"
        with pytest.raises(Refused, match="is new"):
            await snapshots.put_back("here", soon())
        before.expect_same(await look(job), "a refusal")
        await job.group[1].evaluate(f"(int)close({opened})", soon())
        await snapshots.put_back("here", soon())
        assert before.differences(await look(job))
        await snapshots.forget("here", soon())
        with pytest.raises(BadInput, match="no snapshot 'here'"):
            await snapshots.put_back("here", soon())
        assert await run_to_end(job) == 0
    assert heard.text() == reference(program, "--steps", 60, ranks=2)
