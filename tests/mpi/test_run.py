"""A job under the debugger, without checkpoints."""

from __future__ import annotations

from crdebug.events import StopReason
from harness.jobs import Heard, run_to_end, session
from harness.mpirun import reference
from harness.programs import build


async def test_all_ranks_stop_at_main_and_at_a_breakpoint_and_run_to_the_end() -> None:
    program = build("threads")
    heard = Heard()
    async with session(program, "--steps", 10, ranks=4, heard=heard) as job:
        assert [info.location.function for info in job.info_ranks() if info.location] == [
            "main"
        ] * 4
        await job.add_breakpoint(job.ranks, "work_step")
        stop = await job.resume(job.ranks)
        assert {each.reason for each in stop.cause} == {StopReason.BREAKPOINT}
        assert await run_to_end(job) == 0
    assert sorted(heard.text().splitlines()) == sorted(
        reference(program, "--steps", 10, ranks=4).splitlines()
    )
