"""Snapshots in memory beside checkpoints, which cannot be taken while the snapshots' processes
exist."""

from __future__ import annotations

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused
from crdebug.debugger.job_snapshot import Snapshots
from harness.exact import look
from harness.jobs import Heard, run_to_end, session
from harness.mpirun import reference
from harness.programs import build


def soon() -> Deadline:
    return Deadline(60.0)


def gone(name: str) -> tuple[str, ...]:
    return tuple(f"rank {rank}: there is no snapshot '{name}' of this process" for rank in range(2))


async def test_a_checkpoint_leaves_the_latest_snapshot_and_a_restart_none() -> None:
    program, heard = build("threads"), Heard()
    async with session(program, "--steps", 40, "--rest-us", 0, ranks=2, heard=heard) as job:
        await job.add_breakpoint(job.ranks, "work_step")
        await job.resume(job.ranks)
        snapshots = Snapshots(job.group)
        await snapshots.keep("before", soon())
        await job.resume(job.ranks)
        taken = await snapshots.keep("here", soon())
        assert all(each.frozen for each in taken.ranks.values())
        before = await look(job)
        for _ in range(4):
            await job.resume(job.ranks)
        assert snapshots.has("before")
        checkpoint = await job.checkpoint()
        there = await look(job)
        assert not snapshots.has("before")
        assert await snapshots.obstacles("before", soon()) == gone("before")
        assert snapshots.has("here")
        await snapshots.put_back("here", soon())
        before.expect_same(await look(job), "a checkpoint and a way back")
        await job.checkpoint()  # of a process that was put back
        before.expect_same(await look(job), "a checkpoint in the past")
        for _ in range(3):
            await job.resume(job.ranks)

        await job.restart(checkpoint.number)
        assert not there.differences_after_restart(await look(job))
        assert await snapshots.obstacles("here", soon()) == gone("here")
        with pytest.raises(Refused, match="no snapshot 'here' of this process"):
            await snapshots.put_back("here", soon())
        before = await look(job)
        await snapshots.keep("here", soon())
        for _ in range(3):
            await job.resume(job.ranks)
        await snapshots.put_back("here", soon())
        before.expect_same(await look(job), "a restart and a way back")
        assert await run_to_end(job) == 0
    assert heard.text() == reference(program, "--steps", 40, ranks=2)
