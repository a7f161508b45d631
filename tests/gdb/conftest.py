"""Processes to debug, GDBs to debug them with, and a look at what is left of both."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from past import open_past, past, past_processes  # noqa: F401
from processes import Launch, Process, Spawn, soon

from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.target import Notice
from harness.leaks import no_leaks  # noqa: F401

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """programs/rank.c, compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None
    executable = tmp_path_factory.mktemp("programs") / "rank"
    source = PROGRAMS / "rank.c"
    argv = [compiler, "-g", "-O0", "-Wall", "-Wextra", "-pthread", "-o", executable, source]
    subprocess.run(argv, check=True)
    return executable


@pytest.fixture
def spawn(program: Path) -> Iterator[Spawn]:
    """Start rank.c with arguments; it is ended after the test."""
    processes: list[Process] = []

    def start(*arguments: str) -> Process:
        processes.append(Process(program, *arguments))
        return processes[-1]

    yield start
    for process in processes:
        process.end()


@pytest_asyncio.fixture
async def launch(spawn: Spawn) -> AsyncIterator[Launch]:
    """Start a GDB for a rank; it is closed after the test. told: gets its notices. scripts: that it
    sources; crdebug's own stop a rank before its end, among other things.

    It ends before the processes do: the end of a process that a stopped GDB holds is not seen by
    its parent until GDB has seen it (ptrace(2), "Death under ptrace").
    """
    targets: list[GdbTarget] = []

    async def start(
        rank: int = 0,
        told: Callable[[Notice], None] = lambda notice: None,
        scripts: Sequence[Path] = (),
    ) -> GdbTarget:
        targets.append(await GdbTarget.launch(rank, soon(), scripts=scripts, subscriber=told))
        return targets[-1]

    yield start
    for target in targets:
        await target.close(soon())
