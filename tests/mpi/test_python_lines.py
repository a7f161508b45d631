"""Breakpoints and steps at lines of Python."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crdebug.acquire.discovery import find_job
from crdebug.base.answers import NoRankAnswered
from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, CrdebugError
from crdebug.base.settings import Settings
from crdebug.node import proc
from crdebug.session import Session
from harness import mpirun, plain
from harness.jobs import JOB, Heard, run_to_end
from harness.mpis import Mpi
from harness.programs import build
from harness.solves import CALL, SOLVES, WHEELS, at, command, needs_mpi4py, number
from harness.talk import Talk

each_wheel = pytest.mark.parametrize(
    "mpi",
    [
        pytest.param(mpi, id=mpi.name, marks=() if mpi in WHEELS[:1] else pytest.mark.sweep)
        for mpi in WHEELS
    ],
)
pytestmark = needs_mpi4py
LAST = at("last += sum(halves(2))")
MINE, TOTAL = at("mine = self.value * 2 + step"), at("total = comm.allreduce(mine)")


@asynccontextmanager
async def solving(
    mpi: Mpi, *arguments: object, record: bool = False, heard: Heard | None = None
) -> AsyncIterator[Talk]:
    job = await Session.run(
        command(mpi, *arguments),
        name=JOB,
        settings=Settings(record=record),
        subscriber=heard or Heard(),
    )
    try:
        yield Talk(job)
    finally:
        await job.close()


@each_wheel
async def test_breakpoints_from_before_python_has_begun(mpi: Mpi) -> None:
    heard = Heard()
    expected = mpirun.run(command(mpi, 5)).stdout
    async with solving(mpi, 5, heard=heard) as talk:
        only = "if rank == 1 and step == 2"  # the first rank that comes there stops the others
        assert await talk(f"break {TOTAL} {only}") == f"breakpoint 1 on [0-1]: {TOTAL} {only}"
        told = await talk(f"tbreak {LAST} if rank == 0")
        assert told == f"temporary breakpoint 2 on [0-1]: {LAST} if rank == 0"
        said = await talk("continue")
        assert f"rank 0 hit breakpoint 2: main at {LAST}" in said, said
        assert "last += sum(halves(2))" in said
        assert f"rank 1 hit breakpoint 1: Solver.relax at {TOTAL}" in await talk("continue")
        assert await talk("[1] pyprint step") == "[1] = 2"
        assert _rows(await talk("info breakpoints")) == [["1", "1"]]
        await talk("condition 1 rank == 0 and step > 3")
        said = await talk("continue")
        assert f"rank 0 hit breakpoint 1: Solver.relax at {TOTAL}" in said, said
        assert await talk("[0] pyprint step") == "[0] = 4"
        with pytest.raises(BadInput, match="no expression of Python's: invalid syntax"):
            await talk("condition 1 step >")
        await talk("condition 1 no_such_name")  # true, as for GDB
        assert await run_to_end(talk.context.session) == 0
    assert sorted(heard.text().splitlines()) == sorted(expected.splitlines())


def _rows(table: str) -> list[list[str]]:
    """Number and hits."""
    return [re.split(r"  +", line)[0:4:3] for line in table.splitlines()[1:]]


@each_wheel
async def test_steps(mpi: Mpi) -> None:
    async with solving(mpi, 9) as talk:
        await talk(f"barrier {MINE}")
        for place in (
            f"Solver.relax at {TOTAL}",
            f"Solver.relax at {at('self.value = total / 3')}",
        ):
            assert f"[0-1] {place}" in await talk("next")
        assert f"ranks 0-1 returned to main at {at('try:')}" in await talk("finish")
        assert f"main at {at('fails(step)')}" in await talk("next")
        assert f"fails at {at('raise ValueError(step)')}" in await talk("step")
        # out of it by the exception
        assert f"main at {at('except ValueError:')}" in await talk("next")
        assert f"main at {LAST}" in await talk("next 2")
        # into a generator, and out of it where it waits
        assert "halves at" in await talk("step")
        assert f"halves at {at('yield step / 2')}" in await talk("next")
        said = await talk("finish")
        assert "returned to main at" in said, said
        # a breakpoint ends a step
        await talk(f"break {MINE}")
        for rank in (0, 1):
            hit = f"rank {rank} hit breakpoint 2: Solver.relax at {MINE}"
            assert any([hit in await talk(f"[{rank}] next") for _ in range(2)])
        # without one
        await talk("delete 2")
        assert f"[0-1] Solver.relax at {TOTAL}" in await talk("next")
        assert await run_to_end(talk.context.session) == 0


async def test_it_can_be_set_while_python_runs() -> None:
    async with solving(WHEELS[0], 9, record=True) as talk:
        await talk("barrier MPI_Barrier")
        await talk("delete")
        await talk(f"break {CALL} if step == 7 and rank == 1")
        assert f"rank 1 hit breakpoint 2: main at {CALL}" in await talk("continue")
        assert await talk("[1] pyprint step") == "[1] = 7"


async def test_a_line_without_code_is_that_which_follows() -> None:
    async with solving(WHEELS[0], 2) as talk:
        without = f"{SOLVES}:{number('# no code here')}"
        assert await talk(f"break {without}") == f"breakpoint 1 on [0-1]: {SOLVES.parent}/{TOTAL}"
        assert f"hit breakpoint 1: Solver.relax at {TOTAL}" in await talk("continue")
        with pytest.raises(BadInput, match=r"there is no code at line 999 of .*solves\.py"):
            await talk(f"break {SOLVES}:999")


async def test_what_cannot_be_set() -> None:
    async with solving(WHEELS[0], 2) as talk:
        with pytest.raises(BadInput, match="the condition is no expression of Python's"):
            await talk(f"break {CALL} if step = 3")
        with pytest.raises(BadInput, match="trace points are not for lines of Python"):
            await talk(f"trace {CALL}, step")
        for _ in range(32):
            await talk(f"break {CALL}")
        with pytest.raises(CrdebugError, match="breakpoints at 32 lines of Python already"):
            await talk(f"break {CALL}")
        await talk("delete 1")
        await talk(f"break {CALL}")


async def test_beside_a_trace_function_of_the_program_there_is_none() -> None:
    heard = Heard()
    async with solving(WHEELS[0], 9, "traced", record=True, heard=heard) as talk:
        await talk("barrier MPI_Barrier")
        await talk(f"break {CALL}")
        assert "exited with status 0" in await talk("continue")
        assert any("has a trace function of its own" in str(each) for each in heard.events)


async def test_a_job_that_crdebug_did_not_start_needs_its_library_first(tmp_path: Path) -> None:
    with plain.started(command(WHEELS[0], 10**9), tmp_path / "output") as launcher:
        await Deadline(60).until(lambda: _python_ranks(launcher.pid) == 2, "both to run Python")
        job = await Session.attach(str(launcher.pid))
        try:
            with pytest.raises(CrdebugError, match="need crdebug's library in it"):
                await Talk(job)(f"break {CALL}")
        finally:
            await job.detach()


def _python_ranks(launcher: int) -> int:
    with contextlib.suppress(CrdebugError):
        return sum(_runs_mpi(each.pid) for each in find_job(launcher).entries)
    return 0


def _runs_mpi(pid: int) -> bool:
    return any("mpi4py" in each.path for each in proc.maps(pid))


async def test_a_rank_in_c_has_no_such_line() -> None:
    mpirun.require_many_programs()
    argv = [*mpirun.command(build("pingpong"), ranks=1)]
    job = await Session.run(argv, name=JOB)
    try:
        with pytest.raises((NoRankAnswered, CrdebugError), match="it runs no Python"):
            await Talk(job)("break solver.py:3")
    finally:
        await job.close()
