"""Every reverse command goes to the place in a full single-step trace, in registers and memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import soon
from walked import HERE, ORIGIN, compiled, walked

from crdebug.debugger.target import Motion, Verb

TRACE = HERE / "trace_mi.py"
KINDS = ("stepi", "nexti", "step", "next", "finish")


@pytest.fixture(scope="module", params=[pytest.param("0", marks=pytest.mark.sweep), "2"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("walk"), "cc", f"-O{request.param}")


async def test_each_command_goes_where_the_trace_says(program: Path) -> None:
    async with walked(program, [TRACE]) as process:
        told = await process.mi(f"-test-trace {ORIGIN} (long)&last")
        # It is the program with all it does, and not its beginning only.
        assert told.number("steps") > 3000
        assert told.number("frames") > 50
        for kind in KINDS:
            # The functions that were there at the origin return, and what they call.
            first = await process.mi(f"-test-check {ORIGIN} {kind} 1 110 0")
            assert first.list("wrong").texts() == ()
            assert 15 < first.number("right") < 60
            # The first are the program's own instructions, the rest is what libraries do for it.
            near = await process.mi(f"-test-check {ORIGIN} {kind} 1 1400 61")
            far = await process.mi(f"-test-check {ORIGIN} {kind} 1400 100000 577")
            assert (*near.list("wrong").texts(), *far.list("wrong").texts()) == ()
            assert near.number("right") == 23
            assert far.number("right") > 3
            # The first is in the boundary itself, which has no lines and was there at the origin.
            assert (near.number("before") > 0) == (kind in ("step", "next", "finish"))


async def test_a_line_that_begins_at_a_snapshot_is_the_one_that_is_found_from_before(
    tmp_path: Path,
) -> None:
    """With snapshots wherever an entry of the line table begins, among them places to which only
    the same line leads: a way that ends at the snapshot ends there from an earlier one too."""
    found = not_clear = 0
    async with walked(compiled(tmp_path, "cc", "-O0")) as process:
        target = process.target

        async def registers() -> str:
            return await target.console("info registers", soon())

        async def forward() -> None:
            await target.run(Motion(Verb.STEPI), soon())
            await soon().wait(target.stopped(), "a stop")

        await process.with_trips(3)
        await process.run_to("loops")
        while found + not_clear < 60:
            line = await target.console("info line *$pc", soon())
            if f"starts at address {int(await process.value('(long)$pc')):#x} " not in line:
                await forward()
                continue
            await target.keep("near", (), soon())
            there = await registers()
            await forward()
            told = await target.walk("-crdebug-reverse near next", soon())
            if told.text("place", "") != "-":
                not_clear += 1
                continue
            found += 1
            assert await registers() == there
            await forward()
            await process.back("next")
            assert await registers() == there
            await forward()
    assert found > 10 and not_clear > 10
