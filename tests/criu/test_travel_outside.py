"""Data from outside MPI differs on a replay, which crdebug reports where it reaches a call."""

from __future__ import annotations

import pytest

from crdebug.base.errors import CrdebugError
from crdebug.base.ranks import RankSet
from harness.programs import build
from harness.travel import history, recorded, run_to


@pytest.mark.parametrize(
    "outside",
    [0, *(pytest.param(each, marks=pytest.mark.sweep) for each in (1, 2))],
    ids=["random", "clock", "cycles"],
)
async def test_a_tag_that_is_not_repeated(outside: int) -> None:
    async with recorded(build("outside"), "--from", outside, ranks=2) as job:
        past = history(job)
        await run_to(job, 0, "MPI_Finalize")
        # the first message is on the way from the checkpoint at the beginning
        with pytest.raises(CrdebugError) as raised:
            await past.goto_tick(0, 3)
        told = str(raised.value)
        assert "rank 0: call 2 of the replay is not the recorded one: MPI_Send with tag " in told
        assert "time, random numbers, data races and other input from outside MPI" in told
        assert raised.value.ranks == RankSet.of([0])
