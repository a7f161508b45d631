"""There and back again, many times: nothing leaks, and no step is lost or changed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace

import psutil
import pytest

from crdebug.base.settings import state_home
from crdebug.detached import jobs
from harness import looks
from harness.jobs import JOB, as_by_default, bare_job, run_to_end, session
from harness.leaks import MARK, Footprint
from harness.mpirun import reference
from harness.programs import build

KEPT = 2  # checkpoints


@dataclass(frozen=True, slots=True)
class Use:
    """The job's and our use of the machine. memory: of the GDBs and us, in bytes."""

    processes: int
    namespaces: int
    files: int
    scratch: int
    runs: int
    entries: int
    disk: int
    memory: int


@pytest.fixture(autouse=True)
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A directory for temporary files that nobody else uses; its name must be short (unix(7))."""
    with tempfile.TemporaryDirectory(prefix="soak-") as path:
        monkeypatch.setattr(tempfile, "tempdir", path)
        yield


def use() -> Use:
    now = Footprint.take(os.environ[MARK], state_home())
    job = state_home() / "jobs" / JOB
    mine = psutil.Process()
    gdbs = [child for child in mine.children() if child.name() == "gdb"]
    return Use(
        processes=len(now.processes),
        namespaces=len(now.namespaces),
        files=len(now.files),
        scratch=len(os.listdir(tempfile.gettempdir())),
        runs=len(list(job.glob("run/*"))),
        entries=len([*job.iterdir(), *job.glob("*/*")]),
        disk=sum(path.stat().st_blocks * 512 for path in job.rglob("*") if path.is_file()),
        memory=sum(each.memory_info().rss for each in (mine, *gdbs)),
    )


def require_no_leak(uses: list[Use]) -> None:
    """uses: after each cycle. From the third on, the number of checkpoints stays the same."""
    early, late = uses[KEPT], uses[-1]
    assert len(uses) > 2 * KEPT
    assert late == replace(early, disk=late.disk, memory=late.memory)
    assert late.disk < 1.2 * early.disk  # images of a program that does not grow
    # What Python and GDB keep grows less and less (measured: 1 % from the middle on).
    middle = uses[len(uses) // 2]
    assert late.memory < 1.05 * middle.memory
    assert late.runs == 1


async def forget_old() -> None:
    for checkpoint in (await jobs.list_checkpoints(JOB))[:-KEPT]:
        await jobs.delete(checkpoint.handle)


@pytest.mark.sweep
@pytest.mark.timeout(1800)  # for a test that hangs; a machine may be slow
async def test_cycles_under_the_debugger(thorough: bool) -> None:
    program = build("threads")
    arguments = ("--steps", 70, "--quota", 20)
    uses = []
    async with session(program, *arguments, settings=as_by_default()) as job:
        await job.add_breakpoint(job.ranks, "work_step")
        for _ in range(50 if thorough else 7):
            await job.resume(job.ranks)
            await job.checkpoint()
            before = looks.steps()
            for _ in range(2):
                await job.resume(job.ranks)
            assert looks.steps() != before
            await job.restart()
            assert looks.steps() == before
            await forget_old()
            uses.append(use())
        assert await run_to_end(job) == 0
        assert looks.output() == reference(program, *arguments)
    require_no_leak(uses)
    for checkpoint in await jobs.list_checkpoints(JOB):
        await jobs.delete(checkpoint.handle)


@pytest.mark.timeout(1800)
async def test_cycles_without_a_debugger_while_the_job_runs(thorough: bool) -> None:
    """Each restart replaces a job that is running and writing into its files."""
    uses = []
    async with bare_job(build("files"), "--steps", 10**9, "--delay-us", 5000):
        await looks.reach(1)
        for number in range(20 if thorough else 6):
            taken = await jobs.take_checkpoint(JOB, "", False, lambda event: None)
            await looks.reach(max(looks.steps()) + 5)
            again = await jobs.restart(taken.handle, lambda event: None)
            assert (again.state, again.incarnation) == ("running", number + 2)
            await forget_old()
            uses.append(use())
        last = looks.end_soon()
        assert await jobs.follow(JOB, lambda event: None) == 0, looks.output(stream="stderr")
    expected = [f"rank {rank} step {step}" for step in range(1, last + 1) for rank in range(4)]
    ends = [f"rank {rank}: files ok, {last} lines" for rank in range(4)]
    assert sorted(looks.output().splitlines()) == sorted(expected + ends)
    require_no_leak(uses)
    for checkpoint in await jobs.list_checkpoints(JOB):
        await jobs.delete(checkpoint.handle)
