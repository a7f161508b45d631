"""What crdebug's own process does for ranks of other hosts does not grow with the ranks, but with
the hosts: one message asks all ranks of one, and few tell what came of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
from fake_hosts import Near, near_agents, spread

from crdebug.base.events import GroupStopped, RankRunning, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.target import BreakpointRequest, Motion, TargetState, Verb
from crdebug.hosts.attach import attach_everywhere

HOSTS, RANKS = 16, 40
ALL = RankSet.span(HOSTS * RANKS)


@dataclass
class Counted:
    """A job over hosts, and how many messages there were to and from them."""

    group: TargetGroup
    agents: dict[str, Near]
    told: list[object]

    async def messages(self, work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
        """To and from a host, while this is done."""
        before = self._written()
        await work()
        now = self._written()
        return (now[0] - before[0]) / HOSTS, (now[1] - before[1]) / HOSTS

    def _written(self) -> tuple[int, int]:
        return (
            sum(each.stream.written for each in self.agents.values()),
            sum(each.there.written for each in self.agents.values()),
        )


@pytest.fixture
async def job() -> AsyncIterator[Counted]:
    told: list[object] = []
    async with near_agents() as (start, agents):
        found = spread([f"n{number}" for number in range(HOSTS)], RANKS, os.getpid())
        settings = Settings(host_interval=1000.0)
        _, group = await attach_everywhere(found, "", settings, told.append, start)
        group.subscriber = told.append
        try:
            yield Counted(group, agents, told)
        finally:
            await group.close()


async def test_a_question_is_one_message_to_each_host_and_one_back(job: Counted) -> None:
    assert await job.messages(lambda: job.group.evaluate(ALL, "same")) <= (1, 2)


async def test_a_step_is_one_message_to_each_host_and_few_back(job: Counted) -> None:
    stop: list[GroupStopped] = []

    async def step() -> None:
        stop.append(await job.group.run(ALL, Motion(Verb.NEXT)))

    asked, told = await job.messages(step)
    assert asked == 1 and told <= 4
    assert {each.reason for each in stop[0].stops} == {StopReason.STEP}
    assert [each.rank for each in stop[0].stops] == [*ALL]
    assert len({each.location.address for each in stop[0].stops if each.location}) == len(ALL)
    assert job.group.in_state(TargetState.STOPPED) == ALL
    assert sum(isinstance(each, RankRunning) for each in job.told) == len(ALL)


async def test_an_interrupt_is_one_message_to_each_host_and_few_back(job: Counted) -> None:
    async def run() -> None:
        run = asyncio.create_task(job.group.resume(ALL))
        while job.group.running != ALL:
            await asyncio.sleep(0.01)
        await job.group.interrupt()
        assert {each.reason for each in (await run).stops} == {StopReason.INTERRUPT}

    asked, told = await job.messages(run)
    assert asked == 2 and told <= 6


async def test_one_rank_stops_all_on_all_hosts(job: Counted) -> None:
    run = asyncio.create_task(job.group.resume(ALL))
    while job.group.running != ALL:
        await asyncio.sleep(0.01)
    job.agents["n3"].agent.ranks[130].stops(StopReason.BREAKPOINT, "1")
    stop = await run
    assert [each.rank for each in stop.cause] == [130]
    assert job.group.in_state(TargetState.STOPPED) == ALL


async def test_a_breakpoint_is_one_message_to_each_host_and_one_back(job: Counted) -> None:
    asked, told = await job.messages(
        lambda: job.group.add_breakpoint(ALL, BreakpointRequest("work"))
    )
    assert asked == 1 and told <= 2
