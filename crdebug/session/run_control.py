"""Run ranks until they stop: one run at a time, whoever requested it.

While the user's `continue` lasts, we stop the job to serve others' requests, and resume it. Ranks
that run independently are paused for GDB operations that need a stopped process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from crdebug.attached.job import AttendedJob
from crdebug.base.answers import Answers
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, DeadlineExpired, Refused
from crdebug.base.events import Event, GroupStopped, JobSays, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger import verbs
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.python_lines import is_in_python
from crdebug.debugger.question import asked
from crdebug.debugger.rank_commands import heed_endings
from crdebug.debugger.target import Target, TargetState
from crdebug.native.recorder.clock import INITIALIZED_OFFSET
from crdebug.session.requests import Interludes
from crdebug.travel.history import History

_PATIENCE = 10


@dataclass(frozen=True, slots=True)
class Waited:
    """The result of waiting for ranks.

    stop: the ranks that have stopped or ended, and how; its cause has those of them that nobody had
    waited for yet.
    missing: those that still run.
    """

    stop: GroupStopped
    missing: RankSet


class RunControl:
    """Runs a session's ranks.

    tell: called with the events of ranks that run independently.
    busy: held by the operation that has the job to itself.
    stop_at_failure: does a rank that calls MPI_Abort, or exits with a status other than 0 or
    without MPI_Finalize, stop before it ends?
    """

    def __init__(
        self,
        group: TargetGroup,
        settings: Settings,
        tell: Callable[[Event], None],
    ) -> None:
        self.busy = asyncio.Lock()
        self._interludes = Interludes(self._stop_a_while)
        self.stop_at_failure = True
        self._group = group
        self._settings = settings
        self._tell = tell
        self._job: AttendedJob | None = None  # None: not started by crdebug
        self._history: History | None = None
        # stop_at_failure as each GDB has it, by its PID: a target may get another one
        self._heeds: WeakKeyDictionary[Target, tuple[int, bool]] = WeakKeyDictionary()
        # Ranks that run independently: the tasks that follow them; those that run, or whose stop
        # has not been reported yet; those that are paused; those that nobody has waited for since
        # they were resumed; and those that somebody is waiting for.
        self._following: set[asyncio.Task[None]] = set()
        self._alone = RankSet()
        self._paused = RankSet()
        self._resumed = asyncio.Event()
        self._unmet = RankSet()
        self._awaited = RankSet()

    def attend(self, job: AttendedJob, history: History) -> None:
        """Note that the ranks belong to a job of ours."""
        self._job, self._history = job, history

    # ---- together -----------------------------------------------------------------------------

    async def run(self, start: Callable[[], Awaitable[GroupStopped]]) -> GroupStopped:
        """Let ranks run by `start`, which returns their stop."""
        async with self.busy, contextlib.AsyncExitStack() as around:
            around.enter_context(self._group.about_to_run())
            await self._group.whole()
            ranks = self._group.ranks - self._group.running
            await self._before_running(ranks)
            if self._history is not None:
                await around.enter_async_context(self._history.forward())
            if self._job is not None:
                await around.enter_async_context(self._job.running())
            await self._arrive(ranks)
            stop = await start()
            self._note(stop)
            return stop

    async def resume(
        self,
        ranks: RankSet,
        passes: Callable[[GroupStopped], Awaitable[bool]] | None = None,
        *,
        to_end: bool = False,
    ) -> GroupStopped:
        """The user's `continue`. passes: does the job run on by itself after such a stop?  to_end:
        it is to end."""
        self._interludes.begin()
        if self._job is not None:
            self._job.begin()
        history = self._history
        after = await history.begin_run() if history is not None else 0.0
        own = history.interlude if history is not None else None
        wait = history.until_due if history is not None else asyncio.sleep
        if history is not None:
            history.heed_ends(to_end=to_end)

        async def once() -> GroupStopped:
            return await self.run(lambda: self._group.resume(ranks))

        try:
            stop = await self._interludes.run(once, own, after, passes, wait)
            if history is None or not history.at_end:
                return stop
            stops = tuple(now for rank in self._group.ranks if (now := self._how(rank)) is not None)
            return GroupStopped(stops, stops)  # where they were led to meanwhile
        finally:
            if history is not None:
                history.run_over()

    async def settled(self) -> None:
        """Wait until a run of the user's `continue` is under way, in case it is between two."""
        with contextlib.suppress(DeadlineExpired):
            limit = Deadline(self._settings.stop)
            await limit.until(self._begun_or_over, "the ranks to run")

    def _begun_or_over(self) -> bool:
        run = self._group.under_way
        begun = run is not None and not run.pending - self._group.running
        return begun or not self._interludes.possible

    def all_run(self) -> bool:
        """Do all ranks run, in the user's `continue`? Then the program can take part in a
        checkpoint."""
        stopped = self._group.in_state(TargetState.STOPPED)
        return self._interludes.possible and bool(self._group.running) and not stopped

    async def while_it_stands(self, work: Callable[[], Awaitable[int]]) -> int:
        """Do something that needs stopped ranks. Stops those that run in the user's `continue`;
        raises Refused if ranks run otherwise."""
        if self._interludes.possible:
            return await self._interludes.ask(work)
        if not self._group.running:
            return await work()
        raise Refused(
            "a step is under way in the debugger, or ranks run independently",
            ranks=self._group.running,
            hint="try again when all ranks have stopped",
        )

    async def interrupt(self, ranks: RankSet | None = None) -> None:
        """End the operation that is under way, for the user. Of ranks that run independently, stop
        those that somebody waits for, or else `ranks`."""
        self._interludes.user_interrupts()
        if self._job is not None:
            self._job.break_off()
        await self._group.interrupt(self._awaited or ranks, coming=True)

    async def _before_running(self, ranks: RankSet) -> None:
        if self._job is None or self._history is None:
            return
        self._job.begin()
        self._job.require_whole()
        await self._job.revive(ranks)
        await self._history.branching.before_running()
        await self._job.give_input_again()
        await self._heed_endings(ranks)

    async def _arrive(self, ranks: RankSet) -> None:
        """Let the GDBs of ranks that were moved to a breakpoint know that the ranks are there."""
        there = RankSet.of(rank for rank in ranks if self._at_breakpoint(self._group[rank]))
        arrive = asked(verbs.arrive, Deadline(self._settings.command))
        for error in (await self._group.ask(there, arrive)).errors.values():
            raise error

    def _at_breakpoint(self, target: Target) -> bool:
        stop = target.last_stop
        at = stop.location.address if stop is not None and stop.location is not None else None
        points = self._group.table.all()
        return is_in_python(stop) or any(
            at == place.address for p in points for place in p.places.get(target.rank, ())
        )

    async def _heed_endings(self, ranks: RankSet) -> None:
        """Tell the ranks' GDBs whether to stop ranks that are about to end."""
        wanted = self.stop_at_failure
        others = [
            target
            for target in map(self._group.__getitem__, ranks)
            if self._heeds.get(target) != (target.gdb_pid, wanted) and not target.dead
        ]
        heed = asked(heed_endings, wanted, INITIALIZED_OFFSET, Deadline(self._settings.command))
        told = await self._group.ask(RankSet.of(each.rank for each in others), heed)
        self._heeds.update(
            (target, (target.gdb_pid, wanted)) for target in others if target.rank in told.values
        )
        for error in told.errors.values():
            raise error

    async def replace_dead(self, ranks: RankSet) -> RankSet:
        """See Running.replace_dead."""
        job, dead = self._job, ranks & self._group.in_state(TargetState.DEAD)
        if job is None or not dead:
            return RankSet()
        async with self.busy:
            await self._group.whole()
            with contextlib.suppress(CrdebugError):  # they stay dead, and say so
                await job.revive(dead)
        return dead & self._group.in_state(TargetState.STOPPED)

    def _note(self, stop: GroupStopped) -> None:
        if self._history is not None:
            self._history.stopped(stop)

    async def _stop_a_while(self) -> None:
        """Stop the ranks for a while. No user waits for that, so it may take long on a busy
        machine."""
        await self._group.interrupt(patience=_PATIENCE)

    # ---- independently ------------------------------------------------------------------------

    @property
    def alone(self) -> RankSet:
        """The ranks that run independently now."""
        return self._alone & self._group.running

    def follows(self, rank: int) -> bool:
        """Does this object report the rank's stop, once it is known to be the rank's own?"""
        return rank in self._alone

    async def let_run(self, ranks: RankSet) -> RankSet:
        """See Session.let_run."""
        group = self._group
        if self._job is not None:
            self._job.begin()
            await self._job.revive(ranks)
        chosen = ranks & group.in_state(TargetState.STOPPED)
        if not chosen:
            raise Refused("cannot continue: not stopped", ranks=ranks)
        if self._history is not None and not group.running:
            await self._history.begin_run()
        async with self.busy:
            await self._before_running(chosen)
            await self._arrive(chosen)
            limit = Deadline(self._settings.command)
            self._alone |= chosen
            answers = await group.ask(chosen, asked(verbs.resume, limit))
            started = RankSet.of(answers.values)
            self._alone -= chosen - started
            self._unmet |= started
            if started:
                following = asyncio.create_task(self._follow(started))
                self._following.add(following)
                following.add_done_callback(self._following.discard)
        for error in answers.errors.values():
            if not started:
                raise error
            self._tell(JobSays(str(error)))
        return started

    async def _follow(self, ranks: RankSet) -> None:
        """Note the stops of ranks that run independently, and report them."""
        history = self._history
        async with history.forward() if history is not None else contextlib.nullcontext():
            await asyncio.gather(*map(self._follow_one, ranks))

    async def _follow_one(self, rank: int) -> None:
        try:
            stop = self._group.table.translate(await self._own_stop(rank))
        except CrdebugError as error:
            self._tell(JobSays(str(error)))
            return
        finally:
            self._alone -= RankSet.of([rank])
        alone = GroupStopped((stop,), (stop,))
        self._note(alone)
        if rank not in self._awaited:
            self._tell(alone)

    async def wait(self, ranks: RankSet, seconds: float | None = None) -> Waited:
        """See Session.wait."""
        self._awaited = ranks
        try:
            runs = [
                asyncio.ensure_future(self._stands(rank)) for rank in ranks & self._group.running
            ]
            if runs:
                _, pending = await asyncio.wait(runs, timeout=seconds)
                for each in pending:
                    each.cancel()
        finally:
            self._awaited = RankSet()
        missing = ranks & self._group.running
        stops = [stop for rank in ranks - missing if (stop := self._how(rank)) is not None]
        met = ranks & self._unmet - missing
        self._unmet -= met
        cause = tuple(stop for stop in stops if stop.rank in met)
        return Waited(GroupStopped(cause, tuple(stops)), missing)

    async def _stands(self, rank: int) -> None:
        with contextlib.suppress(CrdebugError):  # the task that follows the rank reports it
            await self._own_stop(rank)

    def _how(self, rank: int) -> RankStopped | None:
        stop = self._group[rank].last_stop
        return None if stop is None else self._group.table.translate(stop)

    async def close(self) -> None:
        """Stop following the ranks that run."""
        for each in self._following:
            each.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)

    # ---- pausing them ---------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def pause(self, ranks: RankSet) -> AsyncIterator[None]:
        """Pause ranks for the block. A rank that stops for a reason of its own just then stays
        stopped, as it would have without the pause."""
        if not ranks & self.alone:
            yield
            return
        async with self.busy:
            limit = Deadline(self._settings.stop)
            self._paused, self._resumed = ranks & self.alone, asyncio.Event()
            stops = await self._group.stop_all(StopReason.FOLLOWED, limit, self._paused)
            try:
                yield
            finally:
                await self._go_on(stops)
                self._paused = RankSet()
                self._resumed.set()

    async def _go_on(self, stops: Answers[RankStopped]) -> None:
        limit = Deadline(self._settings.stop)
        stopped = stops.values.items()
        ranks = RankSet.of(r for r, stop in stopped if stop.reason is StopReason.FOLLOWED)
        told = await self._group.ask(ranks, asked(verbs.resume, limit))
        for error in (*stops.errors.values(), *told.errors.values()):
            self._tell(JobSays(str(error)))

    async def _own_stop(self, rank: int) -> RankStopped:
        """The next stop of an independently running rank that is not a pause."""
        while True:
            stop = await self._group[rank].stopped()
            if rank not in self._paused:
                return stop
            await self._resumed.wait()
