"""Jobs that nobody sits at: checkpoints at an interval and before a time limit, and how many stay.

What `run --no-debugger` and `restart --no-debug` do for as long as their job runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

from crdebug import jobs
from crdebug.checkpoint.upkeep import Keep, Upkeep, expendable
from crdebug.config import Settings
from crdebug.deadline import Deadline
from crdebug.errors import BadInput, CrdebugError, DeadlineExpired, Refused
from crdebug.events import Event, JobSays
from crdebug.job.record import JobDirectory, is_alive, parse_handle
from crdebug.node import signals

EXIT_AGAIN = 75  # EX_TEMPFAIL of sysexits.h: ended with a checkpoint to go on from
_RECENT = 3
_SLACK = 1.5  # a checkpoint may take so much longer than those before it
_ENDING = 1.0  # seconds
_AGAIN = 0.5  # seconds until what was refused is tried again


def pause(every: float, lasted: Sequence[float]) -> float:
    """Seconds from the beginning of one checkpoint to that of the next, for each to be whole
    `every` seconds after the one before it was begun. lasted: how long the ones before took.

    What is not known yet, before the first, is taken for half of the interval.
    """
    if not lasted:
        return every / 2
    return max(every - _SLACK * max(lasted[-_RECENT:]), every / 4)


async def attend(
    job: str, upkeep: Upkeep, tell: Callable[[Event], None], settings: Settings | None = None
) -> int:
    """Follow a job to its end, and take its checkpoints; returns the exit status for the shell.

    That is the launcher's, 137 if it was killed, or EXIT_AGAIN if a warning ended it. A checkpoint
    that fails is told, and the job runs on. Raises NotAvailable when it could not be started.
    """
    return await _Attendant(job, upkeep, tell, settings).run()


class _Attendant:
    def __init__(
        self,
        job: str,
        upkeep: Upkeep,
        tell: Callable[[Event], None],
        settings: Settings | None,
    ) -> None:
        self._job = job
        self._settings = settings
        self._upkeep = upkeep
        self._tell = tell
        self._warned = asyncio.Event()
        self._ended_by_us = False
        self._problem = ""
        self._lasted: list[float] = []

    async def run(self) -> int:
        with signals.listening(self._upkeep.warnings, self._warned.set):
            following = asyncio.create_task(jobs.follow(self._job, self._tell))
            work = asyncio.create_task(self._work())
            try:
                await asyncio.wait({following, work}, return_when=asyncio.FIRST_COMPLETED)
                if work.done() and not following.done():
                    work.result()  # a fault of ours
                status = await following
                work.cancel()
                await asyncio.wait({work})
                await self._prune()
                return EXIT_AGAIN if self._ended_by_us else status
            finally:
                for task in (work, following):
                    task.cancel()
                await asyncio.gather(work, following, return_exceptions=True)

    async def _work(self) -> None:
        """Never ends by itself, but when the job is ended."""
        begun = time.monotonic()
        while not self._ended_by_us:
            if not await self._is_warned_before(begun):
                begun = time.monotonic()
                await self._take(end=False)
                continue
            self._warned.clear()
            begun = time.monotonic()
            self._ended_by_us = await self._take(end=not self._upkeep.go_on)

    async def _is_warned_before(self, begun: float) -> bool:
        """Wait for a warning, or until the next checkpoint is due."""
        due = None
        if self._upkeep.every:
            due = max(0.0, begun + pause(self._upkeep.every, self._lasted) - time.monotonic())
        try:
            async with asyncio.timeout(due):
                return await self._warned.wait()
        except TimeoutError:
            return False

    async def _take(self, *, end: bool) -> bool:
        """A checkpoint; end: and the job's end. Returns whether it was ended."""
        limit = Deadline(self._upkeep.every / 2 or 60.0)
        while True:
            started = time.monotonic()
            try:
                taken = await jobs.take_checkpoint(self._job, "", end, _nothing, self._settings)
                break
            except Refused as error:  # it may be of the moment: another crdebug is at work
                if limit.left > 0 and self._alive():
                    await asyncio.sleep(min(_AGAIN, limit.left))
                    continue
                return await self._failed(error)
            except CrdebugError as error:
                return await self._failed(error)
        self._lasted.append(time.monotonic() - started)
        what = "; the job is ended" if end else ""
        self._problem = ""
        self._tell(JobSays(f"checkpoint {taken.handle} taken{what}"))
        await self._prune()
        return end

    async def _prune(self) -> None:
        try:
            await prune(self._job, self._upkeep.keep)
        except CrdebugError as error:
            self._tell(JobSays(f"no checkpoint is deleted: {error}"))

    async def _failed(self, error: CrdebugError) -> bool:
        """Tell it; not of a job that is about to end, and not again and again."""
        with contextlib.suppress(DeadlineExpired):
            await Deadline(_ENDING).until(lambda: not self._alive(), "")
            return False
        if str(error) != self._problem:
            self._problem = str(error)
            self._tell(JobSays(f"there is no checkpoint now: {error}"))
        return False

    def _alive(self) -> bool:
        with contextlib.suppress(CrdebugError):
            return is_alive(JobDirectory(self._job).read())
        return False


def _nothing(event: Event) -> None:
    """Nobody watches the progress of what happens by itself."""


async def prune(job: str, keep: Keep) -> tuple[str, ...]:
    """Delete the checkpoints that are not to stay; returns their handles.

    Raises Refused when another crdebug works on the job.
    """
    directory = JobDirectory(job)
    if not keep.limits or not directory.store.numbers():
        return ()
    async with directory.lock_within("delete checkpoints", Deadline(Settings().stop)):
        store = directory.store
        gone = expendable(store.list(), keep, store.newest_good(), time.time())
        for number in gone:
            store.delete(number)
    return tuple(f"{job}:{number}" for number in gone)


def set_kept(handle: str, kept: bool) -> None:
    """Have a checkpoint stay whatever else goes, or not any more. Raises BadInput, StoreError."""
    directory, number = parse_handle(handle)
    directory.read()
    directory.store.keep(number, kept)


def handle_of(handle: str) -> str:
    """JOB:N; of a job's name alone, its newest checkpoint that is whole. Raises BadInput."""
    if ":" in handle:
        return handle
    directory = JobDirectory(handle)
    directory.read()
    return f"{handle}:{directory.store.newest_good()}"


async def run_or_resume(
    argv: Sequence[str], name: str, settings: Settings, tell: Callable[[Event], None]
) -> jobs.JobInfo:
    """Bring a job back from its newest whole checkpoint; start it if it has none.

    So a batch script is the same for the first time and for all that follow. Raises Refused when
    the job runs.
    """
    directory = JobDirectory(name)
    if directory.exists() and is_alive(directory.read()):
        raise Refused(f"job '{name}' is running", hint=f"'crdebug kill {name}' ends it")
    try:
        handle = handle_of(name)
    except BadInput:
        return await jobs.run_detached(argv, name, settings)
    return await jobs.restart(handle, tell, settings)
