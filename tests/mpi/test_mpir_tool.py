"""A tool that is written against MPIR alone acquires our jobs: it starts them, or attaches."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from crdebug.base.settings import Settings
from crdebug.detached import jobs
from crdebug.detached.mpir_frontend import program as starter
from harness import looks
from harness.cli import in_path
from harness.jobs import JOB, Heard, bare_job
from harness.mpir_tool import ABORTING, Gdb, Process, Tool
from harness.mpirun import command, environment, reference
from harness.programs import build

RANKS = 2
STEPS = ("--steps", 20)


def crdebug_in_path(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_path(directory, monkeypatch)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)


def attached(table: list[Process], program: Path) -> list[Gdb]:
    assert [(row.host, row.executable) for row in table] == [
        (socket.gethostname(), str(program))
    ] * RANKS
    return [Gdb.at(row.pid) for row in table]


@pytest.mark.parametrize("end", ["as it does", "by a kill"])
async def test_it_starts_our_starter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    crdebug_in_path(tmp_path, monkeypatch)
    program, output = build("threads"), tmp_path / "output"
    words = ["--front", "--name", JOB, "--", *command(program, *STEPS, ranks=RANKS)]
    await asyncio.to_thread(_starts, str(await starter(Settings())), words, program, output, end)
    text = output.read_text()
    if end == "as it does":
        assert text.replace(f"crdebug: job {JOB}\n", "") == reference(program, *STEPS, ranks=RANKS)
    assert await jobs.list_jobs() == ()


def _starts(path: str, words: list[str], program: Path, output: Path, end: str) -> None:
    tool = Tool.launch(path, words, output)
    tool.starter.value("&MPIR_acquired_pre_main")
    assert JOB in tool.starter.text("(char*)&MPIR_checkpoint_command")
    ranks = attached(tool.table(), program)
    for rank in ranks:
        rank.say("-break-insert main")
    # One continues before the starter does, one after it: no rank reaches its main before.
    ranks[0].go()
    tool.starter.go()
    ranks[1].go()
    for rank in ranks:
        assert 'func="main"' in rank.stopped()
    if end == "by a kill":
        ranks[1].say('-interpreter-exec console "kill"')
    else:
        ranks[1].say("-target-detach")
    ranks[0].say("-target-detach")
    for rank in ranks:
        rank.quit()
    if end == "by a kill":
        assert tool.state_at_breakpoint() == ABORTING
        status = int(tool.starter.text("MPIR_debug_abort_string").split()[-1])
        assert status != 0
        tool.starter.go()
        assert f'exit-code="0{status:o}"' in tool.starter.stopped()
    else:
        assert 'reason="exited-normally"' in tool.starter.stopped()
    tool.starter.quit()


async def test_it_attaches_to_our_starter_and_leaves_it() -> None:
    program = build("threads")
    async with bare_job(program, "--steps", 10**6, "--delay-us", 1000, ranks=RANKS) as job:
        await looks.reach(3)
        for _ in range(2):
            await asyncio.to_thread(_attaches, job.pid, program)
        heard = Heard()
        last = looks.end_soon()
        assert await jobs.follow(JOB, heard) == 0
        assert heard.text() == reference(program, "--steps", last, ranks=RANKS)


def _attaches(pid: int, program: Path) -> None:
    tool = Tool.attach(pid)
    ranks = attached(tool.table(), program)
    for rank in ranks:
        rank.say("-break-insert work_step")
    for rank in ranks:
        rank.go()
        assert 'func="work_step"' in rank.stopped()
        rank.say("-target-detach")
        rank.quit()
    tool.leave()
