"""Requests from a job's program to crdebug, and from crdebug to the program.

The ranks' side is crdebug/native/shim/app.c; docs/app.md is for the program's author.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from crdebug.acquire.symbols import find_symbols
from crdebug.base.deadline import FOR_EVER, Deadline
from crdebug.base.errors import BadInput, CrdebugError, DeadlineExpired, InQuietRegion, Refused
from crdebug.base.events import Event, JobSays
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.job.directory import JobDirectory
from crdebug.job.holds import Hold
from crdebug.job.incarnation import Incarnation
from crdebug.native.shim import app_layout
from crdebug.native.shim.app_layout import App, Moment, Status, Wish
from crdebug.node import proc


@dataclass(frozen=True, slots=True)
class RankApp:
    """The program's part of a rank's shim."""

    rank: int
    pid: int
    address: int

    def read(self) -> App:
        """Raises ProcessLookupError when the rank is gone."""
        return App.parse(proc.read_memory(self.pid, self.address, app_layout.SIZE))

    def _set(self, offset: int, value: int) -> None:
        data = (value & 0xFFFFFFFF).to_bytes(4, "little")
        proc.write_memory(self.pid, self.address + offset, data)

    def set_door(self, closed: bool) -> None:
        self._set(app_layout.DOOR, int(closed))

    def call(self, moment: Moment) -> None:
        """Request that the callbacks be called; `called` equals `call` once they have returned."""
        self._set(app_layout.MOMENT, moment)
        self._set(app_layout.CALL, self.read().call + 1)

    def answer(self, ask: App, status: int, number: int = 0, reason: str = "") -> None:
        """Let the caller in the program go on, if it still waits for an answer to this request."""
        if self.read().asked != ask.asked:
            return
        proc.write_memory(
            self.pid, self.address + app_layout.STATUS, status.to_bytes(4, "little", signed=True)
        )
        self._set(app_layout.STATUS + 4, number)
        proc.write_memory(
            self.pid, self.address + app_layout.REASON, app_layout.pack_reason(reason)
        )
        self._set(app_layout.ANSWERED, ask.asked)


def find_apps(holds: Sequence[Hold], file: str) -> tuple[RankApp, ...]:
    """The program's parts in all ranks that have one. file: the shim's."""

    def one(hold: Hold) -> RankApp | None:
        with contextlib.suppress(ProcessLookupError):
            found = find_symbols(hold.pid, [app_layout.SYMBOL], in_file=lambda path: path == file)
            if found:
                return RankApp(hold.rank, hold.pid, found[app_layout.SYMBOL])
        return None

    ranks = (one(hold) for hold in holds if hold.has_shim)
    return tuple(each for each in ranks if each is not None)


def _those(apps: Sequence[RankApp], true: Callable[[App], bool]) -> list[RankApp]:
    """The ranks for which something is true, without those that are gone."""
    found = []
    for app in apps:
        with contextlib.suppress(ProcessLookupError):
            if true(app.read()):
                found.append(app)
    return found


def _ranks(apps: Sequence[RankApp]) -> RankSet:
    return RankSet.of(app.rank for app in apps)


# ---- quiet regions -------------------------------------------------------------------------------


def quiet_ranks(apps: Sequence[RankApp]) -> RankSet:
    """The ranks that are in a quiet region now."""
    return _ranks(_those(apps, lambda app: app.quiet > 0))


def refuse_quiet(apps: Sequence[RankApp]) -> None:
    """Raises InQuietRegion if ranks are in one: being stopped, they cannot come out of it."""
    ranks = quiet_ranks(apps)
    if ranks:
        raise InQuietRegion(
            "the program allows no checkpoint here: it is in a quiet region (crdebug_quiet_start)",
            ranks=ranks,
            hint="let it run on, to crdebug_quiet_end",
        )


def _always() -> bool:
    return True


async def await_quiet_end(
    apps: Sequence[RankApp], deadline: Deadline, runs: Callable[[], bool] = _always
) -> None:
    """Wait until no rank is in a quiet region. Raises DeadlineExpired with the ranks; InQuietRegion
    if the job does not run any more."""
    try:
        await deadline.until(lambda: not quiet_ranks(apps) or not runs(), "")
        refuse_quiet(apps if not runs() else ())
    except DeadlineExpired:
        raise deadline.expired(
            "the end of the program's quiet region (crdebug_quiet_end)", ranks=quiet_ranks(apps)
        ) from None


@contextlib.asynccontextmanager
async def closed_door(
    fifo: Path, apps: Sequence[RankApp], deadline: Deadline, runs: Callable[[], bool] = _always
) -> AsyncIterator[None]:
    """Keep ranks out of quiet regions for the block. Raises the errors of `await_quiet_end`.

    If we die in the block, the ranks see that nobody reads the FIFO any more.
    """

    def set_doors(closed: bool) -> None:
        for app in apps:
            with contextlib.suppress(ProcessLookupError):
                app.set_door(closed)

    with _reading(fifo):
        try:
            while True:
                await await_quiet_end(apps, deadline, runs)
                set_doors(True)
                if not quiet_ranks(apps):
                    break
                set_doors(False)  # a rank in a region may wait for one that the door keeps out
            yield
        finally:
            set_doors(False)


@contextlib.contextmanager
def _reading(fifo: Path) -> Iterator[int]:
    """Open a FIFO as reader and writer: without a writer, reading would return end of file again
    and again."""
    file = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


# ---- callbacks -----------------------------------------------------------------------------------


async def call_back(
    apps: Sequence[RankApp], moment: Moment, limit: float, runs: Callable[[], bool] = _always
) -> None:
    """Request all ranks' callbacks, and wait for them. If the job is stopped (not `runs`), those
    after a checkpoint are called when it goes on.

    Raises DeadlineExpired; Refused if callbacks cannot be called, or, with the first rank's words,
    if they refuse the checkpoint.
    """
    registered = _those(apps, lambda app: app.callbacks > 0)
    what = f"the program's callbacks {_WHEN[moment]}"

    def late() -> list[RankApp]:
        return _those(registered, lambda app: app.call != app.called)

    if behind := late():
        raise Refused(f"{what} cannot be called: earlier ones still run", ranks=_ranks(behind))
    for app in registered:
        app.call(moment)
    deadline = Deadline(limit)
    try:
        await deadline.until(lambda: not late() or not runs(), "")
    except DeadlineExpired:
        raise deadline.expired(f"{what} to return", ranks=_ranks(late())) from None
    if moment is not Moment.BEFORE:
        return
    if behind := late():
        raise Refused(f"the job was stopped inside {what}", ranks=_ranks(behind))
    if against := _those(registered, lambda app: app.refused):
        words = against[0].read().refusal or "it gives no reason"
        raise Refused(
            f"a callback of the program refuses the checkpoint: {words}",
            ranks=_ranks(against),
        )


def left_out(apps: Sequence[RankApp]) -> RankSet:
    """The ranks whose callbacks were not called for the checkpoint that is about to be taken."""
    return _ranks(_those(apps, lambda app: app.callbacks > 0 and not _is_ready(app)))


def _is_ready(app: App) -> bool:
    return app.call > 0 and app.call == app.called and app.moment == Moment.BEFORE


_WHEN = {
    Moment.BEFORE: "before the checkpoint",
    Moment.CONTINUE: "after the checkpoint",
    Moment.RESTART: "after the restart",
}


@contextlib.asynccontextmanager
async def around_checkpoint(
    job: Incarnation,
    settings: Settings,
    tell: Callable[[Event], None],
    *,
    held: bool = False,
    stop: bool = False,
    runs: Callable[[], bool] = _always,
) -> AsyncIterator[None]:
    """Wraps the block that takes a checkpoint of a running job: keeps ranks out of quiet regions,
    and calls the program's callbacks before and after.

    held: the job is already stopped, so that no callback can be called, and quiet regions do not
    end.
    stop: the job will be stopped afterwards, so the callbacks come only when it goes on.
    runs: does the job run, or has a debugger stopped it meanwhile?
    Raises Refused if a callback refuses; ranks whose callbacks were called before the checkpoint
    then get those after it, too.
    """
    apps = find_apps(job.holds, job.record.shim)
    if held:
        refuse_quiet(apps)
    if held or not apps:
        yield
        return
    async with closed_door(job.directory.door, apps, Deadline(settings.quiet), runs):
        try:
            await call_back(apps, Moment.BEFORE, settings.hook, runs)
            yield
        finally:
            after = (lambda: False) if stop else runs
            try:
                with contextlib.suppress(ProcessLookupError):
                    await call_back(apps, Moment.CONTINUE, settings.hook, after)
            except CrdebugError as error:
                tell(JobSays(str(error)))


# ---- wishes --------------------------------------------------------------------------------------


class Bell:
    """Sets `rung` when a rank makes a request, for the duration of the block.

    Only one crdebug at a time listens: another waits until that one is gone.
    """

    def __init__(self, directory: JobDirectory) -> None:
        self.rung = asyncio.Event()
        self._fifo = directory.asks
        self._stack = contextlib.ExitStack()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Bell:
        if self._fifo.exists() and not self._listen():
            self._task = asyncio.create_task(self._take_over())
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._stack.close()

    def _listen(self) -> bool:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(_reading(self._fifo))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            loop = asyncio.get_running_loop()
            loop.add_reader(file, self._ring, file)
            stack.callback(loop.remove_reader, file)
            self._stack = stack.pop_all()
        return True

    async def _take_over(self) -> None:
        await Deadline(FOR_EVER).until(self._listen, "another crdebug to hear the ranks no more")

    def _ring(self, file: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(file, 65536)
        self.rung.set()


Asked = tuple[RankApp, App]


def asked(apps: Sequence[RankApp]) -> tuple[Asked, ...]:
    """The ranks that wait for an answer, with their requests."""
    found = []
    for app in apps:
        with contextlib.suppress(ProcessLookupError):
            now = app.read()
            if now.waits:
                found.append((app, now))
    return tuple(found)


def of_wish(asks: Sequence[Asked], wish: Wish) -> tuple[Asked, ...]:
    return tuple(each for each in asks if each[1].wish == wish)


class Answer(NamedTuple):
    """An answer to a request of the program.

    status: one of app_layout.Status, or how often the job has been restarted.
    number: of the checkpoint.
    reason: why there is none.
    """

    status: int
    number: int = 0
    reason: str = ""


def answer(asks: Sequence[Asked], status: int, number: int = 0, reason: str = "") -> None:
    """Give all of them the same answer."""
    for app, ask in asks:
        with contextlib.suppress(ProcessLookupError):
            app.answer(ask, status, number, reason)


def failure(error: CrdebugError) -> Answer:
    refused = isinstance(error, Refused | BadInput)
    return Answer(Status.REFUSED if refused else Status.FAILED, reason=str(error))


def brought_back(holds: Sequence[Hold], file: str, restarts: int, number: int) -> None:
    """Answer the requests pending in ranks that were just restored from checkpoint `number`, before
    they run.

    restarts: the count reported to the program; 0 during replay, where the call had continued.
    """
    apps = find_apps(holds, file)
    for app in apps:
        app.set_door(False)
    for app in _those(apps, lambda app: app.callbacks > 0):
        app.call(Moment.RESTART)
    waiting = asked(apps)
    answer(of_wish(waiting, Wish.CHECKPOINT), restarts, number)
    answer(of_wish(waiting, Wish.RESTART), Status.FAILED, reason="the job was restarted")
