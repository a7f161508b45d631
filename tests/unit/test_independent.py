"""Ranks that stop each for itself, at the console, on ranks without processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from fake_target import FakeTarget

from crdebug.base.errors import BadInput, GdbDied, GdbError, Refused
from crdebug.base.events import GroupStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.target import TargetState
from crdebug.session import Session
from harness.jobs import Heard
from harness.talk import Talk


class Job:
    """Three ranks and the console; `rank` are the processes."""

    def __init__(self) -> None:
        self.rank = [FakeTarget(rank) for rank in range(3)]
        self.heard = Heard()
        self.session = Session(TargetGroup(self.rank), "job", Settings(), self.heard)
        self.talk = Talk(self.session)

    def told(self) -> list[tuple[int, StopReason]]:
        """The stops that were reported as they came."""
        alone = [each for each in self.heard.events if isinstance(each, GroupStopped)]
        assert all(each.cause == each.stops and len(each.stops) == 1 for each in alone)
        return [(each.cause[0].rank, each.cause[0].reason) for each in alone]

    async def until(self, state: TargetState, *ranks: int) -> None:
        async with asyncio.timeout(10):
            while any(self.rank[each].state is not state for each in ranks):
                await asyncio.sleep(0)

    async def until_told(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.told()) < count:
                await asyncio.sleep(0)


@pytest.fixture
async def job() -> AsyncIterator[Job]:
    made = Job()
    await made.talk("set stop-mode rank")
    yield made
    with contextlib.suppress(GdbDied):
        await made.session.close()


async def test_a_rank_that_stops_leaves_the_others_running(job: Job) -> None:
    assert await job.talk("continue") == "[0-2] running"
    job.rank[1].stops(StopReason.SIGNAL, "SIGSEGV")
    await job.until_told(1)
    assert job.told() == [(1, StopReason.SIGNAL)]
    assert job.session.running == RankSet.parse("0,2", job.session.ranks)


async def test_a_command_asks_the_stopped_ranks_and_names_the_running_ones(job: Job) -> None:
    for each in job.rank:
        each.values = {"x": "7"}
    await job.talk("[0-1] continue")
    assert await job.talk("print x") == "[0-1] running\n[2] = 7"
    with pytest.raises(Refused, match="'print' needs stopped ranks"):
        await job.talk("[0-1] print x")
    with pytest.raises(Refused, match="'detach' needs stopped ranks"):
        await job.talk("detach")
    # running ranks run on; the others join them
    assert await job.talk("continue") == "[0-1] running\n[2] running"
    # what was chosen before holds again
    await job.talk("set stop-mode job")
    with pytest.raises(Refused, match="'continue' needs stopped ranks"):
        await job.talk("continue")


async def test_a_step_of_one_while_the_others_run_and_stop(job: Job) -> None:
    await job.talk("[1-2] continue")
    step = asyncio.create_task(job.talk("[0] next"))
    await job.until(TargetState.RUNNING, 0)
    job.rank[1].stops(StopReason.BREAKPOINT, "12")
    await job.until_told(1)
    assert not step.done()
    job.rank[0].stops(StopReason.STEP)
    assert (await step).startswith("[0] main")
    assert job.session.running == RankSet.of([2])


async def test_each_rank_of_a_step_comes_to_its_own_stop(job: Job) -> None:
    step = asyncio.create_task(job.talk("next"))
    await job.until(TargetState.RUNNING, 0, 1, 2)
    job.rank[0].stops(StopReason.SIGNAL, "SIGFPE")
    job.rank[1].stops(StopReason.STEP)
    await asyncio.sleep(0)
    assert job.session.running == RankSet.of([2])
    job.rank[2].stops(StopReason.STEP)
    assert (await step).splitlines()[0] == "[1-2] main at ring.c:7"
    assert "interrupt" not in job.rank[2].calls


async def test_waiting(job: Job) -> None:
    # for nobody
    assert "0-2 stopped" in await job.talk("wait")
    # for ranks that stopped meanwhile and for one that stops now, which is reported once
    await job.talk("continue")
    job.rank[0].stops(StopReason.BREAKPOINT, "12")
    await job.until_told(1)
    waits = asyncio.create_task(job.talk("[0-1] wait"))
    while not job.session._control._awaited:
        await asyncio.sleep(0)
    job.rank[1].stops(StopReason.EXITED, "3")
    shown = await waits
    assert "rank 0 hit breakpoint" in shown and "rank 1 exited with status 3" in shown
    assert job.told() == [(0, StopReason.BREAKPOINT)]
    # with a limit: the ranks that still run are named
    assert (await job.talk("wait 0.01")).startswith("[2] still running\n")
    assert await job.talk("[2] wait 0.01") == "[2] still running"
    for line in ("wait x", "wait 0", "wait 1 2"):
        with pytest.raises(BadInput):
            await job.talk(line)


async def test_breakpoints_of_ranks_that_run(job: Job) -> None:
    await job.talk("[0-1] continue")
    point = await job.talk("break main")
    assert point == "breakpoint 1 on [0-2]: main at ring.c:7"
    for line in ("disable 1", "enable 1", "condition 1 x > 1", "ignore 1 2", "delete 1"):
        job.rank[0].calls.clear()
        await job.talk(line)
        assert [job.rank[0].calls[0], job.rank[0].calls[-1]] == ["interrupt", "resume"]
        assert len(job.rank[0].calls) == 3
    assert job.session.running == RankSet.of([0, 1])
    assert job.told() == [] and "interrupt" not in job.rank[2].calls
    # what is refused leaves them running too
    job.rank[0].errors["insert"] = job.rank[1].errors["insert"] = GdbError("no such line", "break")
    with pytest.raises(GdbError, match="no such line"):
        await job.talk("[0-1] break ring.c:99")
    with pytest.raises(BadInput, match="there is no breakpoint 9"):
        await job.talk("delete 9")
    assert job.session.running == RankSet.of([0, 1])
    # then they stop, as they would have
    job.rank[1].stops(StopReason.SIGNAL, "SIGFPE")
    await job.until_told(1)
    assert job.told() == [(1, StopReason.SIGNAL)]


async def test_a_rank_that_stops_by_itself_just_then_has_stopped(job: Job) -> None:
    await job.talk("continue")
    job.rank[1].own_stop = StopReason.SIGNAL
    await job.talk("break main")
    await job.until_told(1)
    assert job.told() == [(1, StopReason.SIGNAL)]
    assert job.session.running == RankSet.of([0, 2])
    assert "resume" not in job.rank[1].calls[2:]


async def test_a_rank_that_cannot_be_stopped_for_a_breakpoint(job: Job) -> None:
    await job.talk("continue")
    job.rank[1].dies()
    assert "[1] error: gdb ended" in await job.talk("break main")
    assert job.session.running == RankSet.of([0, 2])


async def test_the_commands_of_a_breakpoint_follow_a_wait_once(job: Job) -> None:
    await job.talk("break main")
    await job.talk("commands 1", "echo done")
    await job.talk("[0] continue")
    job.rank[0].stops(StopReason.BREAKPOINT, str(job.rank[0].numbers))
    assert (await job.talk("wait")).endswith("done")
    assert "done" not in await job.talk("wait")


async def test_an_interrupt_stops_those_that_are_meant(job: Job) -> None:
    await job.talk("continue")
    await job.talk("[1] interrupt")
    assert job.session.running == RankSet.parse("0,2", job.session.ranks)
    with pytest.raises(Refused, match="no rank is running"):
        await job.talk("[1] interrupt")
    # Ctrl-C while somebody waits
    waits = asyncio.create_task(job.talk("[2] wait"))
    while not job.session._control._awaited:
        await asyncio.sleep(0)
    await job.session.interrupt()
    assert "rank 2 was interrupted" in await waits
    assert job.session.running == RankSet.of([0])
    await job.talk("interrupt")
    assert not job.session.running


async def test_the_death_of_a_debugger_is_reported(job: Job) -> None:
    await job.talk("continue")
    job.rank[1].dies()
    async with asyncio.timeout(10):
        while not any("gdb ended" in str(each) for each in job.heard.events):
            await asyncio.sleep(0)
    assert job.session.running == RankSet.parse("0,2", job.session.ranks)
