"""MPI_Comm_spawn in a recorded job: it works, and children keep out of their parents' records."""

from __future__ import annotations

from crdebug.base.events import JobSays
from harness.jobs import Heard, run_to_end
from harness.programs import build
from harness.travel import history, recorded


async def test_children_are_spawned_and_their_parents_can_still_go_back() -> None:
    heard = Heard()
    async with recorded(build("spawns"), ranks=2, heard=heard) as job:
        assert await run_to_end(job) == 0
        (said,) = (each.text for each in heard.events if isinstance(each, JobSays))
        assert "spawns was spawned (MPI_Comm_spawn): spawned processes are not ranks" in said
        told = sorted(heard.text().splitlines())
        assert told == [f"{who} {rank}: 19" for who in ("child", "parent") for rank in (0, 1)]
        past = history(job)
        logs = past.traveller.recorded.logs()
        assert sorted(logs) == [0, 1]
        for log in logs.values():
            assert [call.name for call in log.calls].count("MPI_Comm_spawn") == 1
