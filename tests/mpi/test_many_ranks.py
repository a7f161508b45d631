"""Addressing ranks and reading their answers, on a real job: one session for all commands."""

from __future__ import annotations

import math
import re

import pytest

from crdebug.base.answers import NoRankAnswered
from crdebug.base.errors import BadInput
from crdebug.base.events import JobSays
from crdebug.commands.context import Context
from crdebug.commands.standard import standard
from crdebug.session import Session
from crdebug.ui.render import render
from harness.jobs import Heard, session
from harness.programs import build

REGISTRY = standard()


class Desk:
    """A user of one session, whose job is in `here` on all ranks."""

    def __init__(self, job: Session, heard: Heard) -> None:
        self.job = job
        self.heard = heard
        self.context = Context(job)

    async def says(self, line: str) -> list[str]:
        return render(await REGISTRY.run(self.context, line)).splitlines()

    def told(self) -> list[str]:
        return [event.text for event in self.heard.events if isinstance(event, JobSays)]


async def all_here(job: Session) -> None:
    """Run each rank to its breakpoint; ranks that are there stay."""
    await job.add_breakpoint(job.ranks, "here")
    there = job.ranks - job.ranks
    while there != job.ranks:
        stop = await job.resume(job.ranks - there)
        there |= there.of(each.rank for each in stop.cause)


async def test_sets_answers_stacks_and_arrays_of_a_job() -> None:
    heard = Heard()
    async with session(build("spread"), heard=heard) as job:
        await all_here(job)
        desk = Desk(job, heard)
        await sets_and_answers(desk)
        await stacks_and_threads(desk)
        await arrays(desk)


async def sets_and_answers(desk: Desk) -> None:
    says = desk.says
    assert await says("define-set diagonal 0,3") == ["diagonal: [0,3]"]
    assert await says("[where rank % 2 == 1] print same") == ["[1,3] = 7"]
    assert await says("[(where odd == 7) - diagonal] print rank") == ["[2] = 2"]
    assert await says("[@stopped & where block[1][1] > 5] print rank") == ["[2] = 2", "[3] = 3"]
    assert await says("focus all - diagonal") == ["focus: [1-2]"]
    assert await says("print odd") == ["[1] = 8", "[2] = 7"]
    assert await says("[all] info table rank, odd") == [
        "ranks  rank  odd",
        "0      0     7",
        "1      1     8 *",
        "2      2     7",
        "3      3     7",
        "min    0 @0  7 @0,2-3",
        "max    3 @3  8 @1",
        "mean   1.5   7.25",
    ]
    assert await says("[all] compare odd") == [
        "2 values on 4 ranks: [1] is the odd one out",
        "  [0,2-3] = 7",
        "  [1] = 8",
    ]
    await says("focus all")
    # an expression that fails on some ranks
    assert await says("print *only") == [
        "[0-2] = 7",
        "[3] error: Cannot access memory at address 0x0",
    ]
    assert await says("[where *only == 7] print rank") == ["[0] = 0", "[1] = 1", "[2] = 2"]
    assert desk.told()[-1].endswith("Cannot access memory at address 0x0")
    with pytest.raises(NoRankAnswered, match='No symbol "nothing" in current context'):
        await says("[where nothing > 1] print rank")


async def stacks_and_threads(desk: Desk) -> None:
    says = desk.says
    tree = await says("stack")
    assert [line for line in tree if line.startswith("[")] == ["[0-2] 3 ranks", "[3] 1 rank"]
    assert tree[1].startswith("  main at ")  # they called from two lines
    lines = [re.sub(r" at .*:\d+", "", line) for line in await says("stack --function-only")]
    assert lines[-6:] == [
        "├ [0-2] 3 ranks",
        "│   usual",
        "│   here",
        "└ [3] 1 rank",
        "    unusual",
        "    here",
    ]
    # all threads: each rank has its helper, and MPI's own
    threads = await says("bt --threads --function-only")
    helper = next(at for at, line in enumerate(threads) if line.strip() == "helper")
    assert any("[0-3] 4 threads" in line for line in threads[:helper])
    assert await says("stack --depth 1") != tree
    number = 0
    for line in await says("[2] thread apply all backtrace"):
        if found := re.match(r"thread (\d+):", line):
            number = int(found[1])
        if "helper" in line:
            break
    assert "here" in (await says("[1-2] thread"))[1]
    applied = await says(f"thread apply 1,{number} print rank")
    assert applied[0] == "thread 1:"
    assert applied[1:5] == [f"  [{rank}] = {rank}" for rank in range(4)]
    await says(f"[2] thread {number}")
    assert any("helper" in line for line in await says("[2] bt"))
    assert not any("helper" in line for line in await says("[1] bt"))
    with pytest.raises(NoRankAnswered, match="Thread ID 99 not known"):
        await says("thread 99")
    with pytest.raises(NoRankAnswered, match="there is no thread 99"):
        await says("thread apply 99 print rank")
    await says("[2] thread 1")


async def arrays(desk: Desk) -> None:
    job, says = desk.job, desk.says
    read = (await job.numbers(job.ranks, "block")).values
    assert {rank: each.shape for rank, each in read.items()} == dict.fromkeys(range(4), (6, 8))
    assert list(read[3].values) == [4 + i + 0.5 * (6 + j) for i in range(6) for j in range(8)]
    assert math.isnan(read[2].values[0])
    for expression, values in {
        "small": [1, 2, 255],
        "counts": [0, 1, 4, 9, 16],
        "row": [0.25 * i for i in range(6)],
        "*flat@3": [1 + 0.0 - 1 + 3, 3.5, 4.0],
        "rank": [1],
        "counts[3] * 2": [18],
    }.items():
        found = (await job.numbers(job.ranks, expression)).values[1]
        assert list(found.values) == values, expression
    assert (await says("[2] image block"))[0].startswith("??")
    shown = await says("image block --grid 2x2")
    assert [line[16:17] for line in shown[:6]] == ["│"] * 6
    assert shown[6] == "─" * 16 + "┼" + "─" * 16
    assert all(line[14:16] == ".." for line in shown[7:13]), shown  # the wrong halo, and no other
    assert sum(line.count(".") for line in shown[:13]) == 12
    assert shown[-1] == "'.' is -50, '@' is 15.5, '?' is nan (1)"
    assert await says("image *flat@48 --shape 6x8 --grid 2x2") == shown
    with pytest.raises(BadInput, match="a grid of 3x2 is for 6 ranks, not for 4"):
        await says("image block --grid 3x2")
    chart = await says("plot value")
    assert chart[-1] == "not shown: 1 points that are nan or infinite"
    lines = {each.name: each.y for each in (await job.plot(job.ranks, "row")).lines}
    assert lines == {f"[{r}]": tuple(0.25 * i * r for i in range(6)) for r in range(4)}
    partly = await job.plot(job.ranks, "*only")
    assert (partly.lines[0].x, [str(ranks) for ranks, _ in partly.errors]) == ((0, 1, 2), ["3"])
    assert str(partly.errors[0][1]).endswith("Cannot access memory at address 0x0")
    assert "Python" not in str(partly.errors[0][1])
    with pytest.raises(NoRankAnswered, match="not a number or an array of them"):
        await says("plot done")
    with pytest.raises(NoRankAnswered, match=r"'flat' is a .*, not a number"):
        await says("plot flat")
    with pytest.raises(NoRankAnswered, match="the elements of '\"a\"' are char, not numbers"):
        await says('plot "a"')
