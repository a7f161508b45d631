"""Back line by line over MPI calls, into functions and out of them: the way forward, reversed."""

from __future__ import annotations

import pytest

from crdebug.base.ranks import RankSet
from crdebug.session import Session
from harness.programs import build
from harness.travel import history, recorded, run_to

FOCUS, ONE = 0, RankSet.of([0])
CALLS = 3  # that many MPI calls are gone over

Line = tuple[int, int, str, int | None]


async def line(job: Session) -> Line:
    """The rank's clock, and its depth, function, and line."""
    frames = (await job.backtrace(ONE)).values[FOCUS]
    top = frames[0].location
    return history(job).traveller.recorded.cut()[FOCUS], len(frames), top.function, top.line


async def in_the_middle(job: Session) -> None:
    past = history(job)
    await run_to(job, FOCUS, "moment", "step == 2")
    start = past.now(FOCUS).tick
    await run_to(job, FOCUS, "MPI_Finalize")
    await past.goto_tick(FOCUS, start)
    while (await line(job))[1] > 1:
        await job.finish(ONE)


@pytest.mark.parametrize("kind", ["step", pytest.param("next", marks=pytest.mark.sweep)])
async def test_back_by_lines_is_the_way_forward_reversed(kind: str) -> None:
    program = build("futures", flags=["-O0"])
    async with recorded(program, "--rounds", 6, ranks=3) as job:
        past = history(job)
        await in_the_middle(job)
        await getattr(job, kind)(ONE)
        there = [await line(job)]
        while len({clock for clock, *_ in there}) <= CALLS:
            await getattr(job, kind)(ONE)
            there.append(await line(job))
        functions = {function for _, _, function, _ in there}
        assert {"main", "collect"} <= functions if kind == "step" else functions == {"main"}
        for number, expected in reversed([*enumerate(there[:-1])]):
            await past.reverse(kind, FOCUS)
            assert await line(job) == expected, number


async def test_back_out_of_a_function_to_its_call() -> None:
    """From anywhere in a function that has made MPI calls, to the line that called it."""
    program = build("futures", flags=["-O0"])
    async with recorded(program, "--rounds", 6, ranks=3) as job:
        past = history(job)
        await in_the_middle(job)
        called: Line | None = None
        checked = 0
        while checked < 3:
            before = await line(job)
            await job.step(ONE)
            now = await line(job)
            if now[2] != "collect":
                continue
            called = before if before[2] == "main" else called
            if called is None or now[0] == before[0]:
                continue
            await past.mark(f"m{checked}", FOCUS)
            await past.reverse("finish", FOCUS)
            assert await line(job) == called
            await past.goto_mark(f"m{checked}")
            assert await line(job) == now
            checked += 1
