"""programs/past.c under a GDB: shared by the tests of snapshots."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import pytest
import pytest_asyncio
from processes import Process, compiled, number, soon

from crdebug.base.events import RankStopped
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.target import BreakpointRequest
from crdebug.mi.records import MiTuple
from harness.gdbs import preload
from harness.procstate import Snapshot, snapshot
from harness.registers import Registers, register_differences

SOURCE = Path(__file__).parent / "programs" / "past.c"
PARTS = "python import crdebug_gdb.checkpoint, crdebug_gdb.snapshot.commands"

Opened = tuple[GdbTarget, Process]
Open = Callable[..., Awaitable[Opened]]


@pytest.fixture(scope="session")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """programs/past.c, compiled."""
    return compiled("past", tmp_path_factory, "-O0", "-pthread")


@pytest.fixture
def past_processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        process.end()


@pytest_asyncio.fixture
async def open_past(past: Path, past_processes: list[Process]) -> AsyncIterator[Open]:
    """Start past.c under a GDB that stops it at each step; both are gone after the test."""
    targets: list[GdbTarget] = []
    home = resources.files("crdebug.gdbscripts")

    async def start(*arguments: str, at_steps: bool = True) -> Opened:
        process = Process(past, *arguments)
        past_processes.append(process)
        scripts = [Path(str(home / "load.py"))]
        target = await GdbTarget.launch(0, soon(), scripts=scripts, preload=await preload())
        targets.append(target)
        await target.console(PARTS, soon())
        await target.attach(process.pid, soon())
        process.signal(signal.SIGUSR1)
        if at_steps:
            await target.insert_breakpoint(BreakpointRequest("tick"), soon())
            await run(target)
        return target, process

    yield start
    for target in targets:
        await target.close(soon())


async def run(target: GdbTarget, times: int = 1) -> RankStopped:
    """Run to the next stop, this many times."""
    for _ in range(times):
        await target.resume(soon())
        stop = await soon().wait(target.stopped(), "the next stop")
    return stop


async def run_to_end(target: GdbTarget) -> RankStopped:
    await target.console("delete", soon())
    return await run(target)


async def step_number(target: GdbTarget) -> int:
    return await number(target, "step")


@dataclass(frozen=True, slots=True)
class Look:
    """Everything that GDB and /proc show: registers, memory to the last byte (except for what the
    kernel writes on its own), threads, call stacks, the selected thread, the last stop."""

    registers: Registers
    memory: Snapshot
    threads: object
    stack: object
    selected: str
    stop: RankStopped | None

    def expect_same(self, after: Look) -> None:
        told = self.memory.differences(after.memory)
        assert not told, "\n".join(told)
        told = register_differences(self.registers, after.registers)
        assert not told, "\n".join(told)
        assert after.threads == self.threads
        assert after.stack == self.stack
        assert after.selected == self.selected
        assert after.stop == self.stop


def named(row: MiTuple) -> dict[str, str]:
    values, state = row.tuple("registers"), row.text("xstate")
    # in pieces, so that a difference fits on a line
    pieces = {f"xstate+{at // 2}": state[at : at + 32] for at in range(0, len(state), 32)}
    return {name: values.text(name) for name, _ in values.fields} | pieces


async def look(target: GdbTarget) -> Look:
    told = (await target.mi("-crdebug-registers", soon())).payload.list("threads").tuples()
    bases = [int(row.tuple("registers").text("fs_base"), 0) for row in told]
    assert target.pid is not None
    return Look(
        {row.number("tid"): named(row) for row in told},
        snapshot(target.pid, thread_pointers=bases),
        await target.threads(soon()),
        await target.backtrace(0, soon()),
        (await target.mi("-thread-info", soon())).payload.text("current-thread-id"),
        target.last_stop,
    )
