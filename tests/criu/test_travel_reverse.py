"""Back by steps over all ranks, and forward again: each place is as it was."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from crdebug.base.ranks import RankSet
from crdebug.session import Session
from harness import looks, mpirun
from harness.jobs import run_to_end
from harness.programs import build, source
from harness.travel import Place, history, place, recorded, run_to

# What MPI leaves open: handles, and what receives that have not completed are received into.
_OPEN = ("request", "requests", "message", "value", "values", "indices", "statuses")
_KINDS = ("step", "next", "stepi", "nexti", "finish", "continue")


async def _look(job: Session, rank: int) -> Place:
    return await place(job, rank, ("seen", "step", "rounds"), but=_OPEN)


# The last one goes to and fro in test_travel_truth.py.
@pytest.mark.parametrize(
    ("program", "ranks", "rounds", "steps", "focus", "moves"),
    [
        ("wildcard", 4, 3, range(20, 38), 0, 12),
        pytest.param("testsome", 4, 4, range(15, 27), 0, 12, marks=pytest.mark.sweep),
        pytest.param("master", 6, 8, range(30, 47), 0, 12, marks=pytest.mark.sweep),
    ],
)
async def test_random_ways_back_and_every_place_again(
    program: str, ranks: int, rounds: int, steps: range, focus: int, moves: int, thorough: bool
) -> None:
    moves = moves if thorough else moves // 2
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
            now = past.traveller.recorded.cut()
            assert "approximate" not in moment.note
            assert now[focus] <= places[-1].cut[focus]
            assert all(a <= b for a, b in zip(now, places[-1].cut, strict=True))
        for number in [chance.randrange(moves) for _ in range(2 * moves)]:
            moment = await past.goto_mark(f"m{number}")
            now_here = await _look(job, focus)
            there = places[number]
            assert (now_here.cut, there.differences(now_here)) == (there.cut, ()), number


async def test_a_line_that_is_a_call_and_no_more_is_met_from_inside_of_it() -> None:
    one, lines = RankSet.of([0]), source("threads").read_text().splitlines()
    program = build("threads", flags=["-O0"])
    async with recorded(program, "--steps", 40, "--rest-us", 20000, ranks=2) as job:
        await run_to(job, 0, "work_step", "step == 5")
        await history(job).reverse("step", 0)
        here = (await job.backtrace(one)).values[0][0].location
        assert (here.function, here.line) == ("main", lines.index("        work_step();") + 1)
        assert (await job.evaluate(one, "'threads.c'::step")).values[0] == "5"


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


async def test_a_rank_that_was_taken_along_goes_back_itself() -> None:
    """Another rank's way back left it at its next call, where the recorder holds it."""
    async with recorded(build("heat"), 64, 60) as job:
        past, two = history(job), RankSet.of([2])
        await run_to(job, 3, "relax", "step == 5")
        await job.barrier(job.ranks, "relax")
        await past.reverse("next", 3)
        (held, *_) = (await job.backtrace(two)).values[2]
        assert held.location.file != "heat.c" and not past.traveller.recorded.cut()[2].inside
        before = past.traveller.recorded.cut()[2]
        moment = await past.reverse("next", 2)
        (frame, *_) = (await job.backtrace(two)).values[2]
        assert (frame.location.function, moment.note) == ("exchange_halos", "")
        assert past.traveller.recorded.cut()[2] == before


class Stop(NamedTuple):
    """The rank's place, and its output and files up to there."""

    now: int
    function: str
    line: int | None
    total: str
    output: tuple[str, ...]
    written: str


async def test_reverse_continue_meets_the_stops_of_the_way_forward(tmp_path: Path) -> None:
    """Steps of all kinds: also inside an MPI call, and where the rank writes. Its file and its
    standard output always have the content that they had at that place."""
    one, log = RankSet.of([0]), tmp_path / "log.0"
    async with recorded(build("prints"), ranks=2) as job:
        past, text = history(job), looks.output

        async def typed(*lines: str) -> None:
            for line in lines:
                assert not (await job.group.console(one, line)).errors

        async def here() -> Stop:
            await past.traveller.near.drained()
            stack = (await job.backtrace(one)).values[0]
            total = (await job.evaluate(one, "total")).values[0]
            output = [line for line in text().splitlines() if line.startswith("rank 0")]
            written = log.read_text() if log.exists() else ""
            now, at = past.traveller.recorded.cut()[0], stack[0].location
            return Stop(now, at.function, at.line, total, tuple(output), written)

        await typed("handle SIGUSR1 nostop noprint pass", "catch signal SIGUSR1")
        await typed("watch total if total > 8")
        await job.group.console(RankSet.of([1]), "handle SIGUSR1 nostop noprint pass")
        await job.add_breakpoint(one, "add_up", condition="step % 2")
        forward: list[Stop] = []
        while not forward or forward[-1].total != "1028":
            await job.resume(job.ranks)
            forward.append(await here())
        functions = [each.function for each in forward]
        assert functions.count("add_up") == 2, functions
        assert sum(each.now % 2 for each in forward) == 2
        assert "on_signal" in functions
        assert len({each.output for each in forward}) > 3, "it writes between them"
        hits = [each.hits for each in job.breakpoints()]
        for there in reversed(forward[:-1]):
            await past.reverse("continue", 0)
            assert await here() == there
        assert "start of history" in (await past.reverse("continue", 0)).note
        assert [each.hits for each in job.breakpoints()] == hits

        # Catchpoints of system calls, ignore counts, temporary breakpoints.
        await typed("delete", "tbreak after_parts if step == 2")
        await job.resume(job.ranks)
        await typed("catch syscall write")
        step_2 = []
        for _ in range(8):
            await past.reverse("continue", 0)
            at = await here()
            step_2.append((str(at.output).count("step 2."), at.written.count("step 2.")))
        assert step_2 == [(2, 2), (2, 1), (2, 1), (1, 1), (1, 1), (1, 0), (1, 0), (0, 0)]
        await typed("delete", "tbreak after_parts")
        await job.resume(job.ranks)
        await typed("break work", "ignore $bpnum 1")
        totals = []
        for lines in ((), ("delete", "tbreak work"), ()):
            await past.reverse("continue", 0)
            totals.append((await here()).total)
            await typed(*lines)
        assert totals == ["6", "3", "2"]
        told = (await job.group.console(one, "info breakpoints")).values[0]
        assert told.startswith("No breakpoints"), told


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


async def test_what_others_sent_and_printed_between_two_ways_back_is_there() -> None:
    """In one tick of the rank that goes back: its origin is from before that."""
    program = build("apart")
    async with recorded(program, ranks=2) as job:
        past, other = history(job), RankSet.of([1])
        await job.add_breakpoint(RankSet.of([0]), "work", condition="step == 3")
        await job.add_breakpoint(other, "tell", condition="step >= 1")
        left = job.ranks
        while left:
            await job.resume(left)
            steps = (await job.evaluate(job.ranks, "step")).values
            left = RankSet.of(rank for rank, step in steps.items() if step != ("3", "1")[rank])
        await past.reverse("next", 0)
        for _ in range(3):
            await job.resume(other)
            await past.reverse("step", 0)
        for point in job.breakpoints():
            await job.delete_breakpoint(point.number)
        assert await run_to_end(job) == 0
        output = looks.output()
    expected = mpirun.run(mpirun.command(program, ranks=2)).expect().stdout
    assert sorted(output.splitlines()) == sorted(expected.splitlines())
