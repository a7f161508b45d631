"""Extended registers that a GDB writes arrive, and those that it does not know stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Launch, Process, compiled, number, run_to, soon

from crdebug.attached.gdbs import launch_gdb
from crdebug.base.settings import Settings
from crdebug.debugger.gdb import GdbTarget
from harness.gdbs import GDBS, use_gdb

pytestmark = [
    pytest.mark.skipif(
        " avx " not in Path("/proc/cpuinfo").read_text(), reason="the processor has no AVX"
    ),
    pytest.mark.parametrize("which", GDBS),
]


@pytest.fixture(scope="session")
def registers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """programs/xstate.c, compiled."""
    return compiled("xstate", tmp_path_factory, "-O0")


@pytest.fixture
def process(registers: Path) -> Iterator[Process]:
    """It runs; it ends after the GDB of `launch`, if that comes behind it."""
    started = Process(registers)
    yield started
    started.end()


async def holds(target: GdbTarget, process: Process) -> None:
    """It has the process where its registers are in use."""
    await target.attach(process.pid, soon())
    await run_to(target, "*held")


async def go_behind(target: GdbTarget) -> None:
    """To where the process has stored its registers."""
    stop = await run_to(target, "passed")
    assert stop.location is not None and stop.location.function == "passed", stop


async def same_in_and_out(target: GdbTarget, member: str) -> bool:
    """Was this the same behind the place as before?"""
    gap = f"(char *)&out.{member} - (char *)&in.{member}"
    each = f"sizeof in.{member}"
    python = (
        "python import gdb; one = gdb.selected_inferior();"
        f" at, gap, size = (int(gdb.parse_and_eval(x)) for x in"
        f" ('(long)&in.{member}', '{gap}', '{each}'));"
        " print(bytes(one.read_memory(at, size)) == bytes(one.read_memory(at + gap, size)))"
    )
    return (await target.console(python, soon())).strip() == "True"


async def test_a_function_is_called_and_all_registers_are_as_before(
    process: Process, launch: Launch, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    use_gdb(which, monkeypatch)
    target = await launch()
    await holds(target, process)
    assert await number(target, "twice(21)") == 42
    await go_behind(target)
    tiles = ["tile"] if await number(target, "tiles") else []
    for member in ("ymm", "x87", "mxcsr", *tiles):
        assert await same_in_and_out(target, member), member
    await target.detach(soon())


async def test_what_gdb_writes_arrives_and_the_rest_stays(
    process: Process, launch: Launch, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    use_gdb(which, monkeypatch)
    target = await launch()
    await holds(target, process)
    await target.console("set var $ymm1.v4_int64[0] = 11", soon())
    await target.console("set var $ymm1.v4_int64[3] = 14", soon())
    await go_behind(target)
    assert await target.evaluate("out.ymm", soon()) == "{{11, 2, 3, 14}, {5, 6, 7, 8}}"
    tiles = ["tile"] if await number(target, "tiles") else []
    for member in ("x87", "mxcsr", *tiles):
        assert await same_in_and_out(target, member), member
    await run_to(target, "*held")
    await target.console("set var $st0 = 2.5", soon())
    await target.console("set var $mxcsr = 0x1f80", soon())
    await go_behind(target)
    assert await target.evaluate("out.x87", soon()) == "2.5"
    assert await number(target, "out.mxcsr") == 0x1F80
    for member in ("ymm", *tiles):
        assert await same_in_and_out(target, member), member
    await target.detach(soon())


@pytest.mark.parametrize("users", ["", "libanl.so.1"])
async def test_gdbs_children_load_what_the_user_has_them_load(
    monkeypatch: pytest.MonkeyPatch, which: str, users: str
) -> None:
    use_gdb(which, monkeypatch)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    if users:
        monkeypatch.setenv("LD_PRELOAD", users)
    target = await launch_gdb(0, 0, Settings())
    try:
        assert isinstance(target, GdbTarget)
        loaded = Path(f"/proc/{target.gdb_pid}/maps").read_text()
        assert "/xstate.so" in loaded and users in loaded
        ask = "import subprocess; print(subprocess.getoutput('echo \"<$LD_PRELOAD>\"'))"
        assert (await target.console(f"python {ask}", soon())).strip() == f"<{users}>"
    finally:
        await target.close(soon())
