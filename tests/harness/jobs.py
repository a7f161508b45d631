"""Jobs and sessions as the tests of the tiers `mpi` and `criu` use them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from copy import copy
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.base.events import Event, JobOutput, RankRunning
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.detached import jobs
from crdebug.job.directory import JobDirectory
from crdebug.session import Session
from harness import mpirun

JOB = "job"
# What may be in a job's directory once nothing happens to it any more.
_LASTING = {
    "job.json",
    "lock",
    "asks",
    "door",
    "herd.json",
    "points.json",
    "run",
    "checkpoints",
    "history",
}
_LASTING |= {"branches", "followed", "native", "stage", "staging"}


@contextmanager
def state_directory(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """$CRDEBUG_HOME for a test. In the end nothing half done may be in it; then it is removed."""
    monkeypatch.setenv("CRDEBUG_HOME", str(path))
    yield path
    for job in path.glob("jobs/*"):
        assert {entry.name for entry in job.iterdir()} <= _LASTING
        for entry in job.glob("checkpoints/*"):
            names = ("manifest.json", "base.json")
            assert entry.name == "last" or any((entry / name).exists() for name in names), entry
    shutil.rmtree(path, ignore_errors=True)


class Heard:
    """A subscriber that keeps the events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def text(self, stream: str = "stdout") -> str:
        """What the application wrote."""
        wrote = (e for e in self.events if isinstance(e, JobOutput) and e.stream == stream)
        return "".join(each.text for each in wrote)


def as_by_default() -> Settings:
    """What `crdebug run` has if its user says nothing: MPI calls are recorded where that can be,
    with automatic checkpoints and snapshots."""
    return Settings(record=None)


@asynccontextmanager
async def session(
    program: str | Path,
    *arguments: object,
    ranks: int | None = None,
    name: str = JOB,
    stop_at_main: bool = True,
    heard: Heard | None = None,
    settings: Settings | None = None,
    options: Sequence[str] = (),
) -> AsyncIterator[Session]:
    """A job under the debugger; it and its GDBs are gone afterwards. It has settings of its own:
    what a test sets there, no other one has."""
    opened = await Session.run(
        mpirun.command(program, *arguments, ranks=ranks, options=options),
        name=name,
        stop_at_main=stop_at_main,
        settings=copy(settings),
        subscriber=heard,
    )
    try:
        yield opened
    finally:
        await opened.close()


@asynccontextmanager
async def bare_job(
    program: Path,
    *arguments: object,
    ranks: int | None = None,
    name: str = JOB,
    settings: Settings | None = None,
) -> AsyncIterator[jobs.JobInfo]:
    """A job without a debugger; it is gone afterwards."""
    argv = mpirun.command(program, *arguments, ranks=ranks)
    info = await jobs.run_detached(argv, name, settings or Settings())
    try:
        yield info
    finally:
        with suppress(CrdebugError):
            await jobs.kill(name)


async def run_to_end(opened: Session) -> int:
    """Take every breakpoint away and run until the job has ended; returns its status."""
    for breakpoint_ in opened.breakpoints():
        await opened.delete_breakpoint(breakpoint_.number)
    while opened.ended is None:
        alive = RankSet.of(info.rank for info in opened.info_ranks() if info.pid is not None)
        if not alive:
            return await opened.job_end()
        await opened.resume(alive)
    return opened.ended


async def interrupt_after(job: Session, seconds: float) -> None:
    """Let all ranks run, and stop them somewhere in the program, wherever that is."""
    runs = asyncio.Event()
    unsubscribe = job.subscribe(lambda e: runs.set() if isinstance(e, RankRunning) else None)
    running = asyncio.create_task(job.resume(job.ranks))
    await runs.wait()
    await asyncio.sleep(seconds)
    await job.interrupt()
    await running
    unsubscribe()


async def there(job: str = JOB) -> None:
    """Wait until a job has its record."""
    await Deadline(60).until(JobDirectory(job).exists, f"job {job}")
