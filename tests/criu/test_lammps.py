"""Unmodified software: Debian's LAMMPS, and a small Lennard-Jones melt.

Molecular dynamics is chaotic: if a checkpoint changed one bit, the trajectory would soon be
another.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.events import StopReason
from crdebug.detached import jobs
from crdebug.session import Session
from harness import looks, mpirun
from harness.jobs import JOB, run_to_end, session
from harness.lammps import melt

# The last step, and checkpoints at these steps or soon after them.
LONG = (3000, (400, 900, 1400, 1900, 2400))
SHORT = (1300, (300, 700))
OUTPUT = """dump 1 all custom 500 melt.dump id x y z vx vy vz
dump_modify 1 sort id format float %.17g
thermo 50
thermo_style custom step temp epair emol etotal press
thermo_modify format float %.17g flush yes"""
_ROW = re.compile(r"^ *(\d+)(?: +[-0-9.e+]+){5} *$", re.M)


def thermo(text: str) -> list[str]:
    """The rows of the table that LAMMPS prints: a step, and energies digit for digit."""
    return [match[0] for match in _ROW.finditer(text)]


def last_step(text: str) -> int:
    return max((int(match[1]) for match in _ROW.finditer(text)), default=0)


def results(stdout: str, directory: Path) -> tuple[list[str], list[str], bytes]:
    """A run's results, in all places where they are printed."""
    log = (directory / "log.lammps").read_text()
    return thermo(stdout), thermo(log), (directory / "melt.dump").read_bytes()


@pytest.fixture
def lammps() -> str:
    program = shutil.which("lmp")
    assert program is not None, "Debian's package 'lammps' is not installed"
    return program


def is_after(step: int) -> bool:
    return last_step(looks.output()) > step


async def run_into(job: Session, step: int) -> None:
    """Run until LAMMPS has printed a step; then stop it wherever it is."""
    running = asyncio.create_task(job.resume(job.ranks))
    while (told := last_step(looks.output())) < step:
        more = f"LAMMPS to tell of more than step {told}"
        await Deadline(60).until(partial(is_after, told), more)
    await job.interrupt()
    stop = await running
    assert {each.reason for each in stop.cause} == {StopReason.INTERRUPT}


async def test_checkpoints_and_a_restart_from_each(
    lammps: str, tmp_path: Path, thorough: bool
) -> None:
    """With a debugger and without, by turns."""
    steps, checkpoints = LONG if thorough else SHORT
    here, there = tmp_path, tmp_path / "undisturbed"
    there.mkdir()
    for directory in (here, there):
        (directory / "in.melt").write_text(melt(8, steps, OUTPUT))
    command = mpirun.command(lammps, "-in", "in.melt", ranks=2)
    expected = results(mpirun.run(command, cwd=there).expect().stdout, there)
    assert len(expected[0]) == steps // 50 + 1

    async with session(Path(lammps), "-in", "in.melt", ranks=2) as job:
        for step in checkpoints:
            await run_into(job, step)
            await job.checkpoint(f"step {step}")
        assert await run_to_end(job) == 0
        assert results(looks.output(), here) == expected

    for number in range(1, len(checkpoints) + 1):
        handle = f"{JOB}:{number}"
        if number % 2:
            job = await Session.restart_from(handle)
            try:
                assert last_step(looks.output()) < steps
                assert await run_to_end(job) == 0
            finally:
                await job.close()
        else:
            await jobs.restart(handle, lambda event: None)
            assert await jobs.follow(JOB, lambda event: None) == 0
        assert results(looks.output(), here) == expected, handle
    for checkpoint in await jobs.list_checkpoints(JOB):
        await jobs.delete(checkpoint.handle)
