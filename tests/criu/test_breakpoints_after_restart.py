"""Breakpoints where the ranks are put: by a restart, and by going back."""

from __future__ import annotations

from harness.programs import build
from harness.talk import Talk
from harness.travel import recorded


async def test_a_breakpoint_where_the_rank_is_put_has_been_hit_already() -> None:
    async with recorded(build("dies"), "--step", 0, ranks=2) as job:
        talk = Talk(job)
        await talk.all(["barrier exchange", "[0] break work_step", "continue"])
        assert await talk("[0] print step") == "[0] = 2"
        await talk("checkpoint")
        for verb in ("[0] next", "[0] step", "[0] stepi", "continue"):
            await talk("restart")
            said = await talk(verb)
            again = "rank 0 hit breakpoint 2: work_step at "
            assert said.startswith(again if verb == "continue" else "[0] work_step at "), verb
        assert await talk("[0] print step") == "[0] = 3"
        (point,) = job.breakpoints()
        assert point.hits == 2
        # also where it was taken back by steps, or in memory
        await talk.all(["[0] next", "[0] reverse-next"])
        assert (await talk("[0] next")).startswith("[0] work_step at ")
        await talk.all(["[0] reverse-next", "mark here", "[0] next", "goto here"])
        assert (await talk("[0] next")).startswith("[0] work_step at ")
