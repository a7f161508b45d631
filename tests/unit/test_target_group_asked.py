"""Ranks as a group: questions to many, and breakpoints on many."""

from __future__ import annotations

import asyncio

import pytest
from fake_job import ALL, BREAKPOINT, Job, turn
from fake_target import HERE, FakeTarget

from crdebug.base.errors import BadInput, CrdebugError, GdbError
from crdebug.base.events import GdbSays, RankStopped
from crdebug.base.ranks import RankSet
from crdebug.debugger.target import BreakpointRequest, TargetState
from harness.groups import attach_all

pytestmark = pytest.mark.unit


@pytest.fixture
def job() -> Job:
    return Job()


# ---- questions ---------------------------------------------------------------------------------


async def test_questions_go_out_at_once_and_errors_spoil_nothing(job: Job) -> None:
    for target in job.targets:
        target.values = {"/xn": hex(target.rank)}
        target.gates["evaluate"] = asyncio.Event()
    job[1].errors["evaluate"] = GdbError('No symbol "n"', "print n")
    task = asyncio.create_task(job.group.evaluate(ALL, "n", "/x"))
    await turn()
    assert all(target.calls == ["-crdebug-program-frame", "evaluate"] for target in job.targets)
    for target in job.targets:
        target.gates["evaluate"].set()
    answers = await task
    assert answers.values == {0: "0x0", 2: "0x2", 3: "0x3"}
    assert answers.merged_errors() == ((RankSet.of([1]), 'No symbol "n"'),)


async def test_a_rank_that_is_not_there_is_not_asked(job: Job) -> None:
    with pytest.raises(BadInput, match="there is no rank 7"):
        await job.group.console(RankSet.of([0, 7]), "info line")
    assert job[0].calls == []


async def test_the_other_questions(job: Job) -> None:
    ranks = RankSet.of([1])
    assert (await job.group.backtrace(ranks)).values[1][0].location == HERE
    assert (await job.group.threads(ranks)).values[1][0].tid == 100
    assert (await job.group.console(ranks, "info line")).values == {1: "info line"}
    assert (await job.group.select_thread(ranks, 2)).values == {1: None}


async def test_info_asks_nobody(job: Job) -> None:
    run = await job.start(job.group.resume(RankSet.of([1])))
    infos = job.group.info()
    assert [info.rank for info in infos] == [0, 1, 2, 3]
    assert (infos[0].host, infos[0].executable, infos[0].pid) == ("node0", "/bin/ring", 100)
    assert (infos[0].state, infos[0].location) == ("stopped", HERE)
    assert (infos[1].state, infos[1].location) == ("running", None)
    await job.group.interrupt()
    await run


async def test_attach_detach_close(job: Job) -> None:
    answers = await job.group.detach_all()
    assert set(answers.values) == {0, 1, 2, 3}
    assert job.group.in_state(TargetState.IDLE) == ALL
    job[1].errors["attach"] = GdbError("No such process.", "-target-attach 9")
    attached = await attach_all(job.group, {0: 7, 1: 9})
    assert set(attached.values) == {0}
    assert set(attached.errors) == {1}
    assert job[0].pid == 7
    await job.group.close()
    assert all(target.calls[-1] == "close" for target in job.targets)


async def test_close_tries_all(job: Job) -> None:
    job[0].errors["close"] = CrdebugError("stuck")
    with pytest.raises(CrdebugError, match="stuck"):
        await job.group.close()
    assert all(target.calls == ["close"] for target in job.targets)


async def test_what_gdb_says_comes_through(job: Job) -> None:
    job[0].subscriber(GdbSays(0, "hello"))
    assert job.told == [GdbSays(0, "hello")]


# ---- breakpoints -------------------------------------------------------------------------------


async def test_a_breakpoint_has_one_number_everywhere(job: Job) -> None:
    made = await job.group.add_breakpoint(ALL, BreakpointRequest("work"))
    assert (made.number, made.ranks, set(made.places)) == (1, ALL, {0, 1, 2, 3})
    run = await job.start(job.group.resume(ALL))
    job[2].hits(31, 1)
    job[2].stops(BREAKPOINT, "31")
    result = await run
    assert result.cause[0].detail == "1"
    assert job.told[-4:][0] == RankStopped(2, BREAKPOINT, "1", 1, HERE)
    assert job.group.table.get(1).hits == 1


async def test_ranks_that_refuse_it_are_named(job: Job) -> None:
    job[1].errors["insert"] = GdbError("No symbol table", "-break-insert")
    made = await job.group.add_breakpoint(ALL, BreakpointRequest("work"))
    assert made.ranks == RankSet.of([0, 2, 3])
    assert made.problems == {1: "No symbol table"}


async def test_one_that_nobody_takes_is_none(job: Job) -> None:
    for target in job.targets:
        target.errors["insert"] = GdbError("Junk at end", "-break-insert")
    with pytest.raises(GdbError, match="ranks 0-3: Junk at end"):
        await job.group.add_breakpoint(ALL, BreakpointRequest("work junk"))
    assert job.group.table.all() == ()


async def test_deleting_by_the_users_number(job: Job) -> None:
    await job.group.add_breakpoint(RankSet.of([0, 2]), BreakpointRequest("work"))
    await job.group.delete_breakpoint(1)
    assert job[0].calls[-1] == "delete 11"
    assert job[2].calls[-1] == "delete 31"
    assert job[1].calls == []
    with pytest.raises(BadInput):
        await job.group.delete_breakpoint(1)


async def test_deleting_where_a_gdb_has_died(job: Job) -> None:
    await job.group.add_breakpoint(ALL, BreakpointRequest("work"))
    job[1].dies()
    await job.group.delete_breakpoint(1)
    assert job.group.table.all() == ()


async def test_a_rank_that_keeps_it_keeps_the_breakpoint(job: Job) -> None:
    await job.group.add_breakpoint(ALL, BreakpointRequest("work"))
    job[1].errors["delete 21"] = GdbError("busy", "-break-delete 21")
    with pytest.raises(GdbError, match="busy"):
        await job.group.delete_breakpoint(1)
    assert job.group.table.get(1).ranks == RankSet.of([1])


async def test_changing(job: Job) -> None:
    await job.group.add_breakpoint(RankSet.of([0]), BreakpointRequest("work"))
    await job.group.enable_breakpoint(1, False)
    await job.group.set_condition(1, "a == {1}")
    assert job[0].calls[-2:] == ["-break-disable 11", "-break-condition 11 a == {1}"]
    assert (job.group.table.get(1).enabled, job.group.table.get(1).condition) == (
        False,
        "a == {1}",
    )


async def test_a_new_gdb_gets_the_breakpoints(job: Job) -> None:
    await job.group.add_breakpoint(ALL, BreakpointRequest("work"))
    await job.group.add_breakpoint(RankSet.of([0]), BreakpointRequest("other"))
    job[1].dies()
    new = FakeTarget(1, TargetState.IDLE)
    new.numbers = 70
    assert await job.group.replace(new) == ()
    assert new.calls == ["insert"]
    assert job.group[1] is new
    run = asyncio.ensure_future(attach_all(job.group, {1: 55}))
    await run
    resumed = await job.start(job.group.resume(ALL))
    new.stops(BREAKPOINT, "71")
    assert (await resumed).cause[0].detail == "1"


async def test_what_a_new_gdb_refuses_is_reported(job: Job) -> None:
    await job.group.add_breakpoint(ALL, BreakpointRequest("work"))
    new = FakeTarget(1, TargetState.IDLE)
    new.errors["insert"] = GdbError("No such file", "-break-insert")
    (dropped,) = await job.group.replace(new)
    assert (dropped.number, dropped.problems) == (1, {1: "No such file"})


async def test_temporary_ones_go_rank_by_rank(job: Job) -> None:
    await job.group.add_breakpoint(RankSet.of([0, 1]), BreakpointRequest("work", temporary=True))
    job[0].loses(11)
    assert job.group.table.get(1).ranks == RankSet.of([1])
    job[1].loses(21)
    assert job.group.table.all() == ()
