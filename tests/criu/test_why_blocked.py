"""why-blocked at the prompt, and crdebug why in the shell, of a job that hangs."""

from __future__ import annotations

import asyncio
import re

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused
from crdebug.base.ranks import RankSet
from crdebug.commands.context import Context
from crdebug.commands.standard import standard
from crdebug.session import Session
from crdebug.ui.render import render
from harness import cli
from harness.jobs import JOB, session
from harness.programs import build
from harness.travel import history, recorded


async def said(job: Session, line: str) -> list[str]:
    return render(await standard().run(Context(job), line)).splitlines()


async def run_until_it_hangs(job: Session) -> None:
    """Until the three ranks stand in their barrier, and the fourth in its receive."""
    clocks = history(job).traveller.recorded.clocks

    def hangs() -> bool:
        calls = [doing.call for each in clocks() if (doing := each.read().doing)]
        return calls == ["MPI_Barrier"] * 3 + ["MPI_Recv"]

    running = asyncio.create_task(job.resume(job.ranks))
    await Deadline(60).until(hangs, "the job to hang")
    await job.interrupt()
    await running


async def test_of_a_recorded_job_it_is_proved() -> None:
    async with recorded(build("hangs"), "--mode", "member", ranks=4) as job:
        await run_until_it_hangs(job)
        lines = await said(job, "why-blocked")
        assert [each.partition(" (")[0] for each in lines[:2]] == [
            "0-2 wait in MPI_Barrier",
            "3 waits in MPI_Recv from 0, tag 7",
        ]
        assert lines[2:] == [
            "0 → 3 → 0: a deadlock, whatever else happens",
            "1-2 can never go on either",
        ]
        assert await said(job, "[3] why-blocked") == lines[1:]
        shell = (await cli.crdebug("why", JOB)).stdout.splitlines()
        assert lines[2] in shell, shell
        assert any(each.startswith("3 waits in MPI_Recv from 0, tag 7 (hangs.c:") for each in shell)
        await history(job).goto_tick(0, 3)
        with pytest.raises(Refused, match="the job is in its past"):
            await job.why(job.ranks)


async def test_of_one_without_a_record_the_stacks_say_perhaps() -> None:
    async with session(build("hangs"), "--mode", "computes", ranks=4) as job:
        await job.add_breakpoint(RankSet.of([3]), "compute")
        await job.resume(job.ranks)
        lines = await said(job, "why-blocked")
        assert lines[-2:] == [
            "3 is not in MPI: perhaps the others wait for it",
            "(from the stacks: this job's MPI calls are not recorded)",
        ], lines


async def test_what_was_wrong_is_told_at_the_end_of_the_job() -> None:
    async with recorded(build("errors"), "--mode", "root", ranks=4) as job:
        await job.run_on(job.ranks)
        await job.job_end()
        title, line = await said(job, "check")
        assert title == "1 is wrong:"
        assert re.fullmatch(
            r"  \[3\] MPI_Bcast \(errors.c:\d+\) has root 3, but root 0 in "
            r"MPI_Bcast \(errors.c:\d+\) of rank 0; 'goto tick 2 on 3'",
            line,
        ), line
        assert await said(job, "[1] check") == ["nothing wrong is on record"]
