"""`continue` after the exit of a rank, on ranks without processes."""

from __future__ import annotations

import asyncio

import pytest
from fake_job import turn
from fake_target import FakeTarget

from crdebug.base.deadline import Deadline
from crdebug.base.events import GroupStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.group import TargetGroup
from crdebug.mi.records import MiTuple, Result
from crdebug.session import Session

EXITED = StopReason.EXITED


class Rank(FakeTarget):
    """left: has it called MPI_Finalize?"""

    left = True

    async def mi(self, command: str, deadline: Deadline) -> Result:
        await super().mi(command, deadline)
        return Result(1, "done", MiTuple((("left", str(int(self.left))),)))


class Job:
    """Three ranks that `continue`; `rank` are the processes."""

    def __init__(self, ranks: str = "0-2", *, to_end: bool = False) -> None:
        self.rank = [Rank(rank) for rank in range(3)]
        self.session = Session(TargetGroup(self.rank), "job", Settings(), None)
        chosen = RankSet.parse(ranks, self.session.ranks)
        self.run = asyncio.ensure_future(self.session.run_on(chosen, to_end=to_end))

    async def stops(self, rank: int, reason: StopReason, detail: str = "0") -> None:
        await turn()
        self.rank[rank].stops(reason, detail)
        await turn()

    async def stop(self) -> tuple[list[int], list[int]]:
        """The ranks that have caused it, and all that it is about."""
        told: GroupStopped = await asyncio.wait_for(self.run, 10)
        return [each.rank for each in told.cause], [each.rank for each in told.stops]


async def test_to_the_end_of_all() -> None:
    job = Job()
    for rank in (1, 2, 0):
        await job.stops(rank, EXITED)
    assert await job.stop() == ([1, 2, 0], [1, 2, 0])
    assert job.session.ended == 0


async def test_to_the_end_of_some_ranks_while_others_are_stopped() -> None:
    job = Job("2")
    await job.stops(2, EXITED)
    assert await job.stop() == ([2], [2])
    assert job.session.ended is None


async def test_to_another_kind_of_stop_which_names_the_ranks_that_exited_before() -> None:
    job = Job()
    await job.stops(1, EXITED)
    await job.stops(2, StopReason.SIGNAL, "SIGSEGV")
    assert await job.stop() == ([2], [1, 0, 2])


async def test_to_an_interrupt() -> None:
    job = Job()
    await job.stops(1, EXITED)
    await job.session.interrupt()
    assert await job.stop() == ([0, 2], [1, 0, 2])


@pytest.mark.parametrize("detail", ["0", "3"])
async def test_not_beyond_an_exit_that_others_may_wait_for(detail: str) -> None:
    job = Job()
    job.rank[2].left = detail == "3"  # but that is no good end
    await job.stops(1, EXITED, detail)
    assert await job.stop() == ([1], [0, 1, 2])


async def test_wherever_the_others_are_with_to_end() -> None:
    job = Job(to_end=True)
    job.rank[0].left = job.rank[2].left = False
    for rank in (1, 0, 2):
        await job.stops(rank, EXITED)
    assert await job.stop() == ([1, 0, 2], [1, 0, 2])


async def test_not_beyond_a_stop_beside_an_exit() -> None:
    job = Job()
    job.rank[0].own_stop = StopReason.SIGNAL  # just as it is interrupted
    await job.stops(1, EXITED)
    assert (await job.stop())[0] == [0, 1]
