"""Ranks that need others: steps that would never end, and barriers."""

from __future__ import annotations

from pathlib import Path

import pytest

from crdebug.base.errors import BadInput
from crdebug.base.events import StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.session.waiting import HeldUp, StepOthers
from harness.jobs import session
from harness.programs import build
from harness.talk import Talk

PROGRAMS = Path(__file__).parents[1] / "programs"
FIRST, OTHERS = RankSet.of([0]), RankSet.of([1, 2])


@pytest.mark.parametrize("record", [True, False])
async def test_a_step_that_waits_for_stopped_ranks(record: bool) -> None:
    settings = Settings(record=record)
    async with session(build("threads"), "--steps", 30, ranks=3, settings=settings) as job:

        async def begin() -> None:
            job.patience = 60.0
            assert (await job.barrier(job.ranks, "exchange")).there == job.ranks
            job.patience = 1.0

        # a script, which cannot be asked
        await begin()
        with pytest.raises(HeldUp) as caught:
            await job.finish(FIRST)
        told = caught.value
        assert (told.ranks, told.others) == (FIRST, OTHERS)
        assert str(told).startswith(
            "rank 0: finish is still running after 1 s: rank 0 is waiting inside MPI while "
            "ranks 1-2 are stopped ("
        )
        assert not job.running
        # a user who can be asked says yes; or has chosen beforehand
        asked: list[str] = []

        async def ask(question: str) -> bool:
            asked.append(question)
            return True

        await begin()
        if record:
            job.ask = ask
        else:
            job.step_others = StepOthers.RUN
        stop = await job.finish(FIRST)
        ends = "ranks 1-2 are stopped. Run them too?"
        assert [each.endswith(ends) for each in asked] == ([True] if record else [])
        assert [(each.rank, each.reason) for each in stop.cause] == [(0, StopReason.FINISH)]
        assert {each.reason for each in stop.stops if each.rank in OTHERS} == {StopReason.FOLLOWED}


async def test_barriers() -> None:
    ends = ["--rank", 1, "--how", "segv", "--step", 4]
    async with session(build("dies"), *ends, ranks=3, settings=Settings(record=True)) as job:
        job.patience = 60.0
        talk = Talk(job)
        with pytest.raises(BadInput, match="ranks 0-2: there is no 'nowhere' that ranks could"):
            await job.barrier(job.ranks, "nowhere")
        await talk("[0,2] break work_step")  # which does not keep ranks from coming there
        said = await talk("barrier work_step")
        assert said.startswith("ranks 0-2 are at the barrier\n  [0-2] work_step at ")
        await talk("delete")
        assert await talk("print step") == "[0-2] = 1"
        assert await talk("info breakpoints") == "there are no breakpoints"
        # one is ahead of the others: where it waits for them they go on to there once more
        lines = (PROGRAMS / "common.h").read_text().splitlines()
        line = next(n for n, text in enumerate(lines, 1) if "CHECK(sum ==" in text)
        await talk.all(["[0] tbreak work_step", f"[1-2] tbreak common.h:{line}"])
        await talk.all(["set stop-mode rank", "continue", "wait", "set stop-mode job"])
        assert await talk("print step") == "[1-2] = 1\n[0] = 2"
        job.patience = 2.0
        assert (await talk("barrier work_step")).startswith("ranks 0-2 are at the barrier\n")
        assert await talk("print step") == "[0-2] = 3"
        # the others are not let run: one cannot come without them
        job.patience = 1.0
        said = await talk("[0] barrier work_step")
        assert said.startswith("rank 0 did not\n")
        job.patience = 60.0
        await talk("barrier work_step")
        said = await talk("barrier report")
        first, second = said.splitlines()[:2]
        assert first == "ranks 0-2 did not"
        assert second.startswith("rank 1 got SIGSEGV: die at ")
