"""A whole session with a newer GDB than the machine's."""

from __future__ import annotations

import pytest

from crdebug.base.events import StopReason
from crdebug.base.ranks import RankSet
from crdebug.node import proc
from harness import looks
from harness.exact import look
from harness.gdbs import NEWER, use_gdb
from harness.jobs import run_to_end
from harness.mpirun import reference
from harness.programs import build
from harness.travel import history, recorded, run_to

ARGUMENTS = (64, 40)


async def test_forth_and_back_with_a_newer_gdb(monkeypatch: pytest.MonkeyPatch) -> None:
    use_gdb("newer", monkeypatch)
    one = RankSet.of([0])
    program = build("heat", flags=["-O0"])
    async with recorded(program, *ARGUMENTS, ranks=2) as job:
        assert any(
            str(NEWER.parents[1]) in word for word in proc.command_line(job.group[0].gdb_pid)
        )
        past = history(job)

        async def here() -> tuple[object, ...]:
            await past.traveller.near.drained()
            frames = (await job.backtrace(one)).values[0]
            places = [(each.location.function, each.location.line) for each in frames]
            values = [(await job.evaluate(one, each)).values[0] for each in ("step", "residual")]
            return past.traveller.recorded.cut()[0], places, values

        await run_to(job, 0, "relax", "step == 5")
        before = await look(job)
        assert len(before.ranks[0].numbers) > 1  # MPI has threads of its own
        taken = await job.checkpoint()
        before.expect_same(await look(job), "a checkpoint")

        places = [await here()]
        for _ in range(6):
            await job.next(one)
            places.append(await here())
        for there in reversed(places[:-1]):
            await past.reverse("next", 0)
            assert await here() == there

        changes = []
        assert not (await job.group.console(one, "watch residual")).errors
        for _ in range(2):
            stop = await job.resume(job.ranks)
            assert {each.reason for each in stop.cause} == {StopReason.WATCHPOINT}
            changes.append(await here())
        await past.reverse("continue", 0)
        assert await here() == changes[0]
        assert not (await job.group.console(one, "delete")).errors

        await job.restart(taken.number)
        assert not before.differences_after_restart(await look(job))
        assert await run_to_end(job) == 0
        assert looks.output() == reference(program, *ARGUMENTS, ranks=2)
