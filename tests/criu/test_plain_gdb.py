"""A stock GDB: as an MPIR tool that knows our starter by the specification's symbols alone, and
with crdebug's commands inside it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from pathlib import Path

import pytest

from crdebug import jobs
from crdebug.debuggers import scripts
from crdebug.node import proc
from harness import looks
from harness.cli import argv
from harness.jobs import JOB, Heard, bare_job
from harness.programs import build

THREADS = ("--steps", 4000, "--delay-us", 2000)
COMMANDS = scripts()[0].with_name("commands_for_gdb.py")


async def gdb(pid: int, *commands: str) -> str:
    """What a stock GDB says, attached to a process; everything of the user's is left out."""
    words = ["gdb", "-nx", "-batch", "-p", str(pid)]
    words += [word for command in commands for word in ("-ex", command)]
    done = await asyncio.to_thread(
        subprocess.run, words, capture_output=True, text=True, timeout=200, check=False
    )
    return done.stdout + done.stderr


async def test_a_stock_gdb_takes_checkpoints_and_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = tmp_path / "crdebug"
    wrapper.write_text(f'#!/bin/sh\nexec {" ".join(argv())} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = build("threads")
    async with bare_job(program, *THREADS, ranks=2) as job:
        await looks.reach(3)
        rank = looks.shims()[1]
        # What the specification has in a starter, read by a tool that knows just the specification.
        table = await gdb(
            job.pid,
            "print MPIR_proctable_size",
            "print MPIR_proctable[1].pid",
            "print (char*)MPIR_checkpoint_command",
            "print MPIR_proctable[0].executable_name",
        )
        assert "$1 = 2" in table and f"$2 = {rank.pid}" in table
        assert f"crdebug checkpoint --held {JOB}" in table and str(program) in table

        show = "printf \"at %lx %lx step %ld\\n\", $pc, $sp, 'threads.c'::step"
        said = await gdb(
            rank.pid,
            f"source {COMMANDS}",
            show,
            "crdebug checkpoint a note",
            show,
            "crdebug checkpoint",
            show,
            "crdebug checkpoints",
            "crdebug restart job:1",
            show,
            "crdebug release",
        )
        places = re.findall(r"^at (.*)$", said, re.M)
        assert len(places) == 4 and len(set(places)) == 1, said
        assert "checkpoint job:1" in said and "checkpoint job:2" in said, said
        assert "a note" in said and "restarted from job:1" in said, said
        # All run on, and nobody holds anything.
        ranks = looks.shims()
        assert not {t.tracer for each in ranks for t in proc.threads(each.pid)} - {0}
        assert looks.look(ranks).waiting is False
        looks.end_soon()
        heard = Heard()
        assert await jobs.follow(JOB, heard) == 0
        assert len(heard.text().splitlines()) == 2
        await jobs.restart("job:2", heard)  # and without any debugger
        looks.end_soon()
        assert await jobs.follow(JOB, heard) == 0
        assert len(heard.text().splitlines()) == 4
