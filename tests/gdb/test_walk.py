"""Every reverse command goes to the place in a full single-step trace, in registers and memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from walked import HERE, ORIGIN, compiled, walked

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
