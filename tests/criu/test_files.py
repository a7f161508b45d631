"""Files that a job has written, and its own output, go back with it.

tests/programs/files.c writes in every possible way, and checks at its end that each step was
written exactly once.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from crdebug.base.errors import CrdebugError, OfTheMoment, Refused, StoreError
from crdebug.base.events import JobSays
from crdebug.checkpoint import open_files as saved_files
from crdebug.detached import jobs
from crdebug.job import imaging, restoring
from crdebug.job.directory import JobDirectory
from crdebug.node import files_used
from crdebug.session import Session
from harness import looks, mpirun
from harness.faults import small_disk
from harness.jobs import JOB, Heard, bare_job, run_to_end, session
from harness.lines import require_the_end
from harness.programs import build

RANKS = 2
STEPS = 30
HERE = 10  # the step of the checkpoint
HANDLE = f"{JOB}:1"
PATTERNS = ("append.*", "table.*", "mapped.*")


def files() -> dict[str, bytes]:
    """The contents of the files that the program has open, or mapped."""
    return {str(path): path.read_bytes() for each in PATTERNS for path in Path().glob(each)}


def require_all_steps(last: int = STEPS) -> None:
    """Each rank has written each step once, in order; the program found its files right."""
    lines = looks.output().splitlines()
    for rank in range(RANKS):
        told = [line for line in lines if line.startswith(f"rank {rank} ")]
        assert told == [f"rank {rank} step {step}" for step in range(1, last + 1)]
    require_the_end(looks.output(), RANKS, last)


def written_at_checkpoint() -> str:
    return (JobDirectory(JOB).store.path(1) / "run" / "stdout").read_text()


async def stop_at(job: Session, step: int) -> None:
    """Run all ranks to the beginning of a step."""
    stop = await job.add_breakpoint(job.ranks, "work_step", condition=f"step == {step}")
    while min(looks.steps()) < step:
        await job.resume(job.ranks)
    await job.delete_breakpoint(stop.number)


async def forget() -> None:
    for checkpoint in await jobs.list_checkpoints(JOB):
        await jobs.delete(checkpoint.handle)


async def run_to_end_bare() -> None:
    assert await jobs.follow(JOB, lambda event: None) == 0, looks.output(stream="stderr")


def writes_files() -> bool:
    """Can mpirun itself write each rank's output to a file? Debian 13's (PRRTE 3.0.8) cannot."""
    options = ("--output-filename", "tried")
    return mpirun.run(mpirun.command("echo", "there", ranks=1, options=options)).stdout == "there\n"


async def test_everything_is_as_it_was_at_the_checkpoint_and_goes_on_from_there() -> None:
    """Under the debugger, in the middle of a run and after its end; then without one."""
    heard = Heard()
    options = ("--output-filename", "out") if writes_files() else ()  # mpirun writes files too
    async with session(
        build("files"), "--steps", STEPS, ranks=RANKS, heard=heard, options=options
    ) as job:
        await stop_at(job, HERE)
        taken = await job.checkpoint()
        then = files()
        for later in (HERE + 5, None):
            if later is None:
                assert await run_to_end(job) == 0
            else:
                await stop_at(job, later)
            assert files() != then
            await job.restart(taken.number)
            assert files() == then
            told = len(heard.text())
        assert await run_to_end(job) == 0
    require_all_steps()
    # All output after a restart is reported, and none from before it.
    assert written_at_checkpoint() + heard.text()[told:] == looks.output()
    for rank in range(RANKS) if options else ():
        own = Path(f"out/1/rank.{rank}/stdout").read_text().splitlines()
        assert [line for line in own if line.startswith(f"rank {rank} step")] == [
            f"rank {rank} step {step}" for step in range(1, STEPS + 1)
        ]

    await jobs.restart(HANDLE, lambda event: None)
    await run_to_end_bare()
    require_all_steps()
    assert looks.output().startswith(written_at_checkpoint())
    await forget()


def cut(path: Path) -> None:
    os.truncate(path, 12)  # a line


def replace(path: Path) -> None:
    path.unlink()
    path.write_text("something else\n" * 1000)


SPOILT: dict[str, tuple[Callable[[Path], None], str]] = {
    "cut": (cut, r"append\.1 has \d+ bytes, and had \d+ bytes at the checkpoint"),
    "removed": (Path.unlink, r"append\.1 is missing, and had \d+ bytes at the checkpoint"),
    "replaced": (replace, r"append\.1 was rewritten since the checkpoint"),
}


@pytest_asyncio.fixture
async def ended() -> None:
    """A job that was checkpointed without a debugger, and then came to its end."""
    async with bare_job(build("files"), "--steps", 200, "--delay-us", 20000, ranks=RANKS):
        await looks.reach(HERE)
        await jobs.take_checkpoint(JOB, "", False, lambda event: None)
        await run_to_end_bare()


@pytest.mark.usefixtures("ended")
async def test_an_append_only_file_that_lost_content_is_named_and_nothing_changed() -> None:
    whole = Path("append.1").read_bytes()
    was = files()
    for spoil, words in SPOILT.values():
        spoil(Path("append.1"))
        now = files()
        for begin in (lambda: jobs.restart(HANDLE, Heard()), lambda: Session.restart_from(HANDLE)):
            with pytest.raises(StoreError, match=words):
                await begin()
            assert files() == now
        (info,) = await jobs.list_jobs()
        assert (info.state, info.incarnation, info.status) == ("ended", 1, 0)
        Path("append.1").write_bytes(whole)
        assert files() == was
    await jobs.restart(HANDLE, lambda event: None)
    await run_to_end_bare()
    require_all_steps(200)
    await forget()


@pytest.mark.usefixtures("ended")
async def test_files_whose_content_was_kept_come_back_even_if_they_are_gone() -> None:
    for path in (Path("table.0"), Path("mapped.1")):
        path.unlink()
    await jobs.restart(HANDLE, lambda event: None)
    await run_to_end_bare()
    require_all_steps(200)
    await forget()


# ---- restarts that fail ------------------------------------------------------------------------


class Broken(CrdebugError):
    """The error that makes a restart fail."""


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, bytes]]:
    """Make the restart fail when the CRS has restored every process.

    Returns the contents of the files at that moment.
    """
    seen: list[dict[str, bytes]] = []

    def fail(*arguments: object, **options: object) -> None:
        seen.append(files())
        raise Broken("it was to fail")

    monkeypatch.setattr(restoring, "set_variables", fail)
    return lambda: seen[-1]


async def fails(restart: Awaitable[object]) -> None:
    with pytest.raises(Broken, match="it was to fail"):
        await restart


async def test_a_restart_that_fails_leaves_a_running_job_as_it_was(
    broken: Callable[[], dict[str, bytes]],
) -> None:
    """It is stopped meanwhile, its files are not touched, and it never notices."""
    async with bare_job(build("files"), "--steps", 10**9, "--delay-us", 2000, ranks=RANKS):
        await looks.reach(HERE)
        await jobs.take_checkpoint(JOB, "", False, lambda event: None)
        length = Path("append.0").stat().st_size
        for _ in range(3):
            await looks.reach(max(looks.steps()) + HERE)
            await fails(jobs.restart(HANDLE, lambda event: None))
            assert length < len(broken()["append.0"]) <= Path("append.0").stat().st_size
            await fails(Session.restart_from(HANDLE))
        (info,) = await jobs.list_jobs()
        assert (info.state, info.incarnation) == ("running", 1)
        last = looks.end_soon()
        await run_to_end_bare()
        require_all_steps(last)
    await forget()


@pytest.mark.usefixtures("broken")
async def test_a_restart_that_fails_leaves_no_trace_in_system_calls() -> None:
    arguments = ("--timeout-ms", 1500, "--rounds", 4, "--steps", 10**6)
    async with bare_job(build("syscalls"), *arguments, ranks=RANKS):
        await looks.reach(HERE)
        await jobs.take_checkpoint(JOB, "", False, lambda event: None)
        for _ in range(2):
            await looks.reach(max(looks.steps()) + HERE)
            await fails(jobs.restart(HANDLE, lambda event: None))
        looks.end_soon()
        await run_to_end_bare()
        assert looks.output() == "".join(f"rank {rank}: syscalls ok\n" for rank in range(RANKS))
    await forget()


@pytest.mark.usefixtures("broken")
async def test_a_restart_that_fails_leaves_a_debugged_job_as_it_was() -> None:
    async with session(build("files"), "--steps", STEPS, ranks=RANKS) as job:
        await stop_at(job, HERE)
        await job.checkpoint()
        for later in (HERE + 5, HERE + 10):
            await stop_at(job, later)
            now = files()
            await fails(job.restart())
            assert files() == now
            assert looks.steps() == (later,) * RANKS
        assert await run_to_end(job) == 0
        require_all_steps()
    await forget()


# ---- memory ------------------------------------------------------------------------------------


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make the machine report this many bytes of available memory."""
    return lambda size: monkeypatch.setattr("crdebug.node.memory.available", lambda: size)


def ended_first(heard: Heard) -> bool:
    return restoring.NO_MEMORY_FOR_BOTH in heard.events


async def test_without_memory_for_both_the_running_job_is_ended_first(
    memory: Callable[[int], None],
) -> None:
    memory(
        32 << 20
    )  # too little for both; enough with the memory that the job gives back, however it is shared
    heard = Heard()
    async with bare_job(build("files"), "--steps", 10**9, "--delay-us", 2000, ranks=RANKS):
        await looks.reach(HERE)
        await jobs.take_checkpoint(JOB, "", False, lambda event: None)
        await jobs.restart(HANDLE, heard)
        assert ended_first(heard)
        assert [(each.state, each.incarnation) for each in await jobs.list_jobs()] == [
            ("running", 2)
        ]
        heard.events.clear()
        job = await Session.restart_from(HANDLE, subscriber=heard)
        try:
            assert ended_first(heard)
            heard.events.clear()
            await stop_at(
                job, max(looks.steps()) + 10
            )  # nobody knows when the checkpoint was taken
            await job.restart()
            assert ended_first(heard)
            last = looks.end_soon()
            assert await run_to_end(job) == 0
        finally:
            await job.close()
        require_all_steps(last)
    await forget()


@pytest.mark.usefixtures("ended")
async def test_without_memory_at_all_nothing_is_begun(memory: Callable[[int], None]) -> None:
    was = files()
    memory(1 << 20)
    for begin in (lambda: jobs.restart(HANDLE, Heard()), lambda: Session.restart_from(HANDLE)):
        with pytest.raises(
            Refused, match=r"a restart needs \d+ MiB of memory, but only 1 MiB is available"
        ):
            await begin()
    assert files() == was
    memory(1 << 30)
    await jobs.restart(HANDLE, lambda event: None)
    await run_to_end_bare()
    require_all_steps(200)
    await forget()


# ---- mounts ------------------------------------------------------------------------------------


def mounted(path: Path) -> Path:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(path)], check=True)
    return path


def unmounted(path: Path) -> None:
    subprocess.run(["umount", "-l", str(path)], check=False, stderr=subprocess.DEVNULL)


@pytest.mark.root
async def test_only_the_mounts_that_a_job_uses_must_be_there_again(tmp_path: Path) -> None:
    """One that existed for a while, with another on it; and one that has the job's files."""
    others = mounted(tmp_path / "others")
    below = mounted(others / "below")
    own = mounted(tmp_path / "own")
    try:
        async with bare_job(build("files"), "--steps", 10**9, "--dir", own, ranks=RANKS):
            await looks.reach(HERE)
            await jobs.take_checkpoint(JOB, "", False, lambda event: None)
            for path in (below, others):
                unmounted(path)
            others.rmdir()
            await jobs.restart(HANDLE, lambda event: None)
            await looks.reach(max(looks.steps()) + HERE)
            unmounted(own)
            there = await jobs.list_jobs()
            with pytest.raises(StoreError, match=f"the job uses {own}, where nothing is mounted"):
                await jobs.restart(HANDLE, lambda event: None)
            assert await jobs.list_jobs() == there
    finally:
        for path in (below, others, own):
            unmounted(path)
    await forget()


# ---- large files -------------------------------------------------------------------------------


@pytest.mark.root
async def test_the_space_for_files_is_counted_beforehand_and_reported(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large files of a running job are copied before it is stopped."""
    monkeypatch.setattr(imaging, "_MUCH", 60 << 20)
    heard = Heard()
    with small_disk(home, 400):
        async with bare_job(build("files"), "--steps", 10**9, ranks=RANKS):
            await looks.reach(HERE)
            with open("table.0", "r+b") as file:
                os.posix_fallocate(file.fileno(), 0, 80 << 20)
            await jobs.take_checkpoint(JOB, "", False, heard)
            (taken,) = await jobs.list_checkpoints(JOB)
            assert 0 < taken.paused < taken.latency
            assert not [each for each in heard.events if isinstance(each, JobSays)]
            monkeypatch.setattr(saved_files, "_LARGE", 1 << 40)
            await jobs.take_checkpoint(JOB, "", False, heard)
            with open("table.0", "r+b") as file:
                os.posix_fallocate(file.fileno(), 0, 390 << 20)
            with pytest.raises(StoreError, match=r"a checkpoint needs about (39|4|5)\d+ MiB"):
                await jobs.take_checkpoint(JOB, "", False, heard)
        told = [each.text for each in heard.events if isinstance(each, JobSays)]
        assert len(told) == 1
        assert re.fullmatch(
            r"8\d MiB of files that the job has open for writing were copied while it was stopped, "
            r"\d+ s in all",
            told[0],
        )
        await forget()


async def test_an_open_file_of_a_thread_is_refused_in_words_and_nothing_happens_to_the_job() -> (
    None
):
    """CRIU would save it, and not bring it back."""
    words = r"rank 0 during dump: a file of a thread is open \(/proc/\d+/task/\d+/comm\), which no"
    async with session(build("names"), ranks=RANKS) as job:
        await stop_at(job, 2)
        with pytest.raises(OfTheMoment, match=words):
            await job.checkpoint()
        await stop_at(job, 4)
        taken = await job.checkpoint()
        await job.restart(taken.number)
        assert await run_to_end(job) == 0
    await forget()


async def test_without_a_debugger_it_is_tried_again_after_the_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [["/proc/7/task/8/comm"]]
    monkeypatch.setattr(files_used, "of_threads", lambda pid: found.pop() if found else [])
    async with bare_job(build("files"), "--steps", 10**9, "--delay-us", 1000, ranks=RANKS):
        await looks.reach(1)
        await jobs.take_checkpoint(JOB, "", False, lambda event: None)
        assert not found
        await jobs.kill(JOB)
        await jobs.restart(HANDLE, lambda event: None)
        last = looks.end_soon()
        await run_to_end_bare()
        require_all_steps(last)
    await forget()
