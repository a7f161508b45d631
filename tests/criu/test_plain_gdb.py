"""A stock GDB: as an MPIR tool that knows our starter only by the specification's symbols, and with
crdebug's commands inside it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from pathlib import Path

import pytest

from crdebug.attached.gdbs import scripts
from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused
from crdebug.base.settings import Settings
from crdebug.detached import jobs
from crdebug.node import proc
from harness import looks
from harness.cli import in_path
from harness.gdbs import use_gdb
from harness.jobs import JOB, Heard, bare_job
from harness.mpir_tool import Gdb
from harness.mpirun import reference
from harness.programs import build

RUNNING = ("--delay-us", 2000, "--steps", 10**6)
THREADS = ("--steps", 4000, "--delay-us", 2000)
COMMANDS = scripts()[0].with_name("plain_gdb.py")


async def gdb(pid: int, *commands: str, first: str = "") -> str:
    """The output of a stock GDB, attached to a process; it ignores all of the user's settings.
    first: a command before it attaches."""
    words = ["gdb", "-nx", "-batch", "-iex", first, "-p", str(pid)]
    words += [word for command in commands for word in ("-ex", command)]
    done = await asyncio.to_thread(
        subprocess.run, words, capture_output=True, text=True, timeout=200, check=False
    )
    return done.stdout + done.stderr


# Each GDB once.
@pytest.mark.parametrize("which", ["usual", pytest.param("newer", marks=pytest.mark.sweep)])
async def test_a_stock_gdb_takes_checkpoints_and_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    use_gdb(which, monkeypatch)
    in_path(tmp_path, monkeypatch)
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
            first="set sysroot /" if os.geteuid() else "",
        )
        assert "$1 = 2" in table and f"$2 = {rank.pid}" in table
        assert f"crdebug checkpoint --held {JOB}" in table and str(program) in table

        show = "printf \"at %lx %lx step %ld\\n\", $pc, $sp, 'threads.c'::step"
        said = await gdb(
            rank.pid,
            f"source {COMMANDS}",
            # A thread in a system call may also be shown before or after it.
            "tbreak work_step",
            "continue",
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


@pytest.mark.parametrize("which", [pytest.param("usual", marks=pytest.mark.sweep), "newer"])
async def test_a_checkpoint_that_somebody_else_asks_for(
    monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """A GDB that knows the protocol lets its rank go when asked, at any moment; another one is
    named."""
    use_gdb(which, monkeypatch)
    program = build("threads")
    async with bare_job(program, *RUNNING, ranks=2):
        await looks.reach(3)
        rank = looks.shims()[1]

        async def refused() -> str:
            with pytest.raises(Refused) as error:
                await jobs.take_checkpoint(JOB, "", False, lambda event: None)
            return str(error.value)

        debugger = await asyncio.to_thread(Gdb.at, rank.pid)
        assert re.match(r"rank 1: process \d+ has stopped it", await refused())
        debugger.say('-interpreter-exec console "handle SIG62 nostop noprint pass"')
        debugger.go()
        assert re.match(r"rank 1: process \d+ traces it, and does not let go", await refused())
        debugger.interrupt()
        await asyncio.to_thread(debugger.stopped)
        debugger.say(f'-interpreter-exec console "source {COMMANDS}"')
        debugger.say("-break-insert report")
        debugger.go()
        for number in (1, 2):
            taken = await jobs.take_checkpoint(JOB, "", False, Heard(), Settings(herd=120.0))
            assert taken.number == number
            goes_on = Deadline(60)
            await goes_on.until(lambda: proc.status(rank.pid)["State"][0] != "t", "GDB to go on")
        last = looks.end_soon()
        while "breakpoint-hit" not in (stop := await asyncio.to_thread(debugger.stopped)):
            continue  # where it was asked, which users do not see
        assert 'func="report"' in stop
        debugger.say("-target-detach")
        debugger.quit()
        heard = Heard()
        assert await jobs.follow(JOB, heard) == 0
        assert heard.text() == reference(program, "--steps", last, ranks=2)
        for handle in ("job:1", "job:2"):
            heard = Heard()
            await jobs.restart(handle, heard)
            last = looks.end_soon()
            assert await jobs.follow(JOB, heard) == 0
            assert looks.output() == reference(program, "--steps", last, ranks=2)
