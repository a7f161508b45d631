"""Back from where a rank ends badly: the replay stops before that, and no rank is lost."""

from __future__ import annotations

import pytest

from crdebug.base.errors import Refused
from crdebug.base.events import StopReason
from crdebug.base.ranks import RankSet
from crdebug.session import Session
from harness.programs import build
from harness.travel import history, recorded

ONE = RankSet.of([1])
STEP = 20  # in which rank 1 ends


async def place(job: Session) -> tuple[str, str, int]:
    """The function, the value of last_words, and the line of rank 1."""
    frames = (await job.backtrace(ONE)).values[1]
    at = next(frame.location for frame in frames if frame.location.file.endswith("dies.c"))
    return at.function, (await job.evaluate(ONE, "last_words")).values[1], at.line


@pytest.mark.parametrize(
    ("how", "signal"),
    [
        ("segv", "SIGSEGV"),
        pytest.param("abort", "SIGABRT", marks=pytest.mark.sweep),
        pytest.param("fpe", "SIGFPE", marks=pytest.mark.sweep),
    ],
)
async def test_what_changed_last_before_a_crash_and_the_steps_before_it(
    how: str, signal: str
) -> None:
    options = ("--how", how, "--rank", 1, "--step", STEP, "--delay-us", 0)
    async with recorded(build("dies"), *options, ranks=2) as job:
        past = history(job)
        for again in range(2):
            stop = await job.resume(job.ranks)
            assert [(each.reason, each.detail) for each in stop.cause] == [
                (StopReason.SIGNAL, signal)
            ]
            moment = await past.last("last_words", 1)
            assert moment.note.startswith("last_words has just been changed here"), moment.note
            function, value, line = await place(job)
            assert (function, value) == ("die", str(STEP))
            await past.reverse("step", 1)
            function, value, before = await place(job)
            assert (function, value) == ("die", "0")
            assert before < line
            if not again:
                # The others can go back too, though this rank never reaches its next call.
                moment = await past.goto_tick(0, 9)
                assert moment.tick == 9


async def test_where_its_stack_has_overflown_a_rank_is_spared_a_checkpoint() -> None:
    options = ("--how", "overflow", "--rank", 1, "--step", STEP, "--delay-us", 0)
    async with recorded(build("dies"), *options, ranks=2) as job:
        past = history(job)
        stop = await job.resume(job.ranks)
        assert [each.detail for each in stop.cause] == ["SIGSEGV"]
        for _ in range(2):
            with pytest.raises(Refused, match=r"no room on the stack of thread \d+ \(dies\)"):
                await job.checkpoint()
        assert (await job.evaluate(ONE, "step")).values[1] == str(STEP)  # it is still there
        moment = await past.goto_tick(1, 9)
        assert moment.tick == 9
        await job.checkpoint()
        stop = await job.resume(job.ranks)
        assert [each.detail for each in stop.cause] == ["SIGSEGV"]


@pytest.mark.parametrize("how", ["exit", "kill"])
async def test_back_from_a_rank_that_has_ended_in_the_piece(how: str) -> None:
    options = ("--how", how, "--rank", 1, "--step", STEP, "--delay-us", 0)
    async with recorded(build("dies"), *options, ranks=2) as job:
        past = history(job)
        there = await job.add_breakpoint(ONE, "die")
        await job.resume(job.ranks)
        await job.delete_breakpoint(there.number)
        await job.resume(job.ranks)
        for rank in (0, 1):
            moment = await past.goto_tick(rank, 11)
            assert moment.tick == 11
        await job.add_breakpoint(ONE, "die")
        await job.resume(job.ranks)
        moment = await past.reverse("next", 1)
        assert (await place(job))[0] == "work_step"


@pytest.mark.parametrize(
    "when", [*(pytest.param(each, marks=pytest.mark.sweep) for each in (STEP, STEP - 1)), 10, 0]
)
async def test_what_changed_last_in_memory_that_lies_elsewhere_after_a_restart(when: int) -> None:
    """when: the step of the change. 0: before the first."""
    async with recorded(build("moves"), "--when", when, "--steps", STEP, ranks=2) as job:
        past = history(job)
        stop = await job.resume(job.ranks)
        assert stop.cause[0].detail == "SIGSEGV", stop
        assert (await job.evaluate(ONE, "cells[0]")).values[1] == str(when or -1)
        moment = await past.last("cells[0]", 1)
        assert moment.note.startswith("cells[0] has just been changed here, from ")
        (inner, *_) = (await job.backtrace(ONE)).values[1]
        assert inner.location.function == ("change" if when else "main")
        told = [(await job.evaluate(ONE, each)).values[1] for each in ("step", "cells[0]")]
        assert told == [str(when), str(when or -1)]
