"""Ranks that stop each for itself: `set stop-mode rank`, `wait`."""

from __future__ import annotations

import pytest

from crdebug.base.errors import Refused
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from harness.jobs import session
from harness.programs import build
from harness.talk import Talk


async def test_one_rank_is_looked_at_while_the_others_run() -> None:
    ends = ["--rank", 1, "--how", "segv", "--step", 4]
    async with session(build("dies"), *ends, ranks=3, settings=Settings(record=True)) as job:
        talk = Talk(job)
        await talk.all(["barrier work_step", "set stop-mode rank", "[0] break exchange"])
        assert await talk("continue") == "[0-2] running"
        assert (await talk("[0] wait")).startswith("rank 0 hit breakpoint 2: exchange at ")
        # the others are where rank 0 keeps them, and run
        assert await talk("[1-2] wait 0.01") == "[1-2] still running"
        assert job.running == RankSet.of([1, 2])
        assert await talk("print my_rank") == "[1-2] running\n[0] = 0"
        assert (await talk("[0] finish")).startswith("rank 0 returned to main at ")
        assert (await talk("next")).startswith("[1-2] running\n[0] ")
        for refused in ("checkpoint", "restart", "[0] goto tick 1", "[0] reverse-step", "detach"):
            with pytest.raises(Refused, match=r"must be stopped|needs stopped ranks|the job runs"):
                await talk(refused)
        # one of them is stopped, and looked at
        await talk("[1] interrupt")
        assert "rank 1 was interrupted" in await talk("[1] wait")
        assert await talk("[1-2] print my_rank") == "[2] running\n[1] = 1"
        assert await talk("continue") == "[2] running\n[0-1] running"
        # breakpoints come and go while they run, and go on running
        assert "rank 0 hit breakpoint 2" in await talk("[0] wait")
        assert "breakpoint 3 on [1-2]: work_step at " in await talk("[1-2] tbreak work_step")
        assert job.running == RankSet.of([1, 2])
        await talk.all(["delete 2", "[0] continue"])
        assert "ranks 1-2 hit breakpoint 3" in await talk("[1-2] wait")
        await talk("[1-2] continue")
        # it crashes alone
        assert (await talk("[1] wait")).startswith("rank 1 got SIGSEGV: die at ")
        assert await talk("[0,2] wait 0.01") == "[0,2] still running"
        # and all are stopped again
        await talk("interrupt")
        said = await talk("wait")  # one line, unless they happen to be at different lines
        together = "ranks 0,2 were interrupted" in said
        assert together or all(f"rank {rank} was interrupted" in said for rank in (0, 2)), said
        assert not job.running
        assert await talk("[1] print step") == "[1] = 4"
        assert "(in the past)" not in (await talk("when"))
