"""Processes to debug, seen from outside, and GDBs to debug them with."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from crdebug.base.deadline import Deadline
from crdebug.base.events import RankStopped
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.target import BreakpointRequest, Notice, Target
from crdebug.gdbscripts.wire import FROZEN
from crdebug.node import proc
from harness.gdbs import preload

PROGRAMS = Path(__file__).parent / "programs"


def soon() -> Deadline:
    """A time limit far above anything here, on any machine."""
    return Deadline(60.0)


def compiled(name: str, directories: pytest.TempPathFactory, *options: str) -> Path:
    """The executable of programs/NAME.c, in a directory of its own."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None
    executable = directories.mktemp("programs") / name
    argv = [compiler, "-g", "-Wall", "-Wextra", "-Werror", "-o"]
    subprocess.run([*argv, executable, PROGRAMS / f"{name}.c", *options], check=True)
    return executable


class Process:
    """A running rank.c. user: it becomes this one before the program begins. rank: it says that it
    is this rank of a job, as under a launcher."""

    def __init__(
        self,
        program: Path,
        *arguments: str,
        user: Callable[[], None] | None = None,
        rank: int | None = None,
    ) -> None:
        says = {} if rank is None else {"PMI_RANK": str(rank)}
        self._popen = subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            preexec_fn=user,
            env=os.environ | says,
        )
        assert self._popen.stdout is not None
        assert self._popen.stdout.read(1) == b"!"

    @property
    def pid(self) -> int:
        return self._popen.pid

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        return self._popen.wait(timeout=60)

    def said(self) -> str:
        """What it has written, once it has ended."""
        assert self._popen.stdout is not None
        return self._popen.stdout.read().decode()

    def end(self) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self.wait()
        assert self._popen.stdout is not None
        self._popen.stdout.close()

    def fields(self) -> dict[str, str]:
        return proc.status(self.pid)

    def code(self, address: int, size: int = 16) -> bytes:
        """The present bytes of code in its memory."""
        descriptor = os.open(f"/proc/{self.pid}/mem", os.O_RDONLY)
        try:
            return os.pread(descriptor, size, address)
        finally:
            os.close(descriptor)

    def mark_hits(self) -> None:
        """Leave in every thread what CRIU leaves there: a hardware breakpoint that was hit
        (DR6)."""
        ptrace = ctypes.CDLL(None, use_errno=True).ptrace
        ptrace.argtypes, ptrace.restype = [ctypes.c_long] * 4, ctypes.c_long
        attach, detach, poke, wall = 16, 17, 6, 0x40000000
        for tid in proc.tids(self.pid):
            assert ptrace(attach, tid, 0, 0) == 0
            os.waitpid(tid, wall)
            assert ptrace(poke, tid, 848 + 6 * 8, 0xFFFF0FF1) == 0
            assert ptrace(detach, tid, 0, 0) == 0

    def queued(self) -> tuple[int, int]:
        """The signals in any of its queues: of the threads, and of the process."""
        threads, process = 0, 0
        for tid in proc.tids(self.pid):
            status = proc.status(self.pid, tid)
            threads |= int(status["SigPnd"], 16)
            process |= int(status["ShdPnd"], 16)
        return threads, process

    def assert_free(self) -> None:
        """It runs, nothing traces it, no signal is pending, and none has been sent to it."""
        for tid in proc.tids(self.pid):
            status = proc.status(self.pid, tid)
            assert status["TracerPid"] == "0"
            assert status["State"][0] in "RSZD", status["State"]
        assert self.queued() == (0, 0)


Spawn = Callable[..., Process]
Launch = Callable[..., Awaitable[GdbTarget]]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """programs/rank.c, compiled."""
    return compiled("rank", tmp_path_factory, "-O0", "-pthread")


@pytest.fixture
def spawn(program: Path) -> Iterator[Spawn]:
    """Start rank.c with arguments; it is ended after the test."""
    processes: list[Process] = []

    def start(*arguments: str, rank: int | None = None) -> Process:
        processes.append(Process(program, *arguments, rank=rank))
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
        library = await preload()
        target = await GdbTarget.launch(
            rank, soon(), scripts=scripts, preload=library, subscriber=told
        )
        targets.append(target)
        return target

    yield start
    for target in targets:
        await target.close(soon())


def kill_gdb(target: Target) -> None:
    os.kill(target.gdb_pid, signal.SIGKILL)


async def number(target: GdbTarget, expression: str) -> int:
    return int(await target.evaluate(expression, soon()))


async def run_to(target: GdbTarget, location: str) -> RankStopped:
    """Run to a place, by a temporary breakpoint."""
    await target.insert_breakpoint(BreakpointRequest(location, temporary=True), soon())
    await target.resume(soon())
    return await soon().wait(target.stopped(), f"a stop at {location}")


async def held(launch: Launch, process: Process) -> GdbTarget:
    target = await launch()
    await target.attach(process.pid, soon())
    return target


def copies(target: Target) -> list[int]:
    """The processes that are frozen copies, held by this target's GDB or by none."""
    found = []
    for pid in proc.pids():
        try:
            fields = proc.status(pid)
        except OSError:
            continue
        if (
            fields["Name"] == FROZEN
            and fields["TracerPid"] == str(target.gdb_pid)
            and not proc.is_zombie(pid)
        ):
            found.append(pid)
    return found


async def until_gone(pids: list[int]) -> None:
    def gone() -> bool:
        return all(proc.is_zombie(pid) or not Path(f"/proc/{pid}").exists() for pid in pids)

    await soon().until(gone, "the copies to be gone")
