"""Requests that programs make of crdebug, in each language, and their effects for operators and
debuggers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, DeadlineExpired, InQuietRegion, Refused
from crdebug.base.events import GroupStopped, JobSays, StopReason
from crdebug.base.settings import Settings
from crdebug.checkpoint.retention import Upkeep
from crdebug.detached import batch, jobs
from crdebug.job.directory import JobDirectory
from crdebug.node import proc
from harness import looks, mpirun, programs
from harness.cli import crdebug
from harness.jobs import JOB, Heard, bare_job, session
from harness.mpirun import reference
from harness.mpis import MPIS

_NOWHERE = "first: -1 0 [] \nin a region: -1 0 [] \nafter a region: -1 0 [] \nbusy: -1 0 [] \n"
_NOWHERE += "back: -1 0 [] \nend of no region: -1 0 [] \n"
_REGION = "in a region: -2 0 [] the rank that asks is in a quiet region itself\n"
_BUSY = (
    "busy: -2 0 [BbcC] rank 1: a callback of the program refuses the checkpoint: "
    "the device is busy\n"
)
_FIRST_LIFE = "first: 0 1 [BbcC] \n" + _REGION + "after a region: 0 2 [BbcC] \n" + _BUSY
_SECOND_LIFE = (
    *("first: 1 1 [BbrR] \n", _REGION, "after a region: 0 3 [BbcC] \n", _BUSY),
    "back: -2 0 [] there is no checkpoint job:99\n",
    "end of no region: -2 0 [] no quiet region has begun\n",
)


TOP = Path(__file__).parents[2]


async def linked(name: str, compiler: str = "") -> Path:
    """A program of ours with the library, as its users link it."""
    cflags = (await crdebug("app", "--cflags")).stdout.split()
    libs = (await crdebug("app", "--libs")).stdout.split()
    return programs.build(name, compiler=compiler, flags=cflags, libraries=libs)


def set_number(name: str, value: int, size: int = 8) -> None:
    """Set a global variable of the program, in every rank."""
    for shim in looks.shims():
        address = looks.address(shim, name)
        proc.write_memory(shim.pid, address, value.to_bytes(size, "little"))


async def test_a_program_asks_goes_back_and_is_left_alone_where_it_wants() -> None:
    program, heard = await linked("asks"), Heard()
    store = JobDirectory(JOB).store
    async with bare_job(program, "--hold", 1, ranks=2):
        attended = asyncio.create_task(batch.attend(JOB, Upkeep(), heard))
        second = "".join(_SECOND_LIFE)
        await Deadline(100).until(lambda: heard.text().endswith(second), "the second life")
        # The launcher may not have written the last lines of the first one.
        assert _FIRST_LIFE.startswith(heard.text().removesuffix(second))
        assert [each.note for each in store.list()] == ["first", *["after a region"] * 2]
        says = [each.text for each in heard.events if isinstance(each, JobSays)]
        assert f"rank 0 asks to go back to {JOB}:1" in says

        # Rank 1 is in a quiet region now; the operator waits, as long as he has the patience.
        await looks.reach(1)
        with pytest.raises(DeadlineExpired, match=r"rank 1: waited 0.2 s for the end of .* quiet"):
            await jobs.take_checkpoint(JOB, "", False, heard, Settings(quiet=0.2))
        taking = asyncio.create_task(jobs.take_checkpoint(JOB, "mine", False, heard))
        set_number("steps", 1)
        assert (await taking).note == "mine"
        set_number("busy", 1, 4)
        with pytest.raises(Refused, match=r"ranks 0-1: a callback .* the device is busy"):
            await jobs.take_checkpoint(JOB, "", False, heard)
        set_number("steps", 2)
        assert await attended == 0
    for each in store.list():
        await jobs.delete(each.handle)


@pytest.mark.parametrize("language", ["Fortran", "mpi4py"])
async def test_in_other_languages(monkeypatch: pytest.MonkeyPatch, language: str) -> None:
    mpi = next((each for each in MPIS if language in each.languages), None)
    if mpi is None:
        pytest.skip(f"no MPI with {language}")
    if language == "mpi4py":
        monkeypatch.setenv("PYTHONPATH", str(TOP))  # its Python has no crdebug of its own
        program: list[object] = [mpi.python, TOP / "tests" / "programs" / "asks.py"]
    else:
        program = [await linked("asking", mpi.tool("mpifort"))]
    heard = Heard()
    argv = [*mpi.launch(2), *map(str, program)]
    assert mpirun.run(argv).expect().stdout == _NOWHERE
    await jobs.run_detached(argv, JOB, Settings())
    try:
        assert await batch.attend(JOB, Upkeep(), heard) == 0
        assert heard.text().endswith("".join(_SECOND_LIFE)), heard.text()
    finally:
        with suppress(CrdebugError):
            await jobs.kill(JOB)
    for each in JobDirectory(JOB).store.list():
        await jobs.delete(each.handle)


async def test_under_the_debugger_its_user_decides() -> None:
    """The job is stopped for a checkpoint and runs on; at the prompt a quiet region refuses it."""
    program, heard = await linked("asks"), Heard()

    def says() -> list[str]:
        return [each.text for each in heard.events if isinstance(each, JobSays)]

    async def at_step(number: int) -> asyncio.Task[GroupStopped]:
        running = asyncio.create_task(job.resume(job.ranks))
        await looks.reach(number)
        return running

    async with session(program, "--hold", 1, ranks=2, heard=heard) as job:
        stop = await job.resume(job.ranks)
        assert {each.reason for each in stop.cause} == {StopReason.INTERRUPT}
        await Deadline(100).until(lambda: heard.text() == _FIRST_LIFE, "the launcher's output")
        assert says() == ["rank 0 asks to go back: 'restart 1' does that"]
        assert "crdebug_restart" in str(await job.backtrace(job.ranks))
        await job.restart(1)
        await job.resume(job.ranks)
        assert says()[1:] == ["rank 0 asks to go back: 'restart 99' does that"]

        running = await at_step(1)
        back = "back: -2 0 [] a debugger is attached, and its user decides\n"
        await Deadline(100).until(lambda: heard.text().endswith(_SECOND_LIFE[-1]), "the program")
        assert heard.text() == _FIRST_LIFE + "".join((*_SECOND_LIFE[:4], back, _SECOND_LIFE[-1]))
        taking = asyncio.create_task(jobs.take_checkpoint(JOB, "put off", False, heard))
        set_number("steps", 1)
        assert (await taking).note == "put off"
        await Deadline(100).until(lambda: job.running == job.ranks, "the job to run on")
        await job.interrupt()
        await running
        set_number("steps", 0)
        assert not says()[2:]
        await job.checkpoint("mine")
        why = "the job is stopped, so its callbacks before a checkpoint are not called"
        assert says()[2:] == [f"ranks 0-1: {why}"]

        await job.restart(1)
        await job.resume(job.ranks)
        running = await at_step(1)
        await job.interrupt()
        await running
        with pytest.raises(InQuietRegion, match=r"rank 1: the program allows no checkpoint here"):
            await job.checkpoint()
        with pytest.raises(CrdebugError, match=r"rank 1: the program allows no checkpoint here"):
            await jobs.take_checkpoint(JOB, "", False, heard)


async def test_the_answer_comes_at_once_if_no_rank_is_asked() -> None:
    """Without crdebug, and when no crdebug attends to the job."""
    program, heard = await linked("asks"), Heard()
    assert reference(program, ranks=2) == _NOWHERE
    async with bare_job(program, ranks=2):
        assert await jobs.follow(JOB, heard) == 0
    assert heard.text() == _NOWHERE[: _NOWHERE.index("end of")] + _SECOND_LIFE[-1]
