"""What is not recorded is said where it matters."""

from __future__ import annotations

import pytest

from crdebug.errors import Refused
from harness.programs import build
from harness.travel import history, recorded, run_to


async def test_mpi_called_from_two_threads_is_not_recorded_any_more() -> None:
    async with recorded(build("threaded"), ranks=2) as job:
        await run_to(job, 0, "puts")
        with pytest.raises(Refused, match="MPI is called from more than one thread"):
            await history(job).goto_tick(0, 1)


async def test_one_sided_communication_on_the_way_is_told() -> None:
    async with recorded(build("onesided"), ranks=2) as job:
        await run_to(job, 0, "MPI_Finalize")
        past = history(job)
        calls = past.traveller.logs()[0].calls
        before = next(call.tick for call in calls if call.name == "MPI_Win_create") - 1
        assert "inside an epoch" not in (await past.goto_tick(0, before)).note
        inside = next(call.tick for call in calls if call.name == "MPI_Put")
        note = (await past.goto_tick(0, inside)).note
        assert "one-sided communication on the way, which is not recorded" in note
        assert "inside an epoch" in note
        assert "a call holds them up" not in note  # it was known that the fence would
        with pytest.raises(Refused, match="an epoch of one-sided communication is open"):
            await job.checkpoint()
