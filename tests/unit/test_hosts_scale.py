"""What crdebug's own process does for ranks of other hosts does not grow with the ranks, but with
the hosts: one message asks all ranks of one, and few tell what came of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
from fake_hosts import MadeUp, Near, near_agents, spread

from crdebug.base.deadline import Deadline
from crdebug.base.errors import DeadlineExpired, GdbDied
from crdebug.base.events import GroupStopped, RankRunning, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.target import BreakpointRequest, Motion, Target, TargetState, Verb
from crdebug.hosts.attach import attach_everywhere
from crdebug.hosts.merged import Mirror, mirrors
from crdebug.hosts.messages import Happened
from crdebug.hosts.node import RemoteNode

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

    def rank(self, number: int) -> MadeUp:
        return self.agents[f"n{number // RANKS}"].agent.ranks[number]

    def _written(self) -> tuple[int, int]:
        return (
            sum(each.stream.written for each in self.agents.values()),
            sum(each.there.written for each in self.agents.values()),
        )


async def until(predicate: Callable[[], bool]) -> None:
    await Deadline(20).until(predicate, "that")


@pytest.fixture
async def job() -> AsyncIterator[Counted]:
    told: list[object] = []
    async with near_agents() as (start, agents):
        found = spread([f"n{number}" for number in range(HOSTS)], RANKS, os.getpid())
        settings = Settings(host_interval=1000.0, stop=2.0)
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
        await until(lambda: job.group.running == ALL)
        await job.group.interrupt()
        assert {each.reason for each in (await run).stops} == {StopReason.INTERRUPT}

    asked, told = await job.messages(run)
    assert asked == 2 and told <= 6


async def test_one_rank_stops_all_on_all_hosts(job: Counted) -> None:
    run = asyncio.create_task(job.group.resume(ALL))
    await until(lambda: job.group.running == ALL)
    job.rank(130).stops(StopReason.BREAKPOINT, "1")
    stop = await run
    assert [each.rank for each in stop.cause] == [130]
    assert job.group.in_state(TargetState.STOPPED) == ALL


async def test_ranks_that_run_along_are_one_message_to_each_host(job: Counted) -> None:
    some, others = RankSet.span(RANKS * HOSTS // 2), ALL - RankSet.span(RANKS * HOSTS // 2)
    run = asyncio.create_task(job.group.resume(some))
    await until(lambda: job.group.running == some)

    async def along() -> None:
        job.group.run_along(others)
        await until(lambda: job.group.running == ALL)

    assert (await job.messages(along))[0] == 1 / 2
    job.rank(RANKS * HOSTS - 1).stops(StopReason.SIGNAL, "SIGSEGV")
    stop = await run
    assert [each.rank for each in stop.cause] == [RANKS * HOSTS - 1]
    assert len(stop.stops) == len(ALL) and not job.group.running


async def test_a_step_ends_with_its_own_ranks_whoever_runs_along(job: Counted) -> None:
    ranks, others = RankSet.of([1, 100]), RankSet.of([0, 2, 101])
    for rank in ranks:
        job.rank(rank).slow = True
    run = asyncio.create_task(job.group.run(ranks, Motion(Verb.NEXT)))
    await until(lambda: job.group.running == ranks)
    job.group.run_along(others)
    await until(lambda: job.group.running == ranks | others)
    for rank in ranks:
        job.rank(rank).stops(StopReason.STEP)
    stop = await run
    reasons = {each.rank: each.reason for each in stop.stops}
    assert reasons == dict.fromkeys(ranks, StopReason.STEP) | dict.fromkeys(
        others, StopReason.FOLLOWED
    )
    assert not job.group.running


async def test_what_stops_a_rank_that_runs_along_after_its_step_counts(job: Counted) -> None:
    ranks = RankSet.of([0, 1, 2])
    for rank in ranks:
        job.rank(rank).slow = True
    run = asyncio.create_task(job.group.run(ranks, Motion(Verb.NEXT)))
    await until(lambda: job.group.running == ranks)
    job.rank(0).stops(StopReason.STEP)
    await until(lambda: job.group.running == RankSet.of([1, 2]))
    job.group.run_along(RankSet.of([0]))
    await until(lambda: job.group.running == ranks)
    assert job.group.under_way is not None and job.group.under_way.pending == ranks
    job.rank(0).stops(StopReason.SIGNAL, "SIGSEGV")
    stop = await run
    assert [(each.rank, each.reason) for each in stop.cause] == [(0, StopReason.SIGNAL)]
    assert len(stop.stops) == 3 and not job.group.running


async def test_a_rank_that_cannot_run_is_named_by_itself(job: Counted) -> None:
    """Its agent knows so before crdebug does."""
    job.rank(5).dies()
    with pytest.raises(GdbDied, match="gdb had ended before") as failed:
        await job.group.resume(ALL)
    assert failed.value.ranks == RankSet.of([5])
    assert job.group.in_state(TargetState.STOPPED) == ALL - RankSet.of([5])


async def test_a_rank_that_has_ended_meanwhile_ends_the_run(job: Counted) -> None:
    job.rank(5).ends_unseen()
    stop = await job.group.resume(ALL)
    assert [each.rank for each in stop.cause] == [5]
    assert job.group.in_state(TargetState.STOPPED) == ALL - RankSet.of([5])


async def test_what_a_lost_agent_says_later_counts_no_more(job: Counted) -> None:
    node = job.group.nodes[0]
    assert isinstance(node, RemoteNode)
    node._is_lost("has not answered", "are somewhere")
    ranks = RankSet.span(RANKS)
    assert job.group.in_state(TargetState.DEAD) == ranks
    mirror = Mirror(0, TargetState.RUNNING, 100, 1000, False, False, None)
    node._take(Happened(mirrors([mirror]), ()))
    job.group[0].reflect(mirror)  # type: ignore[attr-defined]
    assert job.group.in_state(TargetState.DEAD) == ranks


async def test_a_rank_that_is_led_and_the_others_with_it(job: Counted) -> None:
    async def start(target: Target) -> None:
        await target.run(Motion(Verb.STEP), Deadline(5))

    stop = await job.group.lead(7, start)
    assert [each.rank for each in stop.cause] == [7] and len(stop.stops) == len(ALL)


async def test_a_barrier_of_all_ranks(job: Counted) -> None:
    point = await job.group.add_breakpoint(ALL, BreakpointRequest("work"))
    numbers = job.group.table.gdb_numbers(point.number)
    run = asyncio.create_task(job.group.gather(ALL, point.number))
    await until(lambda: job.group.running == ALL)
    for rank in ALL - RankSet.of([3]):
        job.rank(rank).stops(StopReason.BREAKPOINT, str(numbers[rank]))
    await until(lambda: job.group.running == RankSet.of([3]))
    assert job.group.under_way is not None and job.group.under_way.pending == RankSet.of([3])
    job.rank(3).stops(StopReason.BREAKPOINT, str(numbers[3]))
    came, stop = await run
    assert came == ALL and len(stop.cause) == len(ALL)


async def test_an_agent_that_ends_ends_the_run(job: Counted) -> None:
    run = asyncio.create_task(job.group.resume(ALL))
    await until(lambda: job.group.running == ALL)
    lost = RankSet.of(range(5 * RANKS, 6 * RANKS))
    job.agents["n5"].there.close()
    with pytest.raises(GdbDied, match="the agent on n5 has ended") as failed:
        await run
    assert failed.value.ranks == lost
    assert job.group.in_state(TargetState.STOPPED) == ALL - lost
    job.group.replacing.clear()


async def test_a_host_that_does_not_stop_its_ranks_is_named(job: Counted) -> None:
    job.rank(41).stubborn = True
    run = asyncio.create_task(job.group.resume(ALL))
    await until(lambda: job.group.running == ALL)
    await job.group.interrupt()
    with pytest.raises(DeadlineExpired, match="the rank to stop") as failed:
        await run
    assert failed.value.ranks == RankSet.of([41])
    job.rank(41).stops(StopReason.INTERRUPT)


async def test_a_run_that_is_given_up_runs_on(job: Counted) -> None:
    run = asyncio.create_task(job.group.resume(ALL))
    await until(lambda: job.group.running == ALL)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert job.group.running == ALL
    assert set((await job.group.stop_all()).values) == {*ALL}


async def test_a_breakpoint_is_one_message_to_each_host_and_one_back(job: Counted) -> None:
    asked, told = await job.messages(
        lambda: job.group.add_breakpoint(ALL, BreakpointRequest("work"))
    )
    assert asked == 1 and told <= 2
