"""Branches of history: the past is changed, and both futures stay."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, Refused
from crdebug.base.events import JobSays
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.detached import jobs
from crdebug.job.directory import JobDirectory
from crdebug.node import proc
from crdebug.session import Session
from crdebug.timeline.branches import MAIN
from crdebug.travel.restore_points import StartOfHistory
from harness import looks
from harness.cli import crdebug
from harness.faults import moves_on
from harness.jobs import JOB, Heard, bare_job, run_to_end
from harness.programs import build
from harness.talk import said
from harness.travel import ONE as EVERY
from harness.travel import RECORDED, history, recorded, run_to

ROUNDS, RANKS = 8, 3
ONE = RankSet.of([1])
VALUES = ("total", "order", "knob")  # libc has a function step, too


async def state(job: Session, expressions: Sequence[str] = VALUES) -> dict[str, dict[int, str]]:
    """Values by expression and rank."""
    told = {each: await job.evaluate(job.ranks, each) for each in expressions}
    assert not any(each.errors for each in told.values())
    return {each: dict(answers.values) for each, answers in told.items()}


async def to_end(job: Session) -> dict[str, dict[int, str]]:
    """Run until rank 0 has everybody's report; returns the state of all ranks.

    No rank is kept at a breakpoint meanwhile: others may need its progress in MPI.
    """
    await run_to(job, 0, "MPI_Finalize")
    return await state(job)


async def into_the_past(job: Session) -> dict[str, dict[int, str]]:
    """Run to the end, and go back to the middle. Returns the state at the end."""
    await run_to(job, 1, "moment", "step == 2")
    first = await to_end(job)
    past = history(job)
    await past.goto_tick(1, past.traveller.recorded.tails()[1] // 2 - 3 * (ROUNDS // 2))
    return first


async def test_each_future_of_a_changed_past_stays_as_it_was(thorough: bool) -> None:
    heard = Heard()
    async with recorded(
        build("futures"), "--rounds", ROUNDS, "--jitter-us", 3000, ranks=RANKS, heard=heard
    ) as job:
        past = history(job)
        first = await into_the_past(job)
        assert past.branching.current == MAIN
        await job.gdb(ONE, "set var knob = 7")
        second = await to_end(job)
        assert past.branching.current == "branch-1"
        said = [each.text for each in heard.events if isinstance(each, JobSays)]
        assert [
            text for text in said if "started branch branch-1 here" in text and "main" in text
        ], said
        assert second["total"] != first["total"]
        assert second["knob"] == {**first["knob"], 1: "7"}
        here = past.traveller.recorded.cut()

        compared = await past.compare("total", (MAIN, "branch-1"))
        told = {each.branch: dict(each.answers.values) for each in compared}
        assert told == {MAIN: first["total"], "branch-1": second["total"]}
        assert past.traveller.recorded.cut() == here, "the job stays where it is"
        assert await state(job) == second

        for _ in range(2 if thorough else 1):
            await past.switch(MAIN, 0)
            assert past.branching.current == MAIN
            assert await state(job) == first
            await past.switch("branch-1", 0)
            assert await state(job) == second

        compared = await past.compare("order", ("branch-1", MAIN))
        told = {each.branch: dict(each.answers.values) for each in compared}
        assert told == {MAIN: first["order"], "branch-1": second["order"]}


async def test_each_branch_keeps_its_own_order_of_messages(thorough: bool) -> None:
    """Without a change: MPI makes its choices again, until the order is different."""
    async with recorded(
        build("futures"), "--rounds", ROUNDS, "--jitter-us", 3000, ranks=RANKS
    ) as job:
        past = history(job)
        ends = {MAIN: await into_the_past(job)}
        tick = past.now(1).tick
        name = await past.branch("other")
        assert name == "other"
        ends[name] = await to_end(job)
        for number in range(3):
            if any(end["order"] != ends[MAIN]["order"] for end in ends.values()):
                break
            await past.goto_tick(1, tick)
            name = await past.branch(f"another-{number}")
            ends[name] = await to_end(job)
        assert len({end["order"][0] for end in ends.values()}) > 1
        for name, end in [*ends.items()] * (2 if thorough else 1):
            if name != past.branching.current:
                await past.switch(name, 0)
            await past.goto_tick(1, tick + 4)
            assert past.branching.current == name
            assert await to_end(job) == end


async def test_back_on_a_branch_and_before_it() -> None:
    async with recorded(build("futures"), "--rounds", ROUNDS, ranks=RANKS) as job:
        past = history(job)
        first = await into_the_past(job)
        start = past.now(1)
        await job.evaluate(ONE, "turn(5)")
        second = await to_end(job)
        assert second["knob"][1] == "6"

        await past.goto_tick(1, start.tick + 3)
        assert past.branching.current == "branch-1"
        assert (await state(job))["knob"][1] == "6", "the change is part of the branch"
        await past.goto_tick(1, start.tick)
        assert (await state(job))["knob"][1] == "6", "it begins after the change"
        assert past.traveller.recorded.cut()[1] == start.cut[1]
        moment = await past.reverse("next", 1, 100)
        assert "branch-1 begins here" in moment.note or "start of history" in moment.note
        assert (await state(job))["knob"][1] in ("1", "6")

        await past.goto_tick(1, start.tick - 3)
        assert past.branching.current == MAIN, "before its beginning there is no branch-1"
        assert (await state(job))["knob"][1] == "1"
        assert await to_end(job) == first
        await past.switch("branch-1", 1)
        assert await state(job) == second

        # A search for the first moment goes as far back as it holds.
        found, moment = await past.bisect("rank 1: knob == 6", 1)
        assert (found.tick, past.branching.current) == (start.tick + 1, "branch-1")
        assert found.note == "branch branch-1 begins before that call"
        found, moment = await past.bisect("rank 1: step >= 1", 1)
        assert past.branching.current == MAIN
        assert moment.tick == found.tick is not None
        assert (await job.evaluate(ONE, "step")).values[1] == "1"
        await past.goto_tick(1, found.tick - 1)
        assert (await job.evaluate(ONE, "step")).values[1] == "0"


async def test_a_checkpoint_and_a_mark_of_another_branch_lead_there() -> None:
    async with recorded(build("futures"), "--rounds", ROUNDS, ranks=RANKS) as job:
        past = history(job)
        await run_to(job, 1, "moment", "step == 1")
        first_taken = await job.checkpoint("on main")
        first = await into_the_past(job)
        await past.mark("middle", 1)
        there = await state(job, ("total", "knob"))
        await job.gdb(RankSet.of([0, 2]), "set var knob = 3")
        taken = await job.checkpoint("on the branch, before it has run on")
        assert past.branching.current == "branch-1"
        second = await to_end(job)

        await job.restart(first_taken.number)
        assert past.branching.current == MAIN
        assert await to_end(job) == first
        await job.restart(taken.number)
        assert past.branching.current == "branch-1"
        assert (await state(job))["knob"] == {0: "3", 1: "1", 2: "3"}
        assert await to_end(job) == second
        await past.goto_mark("middle")
        assert past.branching.current == MAIN
        assert await state(job, ("total", "knob")) == there
        assert await to_end(job) == first


async def test_a_branch_of_a_branch_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    async with recorded(build("futures"), "--rounds", ROUNDS, ranks=RANKS) as job:
        past = history(job)
        ends = {MAIN: await into_the_past(job)}
        for knob, name in ((2, "branch-1"), (3, "branch-2")):
            await past.goto_tick(1, past.now(1).tick + (0 if knob == 2 else -5))
            await job.gdb(ONE, f"set var knob = {knob}")
            ends[name] = await to_end(job)
        assert [branch.parent for branch in past.branching.branches.known.values()] == [
            None,
            MAIN,
            "branch-1",
        ]
        assert len({end["total"][1] for end in ends.values()}) == 3
        for name in (MAIN, "branch-1", "branch-2"):
            await past.switch(name, 1)
            assert await state(job) == ends[name]
        with pytest.raises(BadInput, match="already"):
            await past.branch(MAIN)
        with pytest.raises(BadInput, match="not a name"):
            await past.branch("../x")
        with pytest.raises(BadInput, match="there is no branch 'x'"):
            await past.switch("x", 1)
        with pytest.raises(BadInput, match="there is no branch 'x'"):
            await past.compare("total", (MAIN, "x"))
        assert past.branching.current == "branch-2"

        monkeypatch.setattr("crdebug.node.memory.available", lambda: 1 << 20)
        with pytest.raises(Refused, match="MiB of memory"):
            await past.compare("total", (MAIN, "branch-2"))
        assert await state(job) == ends["branch-2"]
        assert not (JobDirectory(job.job).path / "beside").exists()


async def test_a_branch_that_cannot_be_brought_back_leaves_the_job_where_it_is() -> None:
    async with recorded(build("futures"), "--rounds", ROUNDS, ranks=RANKS) as job:
        past = history(job)
        await into_the_past(job)
        await job.gdb(ONE, "set var knob = 2")
        second = await to_end(job)
        kept = JobDirectory(job.job)
        for number in kept.history.numbers():
            if kept.history.load(number).branch == MAIN:
                shutil.rmtree(kept.history.path(number))
        with pytest.raises(StartOfHistory, match="branch main"):
            await past.switch(MAIN, 1)
        assert past.branching.current == "branch-1"
        assert await state(job) == second
        await past.goto_tick(1, past.now(1).tick - 3)
        assert await to_end(job) == second


async def on_to_end(job: Session) -> dict[int, str]:
    """Let all ranks run until rank 0 has everybody's report; returns what each rank has seen.

    No rank is kept at a breakpoint meanwhile: others may need its progress in MPI.
    """
    await run_to(job, 0, "MPI_Finalize")
    return dict((await job.evaluate(job.ranks, "seen")).values)


_MORE = [pytest.param(name, marks=pytest.mark.sweep) for name in ("master", "persistent")]


@pytest.mark.parametrize("program", ["wildcard", *_MORE])
async def test_a_branch_may_begin_anywhere(program: str) -> None:
    """Messages on their way there, posted or half done, go on; the programs check themselves."""
    chance = random.Random(program)
    async with recorded(build(program), "--rounds", 2, "--jitter-us", 1500, ranks=3) as job:
        past = history(job)
        await run_to(job, 0, "note")
        seen = {MAIN: await on_to_end(job)}
        ends = {MAIN: past.now(0).tick}
        for tick in chance.sample(range(5, past.now(0).tick - 5), 2):
            if past.branching.current != MAIN:
                await past.switch(MAIN, 0)
            await past.goto_tick(0, tick)
            name = await past.branch("")
            # No rank has made a call of its own on the branch when the job goes back.
            await past.goto_tick(0, tick)
            assert past.branching.current == name
            seen[name] = await on_to_end(job)
            ends[name] = past.now(0).tick
        for name in (past.branching.current, MAIN):
            if name != past.branching.current:
                await past.switch(name, 0)
            # Rank 0 asks for messages until one is there: on a branch it may make fewer calls.
            begins = past.traveller.position.branch_start[0].tick
            await past.goto_tick(0, min(begins + 5, ends[name]))
            assert await on_to_end(job) == seen[name]
        assert await run_to_end(job) == 0


async def test_the_commands() -> None:
    async with recorded(build("futures"), "--rounds", ROUNDS, ranks=RANKS) as job:
        past = history(job)
        await into_the_past(job)
        assert await said(job, "info branches") == ["* main"]
        await said(job, "[2] gdb set var knob = 4")
        await said(job, "[1] next")
        lines = await said(job, "info branches")
        assert lines[0] == "  main"
        assert lines[1].startswith("*   branch-1  left main at tick ")
        assert lines[1].endswith("set var knob = 4")
        await to_end(job)
        assert await said(job, "compare knob main branch-1") == [
            "branch main:",
            "  [0-2] = 1",
            "branch branch-1:",
            "  [0-1] = 1",
            "  [2] = 4",
        ]
        with pytest.raises(BadInput, match="two branches"):
            await said(job, "compare knob main")
        moved = await said(job, "switch main")
        assert past.branching.current == MAIN
        assert any("on branch main" in line for line in moved), moved
        lines = await said(job, "branch mine")
        assert lines[-1].startswith("*   mine  left main at tick"), lines


async def test_a_job_that_is_left_in_the_past_runs_on(tmp_path: Path) -> None:
    """The clocks hold ranks there until a debugger resumes them; by then none is attached.

    The program opens no files while it runs: ways back by steps cannot cross that (docs/limits.md).
    """
    script = tmp_path / "script"
    back = ("break work_step", "continue", "continue", "reverse-continue")
    endings = (("detach",), ("checkpoint", "continue", "continue", "restart", "detach"))
    settings = Settings(record=None)
    async with bare_job(
        build("memory"), "--steps", 10**9, "--delay-us", 1000, ranks=2, settings=settings
    ):
        for ending in endings:
            await looks.reach(5)
            script.write_text("\n".join((*back, *ending, "")))
            await crdebug("attach", "--batch", "-x", script, JOB)
            await moves_on()
        await jobs.restart(f"{JOB}:1", lambda event: None)
        await moves_on()
    await jobs.delete(f"{JOB}:1")


async def test_release_resumes_a_rank_that_holds_because_its_call_is_not_the_recorded_one() -> None:
    """A job that is left in the past repeats its record, and nobody is there to hear that it
    cannot."""
    async with bare_job(build("relay"), "--rounds", 10**9, ranks=2, settings=RECORDED):
        await looks.reach(5)
        job = await Session.attach(JOB, settings=RECORDED)
        past = history(job)
        past.every = EVERY
        for _ in range(4):
            await run_to(job, 1, "receive_from")
        await past.goto_tick(1, past.traveller.recorded.cut()[1] // 2 - 4)
        shim = looks.shims()[1]
        # without crdebug's knowledge: it knows of another branch
        proc.write_memory(shim.pid, looks.address(shim, "alternate"), (1).to_bytes(8, "little"))
        await job.detach()

        async def state() -> str:
            return (await jobs.list_jobs())[0].state

        limit = Deadline(60)
        while (found := await state()) != "held":
            assert limit.left > 0, (found, [looks.number(each, "turns") for each in looks.shims()])
        released = await jobs.release(JOB)
        assert released[0] == "rank 1 let go" and "leave the recorded course" in released[1]
        await moves_on()
        assert await state() == "running"
