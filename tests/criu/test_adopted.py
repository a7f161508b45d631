"""Checkpoints of jobs that crdebug did not start: no container, and the shim comes in later."""

from __future__ import annotations

from pathlib import Path

import pytest

from crdebug import jobs
from crdebug.deadline import Deadline
from crdebug.errors import Refused
from crdebug.events import JobSays
from crdebug.node import proc
from crdebug.session import Session
from harness import plain
from harness.exact import Look, look, look_at_strangers
from harness.jobs import Heard
from harness.registers import register_differences

OUTPUT = "rank 0: quiet ok\nrank 1: quiet ok\n"


def differences(before: Look, after: Look, rank: int) -> list[str]:
    """In the registers of a rank."""
    old, new = before.ranks[rank], after.ranks[rank]
    return list(register_differences(old.registers, new.registers))


async def ended(job: plain.Plain, pid: int) -> str:
    """What the job has written, once it has ended; it is nobody's child after a restart."""
    await Deadline(60).until(lambda: not proc.is_alive(pid), "the job to end")
    return job.output.read_text()


async def test_a_job_goes_there_and_back_with_a_debugger_and_without(tmp_path: Path) -> None:
    async with plain.quiet(tmp_path) as (job, _):
        heard = Heard()
        session = await Session.attach(str(job.pid), subscriber=heard)
        before = await look_at_strangers(session)
        taken = await session.checkpoint("one")
        # The shim is in the ranks by now, and nothing shows it but the memory that it takes.
        after = await look(session)
        for rank in session.ranks:
            assert not differences(before, after, rank)
            assert before.ranks[rank].signals == after.ranks[rank].signals
        name = session.job
        assert JobSays(f"from now on this is job {name}") in heard.events
        await session.restart(taken.number)
        again = await look(session)
        told = [line for line in after.differences(again) if "place of the stop" not in line]
        assert not told
        await session.checkpoint("two")
        again.expect_same(await look(session), "a checkpoint")
        await session.detach()

        # Without a debugger, by the PID too; and with somebody in the way.
        third = await jobs.take_checkpoint(str(job.pid), "three", True, heard)
        assert (third.job, third.number, third.debugger) == (name, 3, False)
        assert job.output.read_text() == ""
        for handle in (f"{name}:3", f"{name}:1"):
            await jobs.restart(handle, heard)
            assert {t.tracer for t in proc.threads(job.pid)} == {0}
        plain.let_end(tmp_path)
        assert await ended(job, job.pid) == OUTPUT


async def test_a_rank_without_a_way_in_is_held_by_sigstop(tmp_path: Path) -> None:
    async with plain.quiet(tmp_path, locked=1) as (job, _):
        heard = Heard()
        session = await Session.attach(str(job.pid), subscriber=heard)
        before = await look_at_strangers(session)
        taken = await session.checkpoint()
        said = [event.text for event in heard.events if isinstance(event, JobSays)]
        (lost,) = (text for text in said if "no shim can be put into it" in text)
        assert lost.startswith("rank 1: ") and "seccomp" in lost and "SIGSTOP" in lost
        after = await look_at_strangers(session)
        assert not differences(before, after, 0)
        changed = {line.split()[2] for line in differences(before, after, 1)}
        assert changed <= {"rip", "rax", "orig_rax", "rcx", "r11"}
        with pytest.raises(Refused, match="is under a debugger"):
            await jobs.restart(taken.handle, heard)
        await session.restart(taken.number)
        await session.detach()
        with pytest.raises(Refused, match="rank 1: no shim is in it"):
            await jobs.take_checkpoint(str(job.pid), "", False, heard)
        plain.let_end(tmp_path)
        assert await ended(job, job.pid) == OUTPUT
