"""trace, info trace: values are noted where the ranks come by, and nobody stops."""

from __future__ import annotations

import pytest

from crdebug.base.errors import BadInput
from crdebug.base.events import StopReason
from harness.programs import build
from harness.talk import said
from harness.travel import history, recorded, run_to


async def test_values_are_noted_by_hit_and_rank() -> None:
    async with recorded(build("longrun"), ranks=3) as job:
        with pytest.raises(BadInput, match="an expression is missing"):
            await said(job, "trace one_step")
        with pytest.raises(BadInput, match="there is no trace point"):
            await said(job, "info trace")
        set_, *_ = await said(job, "trace one_step, step, my_rank")
        assert set_.startswith("trace point 1 on [0-2]"), set_
        await said(job, "[1] trace one_step, step * 2, no_such_thing if step == 3")
        stop = await run_to(job, 1, "one_step", "step == 5")
        assert {each.reason for each in stop.cause} == {StopReason.BREAKPOINT}
        title, *lines = await said(job, "[1] info trace 1 2")
        assert title == "trace point 1: one_step, step, my_rank"
        hits = int(lines[0].split()[1])
        assert lines[1].split() == ["hit", "ranks", "step", "my_rank"]
        assert lines[-1].split() == [str(hits), "1", "5", "1"]
        assert lines[-2].split() == [str(hits - 1), "1", "4", "1"]
        title, *lines = await said(job, "info trace")
        assert title.startswith("trace point 2: one_step, step * 2, no_such_thing if step == 3")
        assert lines[0] == "[1] 1 hit"
        assert lines[2].startswith("1    1      6         <No symbol"), lines
        told = await said(job, "info breakpoints")
        assert any("trace one_step, step, my_rank" in line for line in told)


async def test_going_back_notes_nothing_and_a_deleted_one_is_gone() -> None:
    async with recorded(build("longrun"), ranks=2) as job:
        await said(job, "trace one_step, step")
        await run_to(job, 0, "one_step", "step == 6")
        before = await said(job, "[0] info trace")
        await history(job).reverse("step", 0)
        await history(job).reverse("next", 0)
        assert await said(job, "[0] info trace") == before
        await job.checkpoint()
        assert await said(job, "[0] info trace") == before
        await said(job, "delete 1")
        with pytest.raises(BadInput, match="there is no trace point"):
            await said(job, "info trace")
