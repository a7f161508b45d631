"""verify: a data race is named by its variable; a clean program is the same each time."""

from __future__ import annotations

import re

import pytest

from crdebug.base.errors import BadInput
from harness.programs import build
from harness.talk import said
from harness.travel import history, recorded, run_to

NAMES = {"global": "total", "local": "counted in main", "heap": "*many in main"}


@pytest.mark.parametrize(
    "mode", ["global", *(pytest.param(each, marks=pytest.mark.sweep) for each in ("local", "heap"))]
)
async def test_the_variable_of_a_race_is_named(mode: str) -> None:
    async with recorded(build("racy"), "--mode", mode, ranks=2) as job:
        await job.run_on(job.ranks, to_end=True)
        lines = await said(job, "verify")
        assert len(lines) > 1, lines
        title, first, *others = lines
        assert re.fullmatch(
            r"from .* to call \d+ of rank \d, the second time was not as the first:", title
        ), title
        assert first.startswith(f"  [1] {NAMES[mode]}"), first
        assert not others, others


async def test_what_a_program_does_not_initialise_is_no_difference() -> None:
    """MPI leaves something else on the stack each time, for it waits as long as it takes."""
    async with recorded(build("racy"), "--mode", "garbage", "--rounds", 200, ranks=3) as job:
        await job.run_on(job.ranks, to_end=True)
        told = await said(job, "verify")
        assert "both times the same" in told[0], told


async def test_a_clean_program_is_the_same_each_time(thorough: bool) -> None:
    async with recorded(build("racy"), "--rounds", 20000, ranks=2) as job:
        await run_to(job, 0, "counts", "step == 5")
        await job.checkpoint()
        here = history(job).now(0)
        for _ in range(10 if thorough else 1):
            (told,) = await said(job, "verify")
            assert re.fullmatch(
                r"from .* to call \d+ of rank \d, both times the same: (\d+) variables, "
                r"compared at \d+ places",
                told,
            ), told
        assert history(job).now(0) == here
        with pytest.raises(BadInput, match="no MPI call is on record after that"):
            await said(job, "verify 1")
        with pytest.raises(BadInput, match="there is no checkpoint 7 on this branch"):
            await said(job, "verify 7")
        await job.run_on(job.ranks, to_end=True)
        (told,) = await said(job, "verify 1")
        assert "both times the same" in told and told.startswith("from checkpoint 1 to"), told
