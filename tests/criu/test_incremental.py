"""Checkpoints that hold only changes since the previous one, on a kernel that tracks changes.

On other kernels: scripts/in-vm .venv/bin/python -m pytest tests/criu/test_incremental.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from crdebug.base.errors import CrsFailed, StoreError
from crdebug.base.settings import Settings
from crdebug.checkpoint.retention import Keep
from crdebug.checkpoint.store import Checkpoint
from crdebug.detached import batch, jobs
from crdebug.job.directory import JobDirectory
from crdebug.node.criu_program import find_criu
from harness import looks
from harness.faults import FaultyCriu, half_checkpoints
from harness.jobs import JOB, Heard, bare_job, run_to_end, session
from harness.mpirun import reference
from harness.programs import build

# A virtual machine without hardware's help takes its time.
pytestmark = [pytest.mark.timeout(3000), pytest.mark.vm]
SLOW = 1200.0
RANKS = 2
# Of 8192 pages of each rank a step changes 2; the result depends on each byte.
MUCH = ("--mib", 32, "--touch", 2, "--steps")
SLOWLY = ("--delay-us", 200_000)


@pytest.fixture(autouse=True)
def tracked() -> None:
    program = find_criu()
    assert program is not None
    if not program.tracks:
        pytest.skip("the kernel does not tell changed pages; scripts/in-vm has one that does")


def patient(full_every: int) -> Settings:
    return Settings(
        full_every=full_every, launch=SLOW, attach=SLOW, stop=SLOW, command=SLOW, herd=SLOW
    )


def expected(last: int) -> str:
    return reference(build("memory"), *MUCH, last, ranks=RANKS)


async def changed(steps: int = 5) -> None:
    await looks.reach(max(looks.steps()) + steps, seconds=SLOW)


async def take(settings: Settings) -> Checkpoint:
    """Take one more checkpoint, after memory has changed."""
    await changed()
    return await jobs.take_checkpoint(JOB, "", False, Heard(), settings)


async def comes_back(handle: str, settings: Settings) -> None:
    """The job comes back with its memory as it was, to the last byte: the program ends with the
    right sum."""
    await jobs.restart(handle, Heard(), settings)
    await changed()
    last = looks.end_soon()
    assert await jobs.follow(JOB, Heard()) == 0, looks.output(stream="stderr")
    assert looks.output() == expected(last)


async def test_from_each_of_a_chain_a_job_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, place = patient(3), tmp_path / "second"
    criu = FaultyCriu(monkeypatch, tmp_path)
    directory = JobDirectory(JOB)
    async with bare_job(build("memory"), *MUCH, 10**9, *SLOWLY, ranks=RANKS, settings=settings):
        await looks.reach(2, seconds=SLOW)
        first, second, third, fourth, fifth = [await take(settings) for _ in range(5)]
        # a full one every three
        bases = [(), (1,), (2, 1), (), (4,)]
        assert [each.bases for each in directory.store.list()] == bases
        memory = RANKS * 32 << 20
        assert min(first.size, fourth.size) > memory
        assert max(second.size, third.size, fifth.size) < memory / 4
        # a dump that failed may have had the kernel forget what was changed
        criu.will("kill", "dump", 2, at="Dumping pages .type:")
        with pytest.raises(CrsFailed):
            await take(settings)
        criu.work_again()
        sixth = await take(settings)
        await take(settings)
        # one that cannot build on another is full
        criu.will("fail", "dump", option="--prev-images-dir")
        await take(settings)
        assert criu.reached
        criu.work_again()
        assert [each.bases for each in directory.store.list()[5:]] == [(), (sixth.number,), ()]
        assert half_checkpoints() == []

        for each in (third, fifth, second, first):
            await jobs.restart(each.handle, Heard(), settings)
        # these are other processes, about which nothing is known yet
        ninth = await take(settings)
        await take(settings)
        assert [each.bases for each in directory.store.list()[8:]] == [(), (ninth.number,)]
        await comes_back(third.handle, settings)

    # What others need stays, and is not listed; a second place has it too.
    await batch.stage(third.handle, place)
    for each in (second, first):
        await jobs.delete(each.handle)
    assert [each.number for each in directory.store.list()][:1] == [third.number]
    await comes_back(third.handle, settings)
    shutil.rmtree(directory.path)
    handle = await batch.handle_of(JOB, place)
    assert handle == third.handle
    await comes_back(handle, settings)

    for pages in directory.store.path(1).glob("images/pages-*.img"):
        pages.write_bytes(b"")
    with pytest.raises(StoreError, match=f"{third.handle} builds on {JOB}:1: images/pages-.* was"):
        await jobs.restart(third.handle, Heard(), settings)
    assert await batch.handle_of(third.handle) == third.handle  # from the second place
    await comes_back(third.handle, settings)
    await jobs.delete(third.handle)
    assert not directory.path.exists()
    assert not list(place.rglob("*.img*"))


async def test_under_a_debugger_and_with_crdebugs_own_between_them() -> None:
    settings = patient(10)
    async with session(build("memory"), *MUCH, 60, ranks=RANKS, settings=settings) as job:
        await job.add_breakpoint(job.ranks, "work_step")
        attended = job._attended
        assert attended is not None
        taken, places = [], []
        for _ in range(3):
            for _ in range(3):
                await job.resume(job.ranks)
            taken.append(await job.checkpoint())
            places.append(looks.steps())
            await job.resume(job.ranks)
            own = await attended.checkpoint("", attended.directory.history)
            assert own.bases == ()
        assert [each.bases for each in taken] == [(), (1,), (2, 1)]
        assert max(each.size for each in taken[1:]) < taken[0].size / 4
        for number in (3, 1, 2):
            await job.restart(number)
            assert looks.steps() == places[number - 1]
        assert await run_to_end(job) == 0
        assert looks.output() == expected(60)
        await job.restart(3)
        assert await run_to_end(job) == 0
        assert looks.output() == expected(60)
    # without one, and only the newest stays
    assert await batch.prune(JOB, Keep(count=1)) == (f"{JOB}:1", f"{JOB}:2")
    await jobs.restart(f"{JOB}:3", Heard(), settings)
    assert await jobs.follow(JOB, Heard()) == 0
    assert looks.output() == expected(60)
    await jobs.delete(f"{JOB}:3")
