"""Several ranks under real GDBs, stopped together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from processes import Launch, Process, Spawn, kill_gdb, soon

from crdebug.attached.gdbs import scripts
from crdebug.base.deadline import Deadline
from crdebug.base.errors import GdbDied
from crdebug.base.events import StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger.gdb import GdbTarget
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
    return await started(launch, spawn)


@pytest_asyncio.fixture
async def scripted(launch: Launch, spawn: Spawn) -> Job:
    """With crdebug's part in each GDB."""
    return await started(launch, spawn, scripts())


async def started(launch: Launch, spawn: Spawn, scripts: Sequence[Path] = ()) -> Job:
    targets = await asyncio.gather(*(launch(rank, scripts=scripts) for rank in range(SIZE)))
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


async def come_to(job: Job, location: str) -> None:
    """Bring all to a place."""
    made = await job.group.add_breakpoint(ALL, BreakpointRequest(location))
    there, _ = await job.group.gather(ALL, made.number)
    assert there == ALL
    await job.group.delete_breakpoint(made.number)


AT_A_BREAKPOINT = [
    (Motion(Verb.NEXT), "rank.c:79", "rank.c:82"),
    (Motion(Verb.UNTIL), "rank.c:79", "rank.c:82"),
    (Motion(Verb.UNTIL, location="rank.c:82"), "rank.c:79", "rank.c:82"),
    (Motion(Verb.ADVANCE, location="rank.c:79"), "rank.c:79", "rank.c:79"),
    (Motion(Verb.ADVANCE, location="hot"), "rank.c:79", "hot"),
    (Motion(Verb.STEP), "rank.c:75", "hot"),  # into it
    (Motion(Verb.NEXT), "rank.c:30", "rank.c:76"),  # out of it
]


@pytest.mark.parametrize(("motion", "start", "end"), AT_A_BREAKPOINT)
async def test_a_breakpoint_at_the_end_of_a_step_does_not_stop_late_ranks_half_way(
    scripted: Job, motion: Motion, start: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GDB reports it as a hit of the breakpoint, and of that only."""
    real, others = GdbTarget.run, asyncio.Event()

    async def run(target: GdbTarget, motion: Motion, deadline: Deadline) -> None:
        if target.rank == 3:
            await others.wait()
        await real(target, motion, deadline)
        if target.rank == 0:
            await target.stopped()
            others.set()

    await scripted.group.evaluate(RankSet.of([3]), "pace = 100000")
    await come_to(scripted, start)
    made = await scripted.group.add_breakpoint(ALL, BreakpointRequest(end))
    monkeypatch.setattr(GdbTarget, "run", run)
    result = await scripted.group.run(ALL, motion)
    told = {stop.rank: (stop.reason, stop.detail) for stop in result.stops}
    assert told == dict.fromkeys(ALL, (StopReason.BREAKPOINT, str(made.number)))
    assert result.cause == result.stops


@pytest.mark.parametrize(
    ("motion", "start", "way"),
    [
        (Motion(Verb.NEXT), "rank.c:75", "hot"),
        (Motion(Verb.NEXT, 3), "rank.c:79", "rank.c:82"),
        (Motion(Verb.ADVANCE, location="rank.c:82"), "rank.c:75", "rank.c:79"),
        (Motion(Verb.NEXT), "rank.c:79", "spin"),  # by another thread, during a long usleep
    ],
)
async def test_a_breakpoint_on_the_way_of_a_step_ends_it(
    scripted: Job, motion: Motion, start: str, way: str
) -> None:
    one = RankSet.of([0])
    await come_to(scripted, start)
    await scripted.group.add_breakpoint(
        one, BreakpointRequest(way if way != "spin" else "rank.c:65")
    )
    if way == "spin":
        await scripted.group.evaluate(one, "pace = 60000000")
    result = await scripted.group.run(ALL, motion)
    assert [(stop.rank, stop.reason) for stop in result.cause] == [(0, StopReason.BREAKPOINT)]


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
