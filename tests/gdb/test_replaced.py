"""A GDB that dies while it is started or attaches is replaced once: the session does not end."""

from __future__ import annotations

import itertools
import os
import signal
import stat
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from processes import Spawn

from crdebug.acquire.mpir import ProcDesc
from crdebug.attached.gdbs import attach_group, launch_gdb
from crdebug.base.errors import GdbDied, GdbError
from crdebug.base.events import Event, JobSays
from crdebug.base.settings import Settings
from crdebug.debugger.target import TargetState
from crdebug.node.code import remove_breakpoints
from crdebug.node.pipe import Pipe
from harness.gdbs import GDBS, use_gdb

COMMANDS = 12  # of a launch and an attach
LINES = range(6, 21, 3)  # that a GDB says meanwhile; some come in the middle of the attach
RANKS = COMMANDS + len(LINES)


class Killer:
    """Kills the first GDB of each rank: that of rank N before its command N + 1, and those of later
    ranks at one of their lines."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.killed: set[int] = set()  # ranks
        self._ranks: dict[int, int] = {}  # by the process id of the first GDBs
        self._seen: Counter[tuple[str, int]] = Counter()
        starts = itertools.count()
        start, write, readline = Pipe.start, Pipe.write, Pipe.readline

        async def watched_start(argv: Sequence[str], **options: Any) -> Pipe:
            number = next(starts)  # all ranks' GDBs are started before any other one is
            pipe = await start(argv, **options)
            if number < RANKS:
                self._ranks[pipe.pid] = number
            return pipe

        def watched_write(pipe: Pipe, data: bytes) -> None:
            self._passes(pipe.pid, "command", lambda rank: rank + 1)
            write(pipe, data)

        async def watched_readline(pipe: Pipe) -> bytes:
            line = await readline(pipe)
            if line:
                self._passes(pipe.pid, "line", lambda rank: LINES[rank - COMMANDS])
            return line

        monkeypatch.setattr(Pipe, "start", watched_start)
        monkeypatch.setattr(Pipe, "write", watched_write)
        monkeypatch.setattr(Pipe, "readline", watched_readline)

    def _passes(self, pid: int, what: str, last: Callable[[int], int]) -> None:
        rank = self._ranks.get(pid)
        if rank is None or rank in self.killed or (what == "line") != (rank >= COMMANDS):
            return
        self._seen[what, rank] += 1
        if self._seen[what, rank] == last(rank):
            os.kill(pid, signal.SIGKILL)
            self.killed.add(rank)


@pytest.mark.parametrize(
    "which", [GDBS[0], *(pytest.param(each, marks=pytest.mark.sweep) for each in GDBS[1:])]
)
@pytest.mark.root
async def test_killed_at_each_point_of_a_launch_and_an_attach(
    monkeypatch: pytest.MonkeyPatch, spawn: Spawn, program: Path, which: str
) -> None:
    use_gdb(which, monkeypatch)
    processes = [spawn("pace=1000", "threads=1") for _ in range(RANKS)]
    entries = [
        ProcDesc(rank, "here", str(program), process.pid) for rank, process in enumerate(processes)
    ]
    told: list[Event] = []
    killer = Killer(monkeypatch)
    group = await attach_group(entries, 62, Settings(), told.append)
    try:
        assert group.in_state(TargetState.STOPPED) == group.ranks
        said = [each.text for each in told if isinstance(each, JobSays)]
        assert sorted(int(text.split()[1].rstrip(":")) for text in said) == sorted(killer.killed)
        assert killer.killed >= {
            *range(4),
            *range(COMMANDS, RANKS),
        }  # the others settle, if need be
        for text in said:
            assert "gdb ended (exit status -9) during" in text
            assert text.endswith("; another one takes its place")
        assert not (await group.detach_all()).errors
        for process in processes:
            process.assert_free()
            assert remove_breakpoints(process.pid) == 0
    finally:
        await group.close()


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


async def test_one_that_dies_each_time_is_given_up(tmp_path: Path, spawn: Spawn) -> None:
    told: list[Event] = []
    runs = tmp_path / "runs"
    gdb = script(tmp_path / "dies", f"echo >> {runs}; kill -SEGV $$")
    with pytest.raises(GdbDied, match=r"rank 3: gdb ended \(exit status -11\)"):
        await launch_gdb(3, 62, Settings(gdb=gdb), told.append)
    assert len(told) == 1 and runs.read_text() == "\n\n"
    # One that ends by itself is no GDB: the next would do the same.
    gdb = script(tmp_path / "ends", f"echo >> {runs}; exit 3")
    with pytest.raises(GdbDied, match=r"exit status 3\)"):
        await launch_gdb(3, 62, Settings(gdb=gdb), told.append)
    assert len(told) == 1 and runs.read_text() == "\n\n\n"


# It answers everything, and dies of the attach.
DIES_OF_IT = """echo >> {runs}
while read -r line; do
    case "$line" in
    *target-attach*) kill -SEGV $$ ;;
    *) echo "${{line%%-*}}^done,value=\\"1\\"" ;;
    esac
done"""


async def test_an_attach_that_no_gdb_survives(tmp_path: Path, spawn: Spawn) -> None:
    told: list[Event] = []
    runs = tmp_path / "runs"
    settings = Settings(gdb=script(tmp_path / "dies", DIES_OF_IT.format(runs=runs)))
    process = spawn()
    entries = [ProcDesc(3, "here", "", process.pid)]
    with pytest.raises(GdbDied, match=f"-11.* during '-target-attach {process.pid}'"):
        await attach_group(entries, 0, settings, told.append)
    assert len(told) == 1 and runs.read_text() == "\n\n"
    process.assert_free()
    process.end()  # and of a process that is no more another GDB would know no more
    with pytest.raises(GdbError, match=f"rank 3: process {process.pid} has ended"):
        await attach_group(entries, 0, settings, told.append)
    assert len(told) == 1 and runs.read_text() == "\n\n\n"


async def test_a_rank_that_ends_meanwhile_has_ended(program: Path, spawn: Spawn) -> None:
    told: list[Event] = []
    processes = [spawn(), spawn()]
    entries = [
        ProcDesc(rank, "here", str(program), process.pid) for rank, process in enumerate(processes)
    ]
    processes[1].end()
    group = await attach_group(entries, 0, Settings(), told.append)
    try:
        assert [group[rank].state for rank in (0, 1)] == [TargetState.STOPPED, TargetState.EXITED]
        assert [each.text for each in told if isinstance(each, JobSays)] == ["rank 1 has ended"]
    finally:
        await group.close()
