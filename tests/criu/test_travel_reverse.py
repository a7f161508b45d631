"""Back by steps over all ranks, and forward again: each place is what it was."""

from __future__ import annotations

import random

import pytest

from crdebug.ranks import RankSet
from crdebug.session import Session
from harness.programs import build
from harness.travel import Place, history, place, recorded, run_to

# What MPI leaves open: handles, and what receives that have not completed are received into.
_OPEN = ("request", "requests", "message", "value", "values", "indices", "statuses")
_KINDS = ("step", "next", "stepi", "nexti", "finish", "continue")


async def _look(job: Session, rank: int) -> Place:
    return await place(job, rank, ("seen", "step", "rounds"), but=_OPEN)


@pytest.mark.parametrize(
    ("program", "ranks", "rounds", "steps", "focus", "moves"),
    [
        ("wildcard", 4, 3, range(20, 38), 0, 12),
        ("testsome", 4, 4, range(15, 27), 0, 12),
        ("master", 6, 8, range(30, 47), 0, 12),
    ],
)
async def test_random_ways_back_and_every_place_again(
    program: str, ranks: int, rounds: int, steps: range, focus: int, moves: int
) -> None:
    chance = random.Random(f"{program} {focus}")
    arguments = ("--rounds", rounds, "--jitter-us", 500)
    async with recorded(build(program), *arguments, ranks=ranks) as job:
        past = history(job)
        await run_to(job, focus, "note", f"step == {chance.choice(steps)}")
        await job.add_breakpoint(job.ranks, "note")
        places: list[Place] = []
        for number in range(moves):
            places.append(await _look(job, focus))
            await past.mark(f"m{number}", focus)
            in_main = len(places[-1].frames) == 1  # which nobody called
            kinds = [kind for kind in _KINDS if not (in_main and kind == "finish")]
            moment = await past.reverse(chance.choice(kinds), focus)
            now = past.traveller.cut()
            assert "likeness" not in moment.note
            assert now[focus] <= places[-1].cut[focus]
            assert all(a <= b for a, b in zip(now, places[-1].cut, strict=True))
        for number in [chance.randrange(moves) for _ in range(2 * moves)]:
            moment = await past.goto_mark(f"m{number}")
            now_here = await _look(job, focus)
            there = places[number]
            assert (now_here.cut, there.differences(now_here)) == (there.cut, ()), number


async def test_next_undoes_reverse_next() -> None:
    """Where no function is expanded in another: there a line has several beginnings."""
    focus, one = 0, RankSet.of([0])
    program = build("wildcard", flags=["-O0"])
    async with recorded(program, "--rounds", 3, "--jitter-us", 500) as job:
        past = history(job)
        await run_to(job, focus, "note", "step == 25")
        await past.reverse("finish", focus)
        await past.reverse("next", focus)  # from the middle of a line to its beginning
        places = [await _look(job, focus)]
        while len(places) < 8:
            await past.reverse("next", focus)
            places.append(await _look(job, focus))
        for after, before in zip(reversed(places[:-1]), reversed(places[1:]), strict=True):
            if len(after.frames) != len(before.frames):
                break  # out of the function: `next` goes over the call
            await job.next(one)
            now = await _look(job, focus)
            assert (now.cut, after.differences(now)) == (after.cut, ())


async def test_reverse_continue_meets_the_stops_of_the_way_forward() -> None:
    focus = 0
    async with recorded(build("wildcard"), "--rounds", 3, "--jitter-us", 500) as job:
        past = history(job)
        await job.add_breakpoint(RankSet.of([focus]), "note", condition="step % 5 == 3")
        stops: list[Place] = []
        for _ in range(6):
            await job.resume(job.ranks)
            stops.append(await _look(job, focus))
        for there in reversed(stops[:-1]):
            await past.reverse("continue", focus)
            now = await _look(job, focus)
            assert (now.cut[focus], there.differences(now)) == (there.cut[focus], ())
        assert "start of history" in (await past.reverse("continue", focus)).note


async def test_the_last_change_of_a_variable() -> None:
    focus = 0
    async with recorded(build("wildcard"), "--rounds", 3, "--jitter-us", 500) as job:
        past = history(job)
        await run_to(job, focus, "note", "step == 25")
        values = []
        for _ in range(4):
            moment = await past.last("step", focus)
            assert "has just been changed" in moment.note
            values.append(int((await job.evaluate(RankSet.of([focus]), "step")).values[focus]))
        assert values == [25, 24, 23, 22]
