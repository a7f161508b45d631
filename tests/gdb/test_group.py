"""Several ranks under real GDBs, stopped together."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio
from processes import Launch, Process, Spawn, kill_gdb, soon

from crdebug.base.errors import GdbDied
from crdebug.base.events import StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.target import BreakpointRequest, Motion, TargetState, Verb
from harness.groups import attach_all

SIZE = 4
ALL = RankSet.span(SIZE)


class Job:
    def __init__(self, group: TargetGroup, processes: list[Process]) -> None:
        self.group = group
        self.processes = processes
        self.pids = {rank: process.pid for rank, process in enumerate(processes)}


@pytest_asyncio.fixture
async def job(launch: Launch, spawn: Spawn) -> Job:
    targets = await asyncio.gather(*(launch(rank) for rank in range(SIZE)))
    job = Job(TargetGroup(targets), [spawn("pace=500", "threads=1") for _ in range(SIZE)])
    answers = await attach_all(job.group, job.pids)
    assert not answers.errors
    return job


async def test_all_stop_again_and_again(job: Job) -> None:
    made = await job.group.add_breakpoint(ALL, BreakpointRequest("hot"))
    assert made.ranks == ALL
    for _ in range(15):
        result = await job.group.resume(ALL)
        assert job.group.in_state(TargetState.STOPPED) == ALL
        assert {stop.reason for stop in result.cause} == {StopReason.BREAKPOINT}
        assert {stop.detail for stop in result.cause} == {"1"}
        reasons = {stop.reason for stop in result.stops}
        assert reasons <= {StopReason.BREAKPOINT, StopReason.FOLLOWED}
        assert all(process.queued() == (0, 0) for process in job.processes)
    detached = await job.group.detach_all()
    assert not detached.errors
    for process in job.processes:
        process.assert_free()


async def test_a_breakpoint_on_one_rank_stops_the_others(job: Job) -> None:
    await job.group.add_breakpoint(RankSet.of([2]), BreakpointRequest("hot"))
    result = await job.group.resume(ALL)
    assert [(stop.rank, stop.detail) for stop in result.cause] == [(2, "1")]
    assert [stop.reason for stop in result.stops] == [
        *[StopReason.FOLLOWED] * 2,
        StopReason.BREAKPOINT,
        StopReason.FOLLOWED,
    ]


async def test_steps_of_all(job: Job) -> None:
    await job.group.add_breakpoint(ALL, BreakpointRequest("factorial"))
    waiting = ALL
    while waiting:
        stopped = await job.group.resume(waiting)
        there = [stop.rank for stop in stopped.stops if stop.reason is StopReason.BREAKPOINT]
        waiting -= RankSet.of(there)
    await job.group.delete_breakpoint(1)
    at = await job.group.evaluate(ALL, "k")
    assert at.merged() == ((ALL, "3"),)
    result = await job.group.run(ALL, Motion(Verb.NEXT))
    assert {stop.reason for stop in result.stops} == {StopReason.STEP}
    result = await job.group.run(ALL, Motion(Verb.STEP))
    assert (await job.group.evaluate(ALL, "k")).merged() == ((ALL, "2"),)
    result = await job.group.finish(ALL)
    assert {(stop.reason, stop.detail) for stop in result.stops} == {(StopReason.FINISH, "2")}


async def test_an_interrupt_and_an_exit(job: Job) -> None:
    run = asyncio.create_task(job.group.resume(ALL))
    while job.group.running != ALL:
        await asyncio.sleep(0)
    await job.group.interrupt()
    result = await soon().wait(run, "the stop")
    assert {stop.reason for stop in result.stops} == {StopReason.INTERRUPT}
    await job.group.evaluate(RankSet.of([1]), "ending = 4")
    result = await soon().wait(job.group.resume(ALL), "the end of rank 1")
    assert [(stop.rank, stop.reason, stop.detail) for stop in result.cause] == [
        (1, StopReason.EXITED, "3")
    ]
    assert job.group.in_state(TargetState.EXITED) == RankSet.of([1])
    assert job.group.info()[1].state == "exited"


async def test_a_gdb_that_is_killed_leaves_the_others_usable(job: Job) -> None:
    run = asyncio.create_task(job.group.resume(ALL))
    while job.group.running != ALL:
        await asyncio.sleep(0)
    target = job.group[2]
    kill_gdb(target)
    with pytest.raises(GdbDied, match="rank 2: gdb ended"):
        await soon().wait(run, "the news")
    rest = ALL - RankSet.of([2])
    assert job.group.in_state(TargetState.STOPPED) == rest
    answers = await job.group.evaluate(ALL, "origin.x")
    assert answers.merged() == ((rest, "1"),)
    assert set(answers.errors) == {2}


async def test_a_new_gdb_in_the_place_of_a_dead_one(job: Job, launch: Launch) -> None:
    await job.group.add_breakpoint(ALL, BreakpointRequest("hot", "n > 0"))
    kill_gdb(job.group[1])
    answers = await job.group.console(RankSet.of([1]), "info line")
    assert set(answers.errors) == {1}
    assert await job.group.replace(await launch(1)) == ()
    attached = await attach_all(job.group, {1: job.pids[1]})
    assert not attached.errors
    result = await job.group.resume(RankSet.of([1]))
    assert [(stop.rank, stop.detail) for stop in result.cause] == [(1, "1")]


async def test_the_same_gdbs_for_another_incarnation(job: Job, spawn: Spawn) -> None:
    await job.group.add_breakpoint(ALL, BreakpointRequest("hot"))
    await job.group.detach_all()
    for process in job.processes:
        process.end()
    again = {rank: spawn("threads=1").pid for rank in ALL}
    assert not (await attach_all(job.group, again)).errors
    result = await job.group.resume(ALL)
    assert {stop.detail for stop in result.cause} == {"1"}
    assert job.group.table.get(1).hits >= 1
