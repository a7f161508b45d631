"""Unattended jobs: checkpoints at an interval, before a time limit, and when the program asks for
one; and how many are kept.

This is what `run --no-debugger` and `restart --no-debugger` do while their job runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from crdebug.base.deadline import Deadline
from crdebug.base.errors import (
    BadInput,
    CrdebugError,
    DeadlineExpired,
    Refused,
    StoreError,
    in_words,
)
from crdebug.base.events import Event, JobSays
from crdebug.base.settings import Settings
from crdebug.checkpoint import staging
from crdebug.checkpoint.retention import Keep, Upkeep, expendable
from crdebug.checkpoint.store import Checkpoint, CheckpointStore, none_yet
from crdebug.detached import jobs
from crdebug.job import app_requests, second_place
from crdebug.job.directory import JobDirectory, is_alive, parse_handle
from crdebug.job.ranks_there import await_ranks
from crdebug.job.without_container import at_the_start
from crdebug.native.shim.app_layout import Status, Wish
from crdebug.node import signals

if TYPE_CHECKING:
    from crdebug.job.given import Given

EXIT_AGAIN = 75  # EX_TEMPFAIL of sysexits.h: ended with a checkpoint to go on from
_RECENT = 3
_SLACK = 1.5  # a checkpoint may take this much longer than those before it
_ENDING = 1.0  # seconds
_AGAIN = 0.5  # seconds until a refused checkpoint is tried again


def pause(every: float, lasted: Sequence[float]) -> float:
    """Seconds between checkpoint starts, chosen so that each one completes within `every` seconds
    of the previous start. lasted: how long the ones before took.

    Until one has been timed, assume it takes half the interval.
    """
    if not lasted:
        return every / 2
    return max(every - _SLACK * max(lasted[-_RECENT:]), every / 4)


async def attend(
    job: str, upkeep: Upkeep, tell: Callable[[Event], None], settings: Settings | None = None
) -> int:
    """Follow a job to its end, and take its checkpoints; returns the exit status for the shell.

    That is the launcher's, as `jobs.follow` has it, or EXIT_AGAIN if a warning ended it. A
    checkpoint that fails is told, and the job runs on. Raises NotAvailable when it could not be
    started.
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
        self._back = 0  # the checkpoint that the program went back to last
        self._going_back = asyncio.Lock()

    async def run(self) -> int:
        if self._upkeep.stage is not None:
            second_place.begin(JobDirectory(self._job), self._upkeep.stage)
        with (
            Stager(JobDirectory(self._job).store, self._upkeep, self._tell) as self._stager,
            signals.listening(self._upkeep.warnings, self._warned.set),
        ):
            async with app_requests.Bell(JobDirectory(self._job)) as bell:
                return await self._attend_to(bell.rung)

    async def _attend_to(self, rung: asyncio.Event) -> int:
        following = asyncio.create_task(self._follow())
        work = asyncio.create_task(self._work(rung))
        from crdebug.detached.standstill import watch  # other uses of this module need no records

        watching = asyncio.create_task(watch(self._job, self._settings or Settings(), self._tell))
        try:
            await asyncio.wait({following, work}, return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not following.done():
                work.result()  # a fault of ours
            status = await following
            work.cancel()
            await asyncio.wait({work})
            await self._stager.all_done()
            await self._prune()
            return EXIT_AGAIN if self._ended_by_us else status
        finally:
            tasks = (work, following, watching)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self) -> int:
        """To the end of the job, through the restarts that its program asks for."""
        since = None
        while True:
            self._back = 0
            status = await jobs.follow(self._job, self._tell, since)
            async with self._going_back:
                if not self._back:
                    return status
                since = JobDirectory(self._job).store.path(self._back)

    async def _work(self, rung: asyncio.Event) -> None:
        """Ends only when the job is ended."""
        begun = time.monotonic()
        while not self._ended_by_us:
            await self._until_due(begun, rung)
            if self._warned.is_set():
                self._warned.clear()
                begun = time.monotonic()
                self._ended_by_us = await self._take(end=not self._upkeep.go_on)
            elif rung.is_set():
                rung.clear()
                taken = await self._serve()
                begun = taken or begun
            else:
                begun = time.monotonic()
                await self._take(end=False)

    async def _until_due(self, begun: float, rung: asyncio.Event) -> None:
        """Wait for a warning, for the program to ask, or until the next checkpoint is due."""
        due = None
        if self._upkeep.every:
            due = max(0.0, begun + pause(self._upkeep.every, self._lasted) - time.monotonic())
        waits = [asyncio.create_task(each.wait()) for each in (self._warned, rung)]
        try:
            await asyncio.wait(waits, timeout=due, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    # ---- what the program asks for -----------------------------------------------------------

    async def _serve(self) -> float:
        """Serve the requests of ranks; returns when a checkpoint was begun, 0 if none was taken."""
        directory = JobDirectory(self._job)
        try:
            record = directory.read()
            job = await await_ranks(directory, record, Deadline(Settings().stop))
        except (CrdebugError, OSError):
            return 0.0  # it has ended meanwhile
        asks = app_requests.asked(app_requests.find_apps(job.holds, record.shim))
        back = app_requests.of_wish(asks, Wish.RESTART)
        if back:
            await self._go_back(directory, back)
            return 0.0
        begun = time.monotonic()
        wanted = app_requests.of_wish(asks, Wish.CHECKPOINT)
        if not wanted:
            return 0.0
        try:
            taken = await self._checkpoint(wanted[0][1].note, end=False)
        except CrdebugError as error:
            app_requests.answer(wanted, *app_requests.failure(error))
            return 0.0
        app_requests.answer(wanted, Status.DONE, taken.number)
        await self._was_taken(taken, time.monotonic() - begun)
        return begun

    async def _go_back(self, directory: JobDirectory, asks: Sequence[app_requests.Asked]) -> None:
        async with self._going_back:
            rank, wanted = asks[0][0].rank, asks[0][1].wanted
            try:
                handle = await handle_of(
                    f"{self._job}:{wanted}" if wanted else self._job, tell=self._tell
                )
                number = parse_handle(handle)[1]
                if number not in directory.store.numbers():
                    raise BadInput(f"there is no checkpoint {handle}")
                self._tell(JobSays(f"rank {rank} asks to go back to {handle}"))
                await jobs.restart(handle, _nothing, self._settings)
                self._back = number
            except (CrdebugError, OSError) as caught:
                error = caught if isinstance(caught, CrdebugError) else in_words(caught)
                app_requests.answer(asks, *app_requests.failure(error))
                self._tell(JobSays(f"cannot go back as rank {rank} requested: {error}"))

    # ---- checkpoints -------------------------------------------------------------------------

    async def _take(self, *, end: bool) -> bool:
        """Take a checkpoint. end: and end the job. Returns whether it was ended."""
        limit = Deadline(self._upkeep.every / 2 or 60.0)
        while True:
            started = time.monotonic()
            try:
                taken = await self._checkpoint("", end=end)
                break
            except CrdebugError as error:
                # It may be of the moment, as when another crdebug is at work; and a last one is
                # the only one.
                again = (isinstance(error, Refused) or end) and limit.left > 0 and self._alive()
                if not again:
                    return await self._failed(error)
                await asyncio.sleep(min(_AGAIN, limit.left))
        await self._was_taken(
            taken, time.monotonic() - started, "; the job is ended" if end else ""
        )
        return end

    async def _checkpoint(self, note: str, *, end: bool) -> Checkpoint:
        """Raises CrdebugError, whatever went wrong: the job goes on, and is still looked after."""
        try:
            return await jobs.take_checkpoint(self._job, note, end, _nothing, self._settings)
        except OSError as error:  # a rank that ends at this moment, a disk that is full
            raise in_words(error) from error

    async def _was_taken(self, taken: Checkpoint, lasted: float, more: str = "") -> None:
        self._lasted.append(lasted)
        self._problem = ""
        self._tell(JobSays(f"checkpoint {taken.handle} taken{more}"))
        self._stager.begin(taken.number)
        await self._prune()

    async def _prune(self) -> None:
        try:
            await prune(self._job, self._upkeep.keep)
        except (CrdebugError, OSError) as error:
            self._tell(JobSays(f"cannot delete checkpoints: {error}"))

    async def _failed(self, error: CrdebugError) -> bool:
        """Report it; not for a job that is about to end, and not again and again."""
        with contextlib.suppress(DeadlineExpired):
            await Deadline(_ENDING).until(lambda: not self._alive(), "")
            return False
        if str(error) != self._problem:
            self._problem = str(error)
            self._tell(JobSays(f"no checkpoint was taken: {error}"))
        return False

    def _alive(self) -> bool:
        with contextlib.suppress(CrdebugError):
            return is_alive(JobDirectory(self._job).read())
        return False


class Stager:
    """Copies checkpoints to the second place, one after the other, in the background."""

    def __init__(
        self, store: CheckpointStore, upkeep: Upkeep, tell: Callable[[Event], None]
    ) -> None:
        self._store = store
        self._upkeep = upkeep
        self._tell = tell
        self._thread = ThreadPoolExecutor(1, "stage", initializer=staging.gives_way)
        self._copies: set[asyncio.Task[None]] = set()
        self._known = set(self._store.numbers())

    def __enter__(self) -> Stager:
        return self

    def __exit__(self, *exception: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def begin(self, number: int) -> None:
        """Copy this checkpoint, if there is a second place."""
        self._known.add(number)
        if self._upkeep.stage is not None:
            task = asyncio.create_task(self._copy(number, self._upkeep.stage))
            self._copies.add(task)
            task.add_done_callback(self._copies.discard)

    async def _copy(self, number: int, place: Path) -> None:
        compress = self._upkeep.compress
        work = functools.partial(staging.stage, self._store, number, place, compress=compress)
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except StoreError as error:
            if number in self._store.numbers():  # else it was deleted meanwhile
                self._tell(JobSays(str(error)))
            else:
                staging.forget(self._store.job, number, place)

    async def all_done(self) -> None:
        """Copy all checkpoints taken meanwhile, and wait for that.

        The crdebug that took one may have ended, with the job, before it could begin the copy.
        """
        for number in self._store.numbers():
            if number not in self._known:
                self.begin(number)
        await asyncio.gather(*self._copies)


def _nothing(event: Event) -> None:
    """Nobody watches the progress of automatic work."""


async def prune(job: str, keep: Keep) -> tuple[str, ...]:
    """Delete the checkpoints that are not to be kept; returns their handles.

    Raises Refused when another crdebug works on the job.
    """
    directory = JobDirectory(job)
    if not keep.limits or not directory.store.numbers():
        return ()
    async with directory.lock_within("delete checkpoints", Deadline(Settings().stop)):
        found = staging.everywhere(directory.store, directory.stage)
        gone = expendable(found, keep, directory.store.newest_good(), time.time())
        for number in gone:
            jobs.remove(directory, number)
    return tuple(f"{job}:{number}" for number in gone)


async def take_checkpoint(
    job: str,
    note: str,
    kill: bool,
    progress: Callable[[Event], None],
    settings: Settings,
    *,
    stop: bool,
    held: bool,
    place: Path | None,
) -> Checkpoint:
    """Take a checkpoint as jobs.take_checkpoint does, and copy it to a second place. That becomes
    the job's before, so that the checkpoint has all that a restart from there needs. Raises as
    that, and BadInput."""
    if place is not None and JobDirectory(job).exists():
        second_place.begin(JobDirectory(job), place)
    taken = await jobs.take_checkpoint(job, note, kill, progress, settings, stop=stop, held=held)
    if place is not None:
        await stage(taken.handle, place)
    return taken


async def stage(handle: str, place: Path, *, compress: bool = True) -> None:
    """Copy a checkpoint to a second place, which is the job's from now on. Raises StoreError."""
    directory, number = parse_handle(handle)
    directory.read()
    second_place.begin(directory, place)
    work = functools.partial(staging.stage, directory.store, number, place, compress=compress)
    with ThreadPoolExecutor(1, "stage", initializer=staging.gives_way) as thread:
        await asyncio.get_running_loop().run_in_executor(thread, work)


async def handle_of(
    handle: str,
    stage: Path | None = None,
    tell: Callable[[Event], None] = lambda event: None,
) -> str:
    """JOB:N of a checkpoint that is here; of a job's name alone, its newest that is whole.

    One that is only in the second place is fetched from there. stage: that place, for a job that is
    not known here. tell: called with those that are passed over. Raises BadInput, StoreError.
    """
    directory = JobDirectory(handle.partition(":")[0])
    if stage is not None:
        second_place.import_staged(directory, stage)
    place = directory.stage
    if ":" in handle:
        number = parse_handle(handle)[1]
        if place is not None:
            directory.read()
            await _have(directory, number, place)
        return handle
    directory.read()
    staged = staging.numbers(directory.name, place) if place is not None else ()
    damage: StoreError | None = None
    for number in sorted({*directory.store.numbers(), *staged}, reverse=True):
        try:
            await _have(directory, number, place)
            directory.store.verify(directory.store.load(number))
        except StoreError as error:
            damage = damage or error
            tell(JobSays(f"checkpoint {directory.name}:{number} is passed over: {error}"))
            continue
        return f"{directory.name}:{number}"
    raise damage or none_yet()


async def _have(directory: JobDirectory, number: int, place: Path | None) -> None:
    """Fetch a checkpoint that is missing or damaged here, if there is a copy. Raises StoreError."""
    staged = staging.numbers(directory.name, place) if place is not None else ()
    if place is None or number not in staged or _is_whole(directory, number):
        return
    async with directory.lock_within("fetch a checkpoint", Deadline(Settings().stop)):
        await asyncio.to_thread(staging.fetch, directory.store, number, place)
        directory.store.note_last(max(staged))


def _is_whole(directory: JobDirectory, number: int) -> bool:
    try:
        directory.store.verify(directory.store.load(number))
    except (BadInput, StoreError):
        return False
    return True


async def start(
    argv: Sequence[str],
    name: str | None,
    resume: bool,
    care: Upkeep,
    settings: Settings,
    tell: Callable[[Event], None],
    given: Given | None = None,
) -> jobs.JobInfo:
    """Start a job; with `resume`, bring it back from its newest whole checkpoint if it has one.

    So a batch script is the same for the first run and all that follow. A job that is brought back
    has the environment and input of its first run. Raises Refused when the job runs.
    """
    if name is None or not resume:
        return await _begin(argv, name, settings, tell, given)
    directory = JobDirectory(name)
    if directory.exists() and is_alive(directory.read()):
        raise Refused(f"job '{name}' is running", hint=f"'crdebug kill {name}' ends it")
    try:
        handle = await handle_of(name, care.stage, tell)
    except BadInput:
        return await _begin(argv, name, settings, tell, given)
    return await jobs.restart(handle, tell, settings)


async def _begin(
    argv: Sequence[str],
    name: str | None,
    settings: Settings,
    tell: Callable[[Event], None],
    given: Given | None,
) -> jobs.JobInfo:
    begun = await jobs.run_detached(argv, name, settings, given)
    with contextlib.suppress(BadInput):  # it has ended already, and is forgotten
        if sentence := at_the_start(JobDirectory(begun.name).read()):
            tell(JobSays(sentence))
    return begun
