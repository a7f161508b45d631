"""Steps from functions without a name, where a stop may find any waiting thread."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from processes import Launch, Spawn, held, number, run_to, soon

from crdebug.base.errors import GdbError
from crdebug.base.events import StopReason
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.target import Motion, Verb
from harness.gdbs import GDBS, use_gdb

PROGRAMS = Path(__file__).parent / "programs"
FLAGS = "-g -O1 -shared -fPIC -fvisibility=hidden -fno-toplevel-reorder"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """programs/waits.c, with its stripped library."""
    compiler, where = shutil.which("cc"), tmp_path_factory.mktemp("nameless")
    assert compiler is not None
    library, executable = where / "libnameless.so", where / "waits"
    argv: list[str | Path]
    argv = [compiler, *FLAGS.split(), "-s", "-o", library, PROGRAMS / "nameless.c"]
    subprocess.run(argv, check=True)
    argv = [compiler, "-g", "-O0", "-o", executable, PROGRAMS / "waits.c", library]
    subprocess.run(argv, check=True)
    return executable


async def until_inside(target: GdbTarget) -> None:
    """Wait until it is in the innermost function: an interrupt may come earlier."""
    while True:
        frames = await target.backtrace(0, soon())
        names = [each.location.function for each in frames]
        if names == ["", "", "outermost", "main"]:
            return
        assert names[-2:] == ["outermost", "main"] and len(names) < 4, names
        await target.resume(soon())
        await target.interrupt(soon())


@pytest.mark.parametrize("which", GDBS)
async def test_it_leads_to_the_caller_that_has_a_name(
    launch: Launch, spawn: Spawn, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    use_gdb(which, monkeypatch)
    target = await held(launch, spawn())
    for verb in (target.step, target.next):
        await until_inside(target)
        await target.evaluate("go = 1", soon())
        await verb(1, soon())
        stop = await soon().wait(target.stopped(), "the step")
        assert (stop.reason, stop.detail) == (StopReason.STEP, "")
        assert stop.location is not None and stop.location.function == "outermost"

        # A finish of the user's own stays one.
        await target.finish(soon())
        stop = await soon().wait(target.stopped(), "the finish")
        assert stop.reason is StopReason.FINISH

        turns = await number(target, "turns")
        await target.evaluate("go = 0", soon())
        await run_to(target, "outermost")
        assert await number(target, "turns") == turns + 1
        await target.resume(soon())
        await target.interrupt(soon())
    await until_inside(target)
    with pytest.raises(GdbError, match="nowhere"):  # what else GDB refuses is refused
        await target.run(Motion(Verb.UNTIL, location="nowhere"), soon())
    assert target.last_stop is not None
    assert target.last_stop.reason is StopReason.INTERRUPT
