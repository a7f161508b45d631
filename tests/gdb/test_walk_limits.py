"""Long loops, watchpoints, and what cannot be done: said in words, and nobody is moved."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import number, soon
from walked import ORIGIN, compiled, walked

from crdebug.errors import GdbError


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("walk"), "cc", "-O0")


@pytest.mark.parametrize("long", [0.15, 0.0])
async def test_a_long_loop_is_no_obstacle(program: Path, long: float) -> None:
    """long: seconds after which a way counts as long; 0: each one, as on a slow machine."""
    async with walked(program) as process:
        await process.target.console(f"python LONG = {long}", soon())
        await process.target.console("set var trips = 10000", soon())
        await process.target.forget(ORIGIN, soon())
        await process.target.keep(ORIGIN, (), soon())
        await process.run_to("jumps")
        # From behind three loops, the last of them in one line, into them.
        await process.back("next")
        assert (await process.where())[0] == "work"
        await process.back("step")
        assert await process.where() == ("loops", 44)
        await process.back("next")
        assert await process.where() == ("loops", 43)
        await process.back("next")
        assert await process.where() == ("loops", 42)
        assert await number(process.target, "n") == 10000
        await process.back("next")
        assert (await process.where())[0] == "loops"
        assert await number(process.target, "i") >= 9999


async def test_a_watchpoint_of_the_user_is_no_obstacle(program: Path) -> None:
    async with walked(program) as process:
        await process.target.console("watch sink", soon())
        await process.target.console("watch handled", soon())
        await process.resume()
        sink, line = await process.value("sink"), await process.where()
        assert sink != "0"
        await process.back("step")
        assert await process.value("sink") == "0"
        await process.resume()  # and it works again
        assert (await process.value("sink"), await process.where()) == (sink, line)


async def test_the_limit_of_time_is_told_and_nobody_is_moved(program: Path) -> None:
    async with walked(program) as process:
        await process.target.console("set var trips = 20000", soon())
        await process.target.forget(ORIGIN, soon())
        await process.target.keep(ORIGIN, (), soon())
        await process.run_to("leaf", "x == 15001")
        where = await process.where()
        with pytest.raises(GdbError, match=r"not found in time, after \d+ passages"):
            await process.back("next", "--seconds 0.1")
        assert await process.where() == where
        assert await process.value("x") == "15001"
