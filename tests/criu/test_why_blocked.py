"""why-blocked at the prompt, and crdebug why in the shell, of a job that hangs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, Refused
from crdebug.base.events import JobSays
from crdebug.base.ranks import RankSet
from crdebug.job.directory import JobDirectory
from crdebug.session import Session
from harness import cli
from harness.jobs import JOB, Heard, session
from harness.page import data_of
from harness.programs import build
from harness.talk import said
from harness.travel import history, recorded, run_to


async def run_until_it_hangs(job: Session) -> None:
    """Until the three ranks stand in their barrier, and the fourth in its receive."""
    await run_until_all_are_in(job, ["MPI_Barrier"] * 3 + ["MPI_Recv"])


async def run_until_all_are_in(job: Session, calls: Sequence[str]) -> None:
    clocks = history(job).traveller.recorded.clocks

    def hangs() -> bool:
        return [doing.call for each in clocks() if (doing := each.read().doing)] == [*calls]

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


async def test_a_damaged_record_of_one_rank_leaves_the_others_theirs() -> None:
    async with recorded(build("hangs"), "--mode", "member", ranks=4) as job:
        await run_until_it_hangs(job)
        whole = await said(job, "why-blocked")
        with (JobDirectory(JOB).run(1) / "time/1").open("r+b") as log:
            log.seek(8)
            log.write(b"\xff" * 8)
        *lines, last = await said(job, "why-blocked")
        assert lines[:3] == whole[:3]  # the deadlock is proved as before
        assert whole[3:] == ["1-2 can never go on either"]
        assert lines[3:] == ["2 can never go on either", "1: perhaps it cannot go on"]
        assert re.match(r"what it did before is not known: rank 1: .*/1 is damaged: its hea", last)


async def test_the_history_knows_the_calls_that_ranks_are_in(tmp_path: Path) -> None:
    program = build("hangs")
    async with recorded(program, "--mode", "member", "--rounds", 0, ranks=4) as job:
        await run_until_it_hangs(job)
        waits = (await said(job, "why-blocked"))[:2]
        assert (await said(job, "info timeline"))[-2:] == waits
        (_, message) = await said(job, "info messages")
        assert re.fullmatch(
            r"awaited  0     3 \(tick \d+\)  7 +world +receive at \S+hangs.c:\d+", message
        ), message
        told = f"rank {waits[1]}"
        with pytest.raises(BadInput, match=re.escape(f"received nothing so far; {told}")):
            await said(job, "[3] goto-sender")
        with pytest.raises(BadInput, match=re.escape(f"sent nothing so far; {told}")):
            await said(job, "[3] goto-receiver")
        page = tmp_path / "page.html"
        await said(job, f"timeline --html {page}")
        data = data_of(page)
        last = [calls[-1] for calls in data["calls"]]
        names = [data["names"][call[2]].partition(" ") for call in last]
        assert [name for name, *_ in names] == ["MPI_Barrier"] * 3 + ["MPI_Recv"]
        assert {rest for _, _, rest in names} == {"(has not returned)"}
        assert all("hangs.c:" in data["names"][call[3]] for call in last)
        # where they stand is inside of these calls
        assert [2 * call[0] - 1 for call in last] == data["here"]


async def test_a_send_that_nobody_asks_for_is_on_its_way() -> None:
    async with recorded(build("hangs"), "--mode", "synchronous", ranks=4) as job:
        await run_until_all_are_in(job, ["MPI_Ssend"] * 4)
        rows = (await said(job, "info messages"))[1:]
        assert [row.split("  ")[0] for row in rows] == ["sent, unmatched"] * 4
        assert all("synchronous at " in row for row in rows), rows


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


async def test_receives_that_could_have_got_another_message_are_told() -> None:
    async with recorded(build("wrong_messages"), "--mode", "two_senders", ranks=3) as job:
        await job.run_on(job.ranks)
        await job.job_end()
        title, line = await said(job, "info races")
        assert title == "1 depends on who comes first:"
        assert re.fullmatch(
            r"  1: \[0\] MPI_Recv \(wrong_messages.c:\d+\) could have got another message, that of "
            r"MPI_Send \(wrong_messages.c:\d+\) of rank [12], instead of that of rank [12]; "
            r"'goto tick 2 on 0'",
            line,
        ), line
        assert (await said(job, "check"))[:2] == [title, line.replace("1: ", "")]
        assert await said(job, "[1-2] info races") == [title, line]


async def test_where_the_order_is_given_there_is_no_race() -> None:
    arguments = ("--mode", "two_senders", "--right", 1)
    async with recorded(build("wrong_messages"), *arguments, ranks=3) as job:
        await job.run_on(job.ranks)
        await job.job_end()
        told = ["no receive or probe could have got another message"]
        assert await said(job, "info races") == told


async def test_a_standstill_is_told_while_the_job_runs_on() -> None:
    heard = Heard()
    async with recorded(build("hangs"), "--mode", "member", ranks=4, heard=heard) as job:
        job.settings.patience = 0.5
        running = asyncio.create_task(job.resume(job.ranks))
        deadlock = "  0 → 3 → 0: a deadlock, whatever else happens"

        def told() -> list[str]:
            return [text for text in standstills(heard) if deadlock in text.splitlines()]

        await Deadline(60).until(lambda: bool(told()), "the notice")
        first = told()[0].splitlines()[0]
        assert first == "no rank has come further in its MPI calls for 0.5 s:"
        await asyncio.sleep(1.5)
        assert len(told()) == 1  # for this standstill
        await job.interrupt()
        await running


async def test_a_job_that_computes_is_not_told_of() -> None:
    heard = Heard()
    async with recorded(build("alone"), "--blocks", 200, ranks=1, heard=heard) as job:
        await run_to(job, 0, "compute")  # MPI_Init may take as long, on a busy machine
        job.settings.patience = 0.3
        await run_to(job, 0, "after")
        assert standstills(heard) == []


def standstills(heard: Heard) -> list[str]:
    says = [event.text for event in heard.events if isinstance(event, JobSays)]
    return [text for text in says if text.startswith("no rank has come further")]
