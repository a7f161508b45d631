"""A GDB ends in the middle of its work, killed or because its crdebug was killed: the rank computes
on as if it had never been held."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from processes import Process, compiled, soon

from crdebug.acquire.mpir import ProcDesc
from crdebug.acquire.symbols import find_symbols
from crdebug.attached.gdbs import attach_group, scripts
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, GdbDied
from crdebug.base.settings import Settings
from crdebug.debugger.gdb import GdbTarget
from crdebug.node import proc
from crdebug.node.code import remove_breakpoints
from crdebug.node.pipe import Pipe
from crdebug.node.sigstop import LocalStopSignals
from harness.programs import build

# What a GDB does to its rank: write to its memory, wait for it, ptrace(2), tgkill(2).
CALLS = "18 61 101 234"
PTRACE = "101"  # they count from the first of these on
# So many times an attach and a detach enter or leave one of these, or more.
STOPS = 110

Start = Callable[[], Process]


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """programs/steady.c, compiled."""
    return compiled("steady", tmp_path_factory, "-O2", "-Wno-psabi", "-pthread")


@pytest.fixture
def start(steady: Path) -> Iterator[Start]:
    processes: list[Process] = []

    def begin() -> Process:
        processes.append(Process(steady))
        return processes[-1]

    yield begin
    for process in processes:
        process.end()


def ends_well(process: Process) -> None:
    """Its code is that of its files, nothing is left in its queues, and it has noticed nothing."""
    process.assert_free()
    assert remove_breakpoints(process.pid) == 0
    found = find_symbols(process.pid, ["ending"], in_file=lambda path: path.endswith("/steady"))
    proc.write_memory(process.pid, found["ending"], (1).to_bytes(4, "little"))
    assert process.wait() == 0, process.said()


class Killer:
    """Kills the first GDB of each rank at such a stop of it, see tests/programs/killer.c."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, work: Path, stops: Sequence[int]) -> None:
        self._work, self._ranks = work, len(stops)
        program = str(build("killer", compiler="cc"))
        starts, start = itertools.count(), Pipe.start

        async def watched_start(argv: Sequence[str], **options: Any) -> Pipe:
            number = next(starts)  # all ranks' GDBs are started before any other one is
            if number < self._ranks:
                killer = (program, str(self._report(number)), PTRACE, str(stops[number]))
                argv = (*killer, *argv)
            return await start(argv, **options)

        monkeypatch.setenv("KILLER_CALLS", CALLS)
        monkeypatch.setattr(Pipe, "start", watched_start)

    def _report(self, rank: int) -> Path:
        return self._work / f"report-{rank}"

    def killed(self) -> list[bool]:
        """By rank: was its GDB, or did it come to its end before?"""
        reports = [self._report(rank).read_text().split() for rank in range(self._ranks)]
        return [status == "137" for _, status in reports]


@pytest.mark.root
async def test_killed_at_each_moment_of_an_attach_and_a_detach(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, start: Start, steady: Path, thorough: bool
) -> None:
    moments = range(1, STOPS, 1 if thorough else 10)
    for some in (moments[first : first + 12] for first in range(0, len(moments), 12)):
        with monkeypatch.context() as patch:
            killer = Killer(patch, tmp_path, some)
            processes = [start() for _ in some]
            entries = [
                ProcDesc(rank, "here", str(steady), process.pid)
                for rank, process in enumerate(processes)
            ]
            group = await attach_group(entries, 62, Settings())
            try:
                left = (await group.detach_all()).errors
            finally:
                await group.close()
            assert all(isinstance(error, GdbDied) for error in left.values()), left
            for rank in left:
                remove_breakpoints(processes[rank].pid)
            for process, moment in zip(processes, some, strict=True):
                with told_of(f"its GDB was killed at stop {moment}"):
                    ends_well(process)
            assert all(killer.killed())


@contextlib.contextmanager
def told_of(what: str) -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        error.add_note(what)
        raise


class Mortal(LocalStopSignals):
    """Those of a crdebug that dies: it sends none any more, and helps nobody."""

    def __init__(self) -> None:
        self.dead = False

    def send_stop(self, pid: int) -> bool:
        return not self.dead and super().send_stop(pid)

    def lift_stop(self, pid: int) -> None:
        if not self.dead:
            super().lift_stop(pid)

    async def block(self, pid: int, tid: int, mask: int, deadline: Deadline) -> None:
        assert self.dead


async def attach_and_detach(process: Process, commands: int) -> bool:
    """GDB's input ends behind so many commands; False if there were fewer."""
    signals = Mortal()
    target = await GdbTarget.launch(0, soon(), scripts=scripts(), signals=signals)
    write, left = Pipe.write, commands

    def watched_write(pipe: Pipe, data: bytes) -> None:
        nonlocal left
        write(pipe, data)
        left -= 1
        if left == 0:
            signals.dead = True
            stdin = pipe._transport.get_pipe_transport(0)
            assert isinstance(stdin, asyncio.WriteTransport)
            stdin.close()

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(CrdebugError):
        patch.setattr(Pipe, "write", watched_write)
        await target.attach(process.pid, soon())
        await target.detach(soon())
    await target.close(soon())
    return left <= 0


@pytest.mark.root
async def test_its_crdebug_is_killed_at_each_command_of_an_attach_and_a_detach(
    start: Start,
) -> None:
    """Whatever GDB is at when its input ends."""
    commands = 1
    while await attach_and_detach(process := start(), commands):
        with told_of(f"its input ended behind {commands} commands"):
            ends_well(process)
        commands += 1
    assert commands > 10
    ends_well(process)
