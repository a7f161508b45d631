"""What programs ask of crdebug, in each language, and what operators and debuggers see of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from crdebug import batch, jobs
from crdebug.checkpoint.upkeep import Upkeep
from crdebug.config import Settings
from crdebug.deadline import Deadline
from crdebug.errors import DeadlineExpired, Refused
from crdebug.events import JobSays
from crdebug.job.record import JobDirectory
from crdebug.node import proc
from harness import looks, programs
from harness.cli import crdebug
from harness.jobs import JOB, Heard, bare_job
from harness.mpirun import reference

_NOWHERE = "first: -1 0 [] \nin a region: -1 0 [] \nafter a region: -1 0 [] \nbusy: -1 0 [] \n"
_NOWHERE += "back: -1 0 [] \nend of no region: -1 0 [] \n"
_REGION = "in a region: -2 0 [] the rank that asks is in a quiet region itself\n"
_BUSY = (
    "busy: -2 0 [BbcC] rank 1: a callback of the program does not want the checkpoint: "
    "the device is busy\n"
)
_FIRST_LIFE = "first: 0 1 [BbcC] \n" + _REGION + "after a region: 0 2 [BbcC] \n" + _BUSY
_SECOND_LIFE = (
    *("first: 1 1 [BbrR] \n", _REGION, "after a region: 0 3 [BbcC] \n", _BUSY),
    "back: -2 0 [] there is no checkpoint job:99\n",
    "end of no region: -2 0 [] no quiet region has begun\n",
)


async def linked(name: str) -> Path:
    """A program of ours with the library, as its users link it."""
    cflags = (await crdebug("app", "--cflags")).stdout.split()
    libs = (await crdebug("app", "--libs")).stdout.split()
    return await asyncio.to_thread(programs.build, name, flags=cflags, libraries=libs)


def set_number(name: str, value: int, size: int = 8) -> None:
    """A global variable of the program, in every rank."""
    for shim in looks.shims():
        address = looks._address(shim, name)
        proc.write_memory(shim.pid, address, value.to_bytes(size, "little"))


async def test_a_program_asks_goes_back_and_is_left_alone_where_it_wants() -> None:
    program, heard = await linked("asks"), Heard()
    store = JobDirectory(JOB).store
    async with bare_job(program, "--hold", 1, ranks=2):
        attended = asyncio.create_task(batch.attend(JOB, Upkeep(), heard))
        limit = Deadline(60)
        await limit.until(lambda: "end of" in heard.text() or attended.done(), "the program")
        assert heard.text() == _FIRST_LIFE + "".join(_SECOND_LIFE)
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


async def test_where_nobody_is_asked_the_answer_comes_at_once() -> None:
    """Without crdebug, and when nobody attends to the job."""
    program, heard = await linked("asks"), Heard()
    assert reference(program, ranks=2) == _NOWHERE
    async with bare_job(program, ranks=2):
        assert await jobs.follow(JOB, heard) == 0
    assert heard.text() == _NOWHERE[: _NOWHERE.index("end of")] + _SECOND_LIFE[-1]
