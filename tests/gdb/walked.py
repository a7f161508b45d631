"""programs/walk.c under a GDB that has the stepper, stopped at its first boundary."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from processes import soon

from crdebug.attached.gdbs import scripts
from crdebug.base.deadline import Deadline
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.target import BreakpointRequest
from crdebug.mi.records import MiTuple
from crdebug.native.build import build

HERE = Path(__file__).parent
ORIGIN = "origin"


def compiled(directory: Path, compiler: str, *options: str) -> Path:
    """walk.c with line information, boundary.c without."""
    path = shutil.which(compiler)
    assert path is not None
    sources = HERE / "programs"
    common = [path, "-Wall", "-Wextra", "-Wno-infinite-recursion", "-Werror", "-c"]
    first, second, program = (directory / name for name in ("walk.o", "boundary.o", "walk"))
    subprocess.run([*common, "-g", *options, "-o", first, sources / "walk.c"], check=True)
    subprocess.run([*common, "-O1", "-o", second, sources / "boundary.c"], check=True)
    subprocess.run([path, "-o", program, first, second], check=True)
    return program


@dataclass(frozen=True, slots=True)
class Walked:
    """A process, with a snapshot of its first stop in `boundary`: the origin."""

    target: GdbTarget

    async def mi(self, command: str) -> MiTuple:
        return (await self.target.mi(command, Deadline(200.0))).payload

    async def run_to(self, location: str, condition: str = "", ignore: int = 0) -> None:
        """A temporary breakpoint: nothing is left of it."""
        request = BreakpointRequest(location, condition, temporary=True, ignore=ignore)
        await self.target.insert_breakpoint(request, soon())
        await self.resume()

    async def resume(self) -> None:
        await self.target.resume(soon())
        await soon().wait(self.target.stopped(), "a stop")

    async def back(self, kind: str, *options: str) -> MiTuple:
        words = " ".join([*options, ORIGIN, kind])
        return await self.target.walk(f"-crdebug-reverse {words}", soon())

    async def with_trips(self, trips: int) -> None:
        """Have the loops run so often; the origin is the present stop."""
        await self.target.console(f"set var trips = {trips}", soon())
        await self.target.forget(ORIGIN, soon())
        await self.target.keep(ORIGIN, (), soon())

    async def value(self, expression: str) -> str:
        return await self.target.evaluate(expression, soon())

    async def where(self) -> tuple[str, int]:
        at = await self.target.location(soon())
        return at.function, at.line


@asynccontextmanager
async def walked(program: Path, extra: Sequence[Path] = ()) -> AsyncIterator[Walked]:
    native = await build(os.environ.get("CC", "cc"), soon())
    target = await GdbTarget.launch(0, soon(), scripts=[*scripts(), *extra], preload=native.xstate)
    try:
        await target.console("handle SIGUSR1 nostop noprint pass", soon())
        await target.start([str(program)], soon())
        one = Walked(target)
        await one.run_to("boundary")
        await target.console("python import crdebug_gdb.stepper", soon())
        await one.mi(f"-crdebug-walk-library {native.stepper}")
        await target.keep(ORIGIN, (), soon())
        yield one
    finally:
        await asyncio.shield(target.close(soon()))
