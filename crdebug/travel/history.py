"""A session's history: where the job is in it, and the ways to be elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from operator import gt

from crdebug.attached.job import AttendedJob
from crdebug.base.answers import Answers
from crdebug.base.deadline import FOR_EVER, Deadline
from crdebug.base.errors import (
    BadInput,
    CrdebugError,
    DeadlineExpired,
    Interrupted,
    NotAvailable,
    Refused,
)
from crdebug.base.events import Event, GroupStopped, JobSays
from crdebug.base.instant import Cut, Instant
from crdebug.base.ranks import RankSet
from crdebug.debugger.target import Target, TargetState
from crdebug.job import half_back
from crdebug.job.without_container import require_container
from crdebug.native.matcher.library import Library
from crdebug.timeline.predicate import parse
from crdebug.timeline.text import Place
from crdebug.travel.arrival import Arrival, joined
from crdebug.travel.auto_checkpoints import EVERY, Automatic
from crdebug.travel.bisect import First, bisect
from crdebug.travel.branching import Branching, Compared
from crdebug.travel.call_sites import leave_hold, show_callers
from crdebug.travel.ends import Ends
from crdebug.travel.goto_partner import Partner, Partners
from crdebug.travel.last import Last
from crdebug.travel.memory_snapshots import Stock
from crdebug.travel.moment import Moment
from crdebug.travel.notices import Notices
from crdebug.travel.overview import Overview, Survey
from crdebug.travel.replay import divergence, diverges
from crdebug.travel.reverse_continue import Stops
from crdebug.travel.reverse_python import Lines
from crdebug.travel.reverse_step import Reverse
from crdebug.travel.room import Room
from crdebug.travel.seek import Traveller
from crdebug.travel.snapshot_cost import COPYING, LEAST
from crdebug.travel.standing import Returning
from crdebug.travel.standstill import Standstill
from crdebug.travel.stood import Stood
from crdebug.travel.verify import Verified, Verify
from crdebug.travel.waits import Pauses

NO_MORE = -1.0  # in place of the seconds until the next interlude: the run is over
_READ_EVERY, _READ_FOR = 0.25, 0.01  # seconds: of run, and of reading in it
_AT_REST = 0.5  # seconds that a snapshot may take while the user looks at a stop


class History:
    """Going back and forth, for one session. library: reads the record.  tell: gets progress."""

    def __init__(
        self,
        job: AttendedJob,
        library: Library,
        tell: Callable[[Event], None],
        busy: asyncio.Lock,
    ) -> None:
        self.traveller = Traveller(job, library, tell)
        self.every = EVERY  # seconds of run between automatic checkpoints; 0: none
        self._job = job
        self._busy = busy
        self._reverse = Reverse(self.traveller)
        self._stops = Stops(self.traveller, self._reverse)
        self._lines = Lines(self.traveller, self._reverse, self._stops)
        self.partners = Partners(self.traveller.recorded)
        self._changes = Last(self.traveller, self._reverse, self._stops, self.partners)
        self.automatic = Automatic(job, self.traveller, tell)
        self.traveller.near.elapsed = self.automatic.elapsed
        self._room = Room(job, self.traveller, tell)
        self.survey = Survey(self.traveller)
        self.branching = Branching(job, self.traveller, tell, self.automatic.take_base)
        self._returning = Returning(self.traveller, self._reverse, self.branching, tell)
        self._ends = Ends(self.traveller.recorded)
        self.stood = Stood()
        self._standstill = Standstill(self.traveller.recorded, self.stood, tell)
        self.at_end = False  # the last run was stopped because history ends there
        self._tell = tell
        self.marks: dict[str, Moment] = {}
        self._states: dict[str, str] = {}  # of the marks, what their places are recognised by
        self._pauses = Pauses(job)
        self.costs = self._pauses.costs  # of snapshots and automatic checkpoints
        self._last = 0  # the rank for which the job stopped
        self._repeats_to: Cut = ()  # what the ranks write up to there, the user has seen
        self._rests = False  # the job has stopped, and nothing was done since; see `rest`
        self._notices = Notices(self.traveller.recorded, tell)

    @property
    def recorded(self) -> bool:
        """Are this job's MPI calls recorded?"""
        return bool(self._job.record.layer)

    @property
    def in_the_past(self) -> bool:
        """Is any rank in the past?"""
        return self.recorded and self.traveller.in_the_past

    async def refresh(self, *, logs: bool = True, requests: bool = False) -> None:
        """See RecordedJob.refresh. What cannot be copied is as it was."""
        if self.recorded:
            with contextlib.suppress(CrdebugError):
                await self.traveller.recorded.refresh(logs=logs, requests=requests)

    # ---- while the user lets the job run ----------------------------------------------------

    @contextlib.asynccontextmanager
    async def forward(self) -> AsyncIterator[None]:
        """Around every run that the user asks for. Call `stopped` with its end."""
        if self.recorded:
            await self.refresh(logs=False)
            self.traveller.release()
        before, start = self._place(), time.monotonic()
        beside = None
        if self.recorded and self._job.alive:
            self._ends.hold()
            behind = self.traveller.position.is_behind(before)
            beside = asyncio.create_task(self._guard() if behind else self._read_on())
        self._pauses.goes_on()
        self.stood.goes_on()
        try:
            yield
        finally:
            self._pauses.stands()
            if beside is not None:
                beside.cancel()
            await self.refresh(logs=False)
            self.stood.stands(self.traveller.recorded.clocks() if self.recorded else ())
            now = self._place()
            if self.recorded:
                self._notices.of_the_unrecorded()
                self.traveller.arrived(now)
                self.branching.arrived(now)
                self._reverse.moved(now)
            self.automatic.elapsed.ran(before, now, time.monotonic() - start)

    def stopped(self, stop: GroupStopped) -> None:
        """Ranks have run, and stand again."""
        self._rests = True
        self._last = stop.cause[0].rank if stop.cause else self._last

    def brings_others(self, ranks: RankSet) -> bool:
        """Is this a single rank that is in its past? The others come along with it, see
        `alongside`."""
        past, furthest = len(ranks) == 1 and self.in_the_past, self.traveller.position.furthest
        return past and self.traveller.recorded.cut()[ranks.first] < furthest[ranks.first]

    async def alongside(
        self, ranks: RankSet, go: Callable[[Target], Awaitable[None]]
    ) -> GroupStopped:
        """Let that rank go; the others come along."""
        return await self.traveller.alongside(ranks.first, go)

    async def _read_on(self) -> None:
        """Read the record while it is made: the first way back has little to read then."""
        while True:
            await asyncio.sleep(_READ_EVERY)
            with contextlib.suppress(CrdebugError, OSError):
                await self.traveller.recorded.refresh(logs=False)
                self.stood.look(self.traveller.recorded.clocks())
                self.traveller.recorded.read(_READ_FOR)
                self._notices.of_the_unrecorded()
                await self._standstill.look()

    async def _guard(self) -> None:
        """Stop a job that runs in the past if it leaves its record: a rank that diverges is held,
        and the others would wait for it."""
        clocks = self.traveller.recorded.clocks()
        with contextlib.suppress(ProcessLookupError, DeadlineExpired, NotAvailable):
            async with self._job.watched():
                limit = Deadline(FOR_EVER)
                await limit.until(lambda: diverges(clocks), "a divergence")
            self._tell(JobSays(str(divergence(self._job, clocks, self.traveller.recorded.library))))
            await self._job.group.interrupt()

    def _place(self) -> Cut:
        return self.traveller.recorded.cut() if self.recorded else ()

    def focus(self, ranks: RankSet) -> int:
        """The rank to take back: the addressed one that stopped last."""
        return self._last if self._last in ranks else ranks.first

    async def typed(self, line: str, answers: Answers[str]) -> None:
        """The user typed a line for ranks' GDBs, which answered. It may have changed the state."""
        await self.branching.typed(line, answers)
        if self.traveller.position.change:
            self._reverse.forget()

    async def begin_run(self) -> float:
        """Before the job runs: ensure that there is a checkpoint to come back to. Returns the
        seconds until the next interlude."""
        async with self._busy:
            await self.branching.before_running()
            self._expect_again()
        if not (self.recorded and self.every and self._job.alive):
            return 0.0
        if not self.traveller.bases():
            await self._begin_history()
        return self._pauses.begin(self.every)

    def _expect_again(self) -> None:
        """Once all ranks are further than they had been before the last way back, nothing that the
        user has seen comes again. (A rank between two calls may be further back than it was.)"""
        to = self._repeats_to
        if to and self.recorded and self._job.alive and all(map(gt, self._place(), to)):
            self._job.output_is_new()
            self._repeats_to = ()

    async def _begin_history(self) -> None:
        """With a checkpoint; where none can be taken, with a snapshot."""
        if not self._job.has_no_checkpoints:
            await self.take()
        if not self.traveller.bases() and not self._ends.lies_ahead:
            async with self._busy:
                await self.automatic.take_snapshot()

    def heed_ends(self, *, to_end: bool = False) -> None:
        """The job is about to run, and can be stopped meanwhile: if its history has not begun, then
        as soon as that is possible; and where it ends, unless it is to run to its end."""
        self.at_end = False
        self._ends.last = self.recorded and self._job.has_no_checkpoints and not to_end
        may = self.recorded and bool(self.every) and self._job.alive and not self._ends.given_up
        self._ends.awaited = may and not self.traveller.bases() and self._ends.lies_ahead

    async def until_due(self, seconds: float) -> None:
        """Until the job is to be stopped for the next interlude."""
        if self._ends.awaited or self._ends.last:
            await self._ends.until_there(seconds)
            return
        while seconds:
            await asyncio.sleep(seconds)
            if self._pauses.only_a_snapshot:
                self.costs.snapshots.caused(COPYING * await self.traveller.near.copied())
            seconds = self._pauses.more(self.every)

    async def interlude(self, since: float) -> float:
        """Now and then while the job runs under the debugger, which has stopped it for this. since:
        when it was interrupted, or began to stand for this, by time.monotonic(). Returns the
        seconds until the next one, or NO_MORE if the job is to stand."""
        due = await self._pauses.stopped(since, self.every)
        if self._ends.last and self._ends.all_finalize():
            group = self._job.group
            await show_callers(group, group.ranks, self._job.record.layer)
            self._tell(
                JobSays(
                    "all ranks are about to call MPI_Finalize, and after that there is no way back "
                    "in time: 'continue' goes on to the end"
                )
            )
            self.at_end = True
            return NO_MORE
        if self._ends.awaited:
            async with self._busy:
                await self.automatic.take_snapshot()
            self._ends.awaited = not self.traveller.bases() and not self._ends.given_up
            return self._pauses.begin(self.every)
        if due.checkpoint and not self._job.has_no_checkpoints:
            await self.take()
        if due.snapshot:
            near = self.traveller.near
            async with self._busy:
                await near.keep(self.traveller.recorded.cut(), further=True)
            self.costs.snapshots.had_caused(COPYING * near.changed)
        return self._pauses.begin(self.every)

    async def rest(self) -> None:
        """The user looks at a stop, and has not typed anything yet: keep a snapshot, which now
        costs the run nothing. So there is a short way back from what runs on from here. Call it as
        often as you like: where one is near already it takes none, and none that may take long."""
        due, self._rests = self._rests, False
        if not (due and self.recorded and self._job.alive and self.costs.budget):
            return
        group, near = self._job.group, self.traveller.near
        async with self._busy:
            if group.in_state(TargetState.STOPPED) != group.ranks or self.traveller.position.change:
                return
            with contextlib.suppress(CrdebugError, OSError):
                cut = self.traveller.recorded.cut()
                if near.age(cut) < LEAST or near.took > _AT_REST:
                    return
                if await near.keep(cut, further=True) is not None:
                    self.costs.snapshots.stopped(self.costs.part_of_snapshots(self.every))
                    self.costs.snapshots.had_caused(COPYING * near.changed)

    def run_over(self) -> None:
        """A run with such interludes has ended."""
        self._ends.awaited = self._ends.last = False
        self._pauses.over()

    def warn_of_open_epochs(self) -> None:
        """See Notices."""
        if self.recorded and self._job.alive:
            self._notices.of_open_epochs()

    async def take(self) -> None:
        """Take an automatic checkpoint of the job, which stands, or report why there is none."""
        async with self._busy:
            begun = time.monotonic()
            self._job.begin()
            await self.automatic.take_if_useful()
            self._room.make()
            self._pauses.taken(time.monotonic() - begun)

    # ---- going ------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _going(self) -> AsyncIterator[None]:
        """Around every way to another place. Raises Refused while ranks run. An interrupt ends it
        after the present part, and the error says where the job is then."""
        async with self._busy:
            if running := self._job.group.running:
                raise Refused(
                    "all ranks must be stopped to go back",
                    ranks=running,
                    hint="'[all] interrupt' stops them",
                )
            self._job.begin()
            await self.refresh()
            with contextlib.suppress(CrdebugError):  # else a line on its way is not shown
                await self.traveller.near.drained()
            try:
                with self._job.repeating():
                    yield
            except Interrupted as error:
                self._reverse.forget()
                with contextlib.suppress(CrdebugError, OSError):
                    here = f"the job is now at {self.brief(self._job.group.ranks)}"
                    error.outcome = joined(error.outcome, here)
                raise
            finally:
                self._repeats_to = self.traveller.position.furthest
                half_back.steps_done(self._job.run_directory)

    def now(self, focus: int, note: str = "") -> Moment:
        """Where the job is."""
        recorded = self.traveller.recorded.tails()[focus].tick
        return Moment(focus, self.traveller.recorded.cut(), recorded, note, self.branching.current)

    def brief(self, ranks: RankSet) -> str:
        """Where they are, in a few words."""
        focus, cut = self.focus(ranks), self.traveller.recorded.cut()
        behind = " (in the past)" if self.traveller.position.is_behind(cut) else ""
        return f"rank {focus} at tick {cut[focus].tick}{behind}"

    async def overview(self, focus: int) -> Overview:
        """The whole history, from its beginning to its end; marks are those of this branch."""
        current = self.branching.current
        marks = [Place(name, at.cut) for name, at in self.marks.items() if at.branch == current]
        branches = tuple(self.branching.branches.known.values())
        await self.refresh()
        keeps = bool(self.every) and self.recorded
        return self.survey.overview(focus, marks, keeps, branches)

    async def stock(self) -> Stock:
        """The snapshots in memory, and what they have cost."""
        costs, near = self.costs, self.traveller.near
        run = costs.run or math.inf
        return Stock(
            await near.look(self.traveller.recorded.cut()),
            near.held,
            near.bound,
            near.why_not,
            costs.run,
            costs.budget,
            costs.snapshots.spent / run,
            costs.checkpoints.spent / run,
            costs.snapshot_interval(self.every),
        )

    async def mark(self, name: str, focus: int) -> None:
        """Give this place a name."""
        self._states[name] = await self._reverse.recall(focus)
        self.marks[name] = self.now(focus)

    async def goto_mark(self, name: str) -> Moment:
        """To the very place, not only to the tick."""
        mark = self.marks[name]
        async with self._going():
            arrival = Arrival()
            if mark.branch != self.branching.current:
                arrival = await self.branching.to(mark.branch, mark.cut)
            place, state = mark.cut[mark.focus], self._states[name]
            arrival = arrival.then(await self._reverse.to_state(mark.focus, place, state))
            self._last = mark.focus
            return self.now(mark.focus, arrival.text)

    async def last(self, expression: str, focus: int) -> Moment:
        """Back to where the memory of an expression in this rank was last changed; if the rank has
        ended, before its end.

        Raises GdbError for an expression that is no place in memory.
        """
        async with self._going():
            ended = await self._after_last_call_if_ended(focus)
            back = self._changes.back(focus, expression, ended is not None)
            rank, note, arrival = await back
            arrival = (ended or Arrival()).then(arrival)
            self._last = rank
            return self.now(rank, joined(note, arrival.text))

    async def branch(self, name: str, note: str = "") -> str:
        """Begin a new branch of history here; returns its name. note: why."""
        async with self._going():
            self._reverse.forget()
            return await self.branching.begin(name, note)

    async def switch(self, name: str, focus: int) -> Moment:
        """Go to the end of another branch."""
        async with self._going():
            arrival = await self.branching.switch(name)
            return self.now(focus, joined(f"on branch {name}", arrival.text))

    async def compare(self, expression: str, names: tuple[str, ...]) -> tuple[Compared, ...]:
        """The values of an expression at the ends of branches."""
        require_container(self._job.record, "compare branches")
        async with self._going():
            return await self.branching.compare(expression, names)

    async def goto_tick(self, focus: int, tick: int) -> Moment:
        """To where the rank's MPI call of that number has just returned.

        Raises BadInput if the rank never got there.
        """
        async with self._going():
            if tick < 1:
                raise BadInput("ticks are counted from 1: the first MPI call")
            recorded = self.traveller.recorded
            end = recorded.tails()[focus].tick
            if tick > end and focus in {*recorded.ended, *recorded.unrecorded()}:
                raise recorded.not_recorded(focus)
            if tick > end:
                raise BadInput(
                    f"rank {focus} has completed {end} MPI calls, not {tick}",
                    hint="'continue' runs on",
                )
            arrival = await self._to_tick(focus, tick)
            return self.now(focus, arrival.text)

    async def _to_tick(self, focus: int, tick: int) -> Arrival:
        traveller, place = self.traveller, Instant.within(tick)
        if await self.branching.to_start(focus, tick):
            return Arrival()
        await self.branching.make_way(traveller.cut_for(focus, place))
        arrival = await traveller.to_cut(traveller.cut_for(focus, place), focus)
        await leave_hold(self._job, traveller.recorded.clock(focus))
        return arrival

    async def _after_last_call_if_ended(self, focus: int) -> Arrival | None:
        """If the rank has ended, bring it to where its last MPI call has returned; else None."""
        if focus in self._job.group.in_state(TargetState.STOPPED):
            return None
        tick = self.traveller.recorded.tails()[focus].tick
        if tick < 1:
            raise Refused("it has ended, and no MPI call of it is known", ranks=RankSet.of([focus]))
        return await self._to_tick(focus, tick)

    async def reverse(self, kind: str, focus: int, times: int = 1) -> Moment:
        """Take a rank back. kind: "step", "next", "stepi", "nexti", "finish", "continue"; as in
        GDB ("Running programs backward"). At the start of history it stops, and the note says so.
        Raises CrdebugError."""
        async with self._going():
            arrival = Arrival()
            for _ in range(times):
                if kind == "continue":
                    way = await self._stops.back(focus)
                else:
                    by = self._lines if self._lines.are_meant(kind, focus) else self._reverse
                    way = await by.back(kind, focus)
                arrival = arrival.then(way)
                if way.start:
                    break
            self._last = focus
            return self.now(focus, arrival.text)

    async def goto_sender(self, focus: int) -> Moment:
        """To the send of the message that the rank received last, at or before its place."""
        return await self._goto_partner(await self.partners.sender(focus))

    async def goto_receiver(self, focus: int) -> Moment:
        """To where another rank received the message that this one sent last, at or before its
        place."""
        return await self._goto_partner(await self.partners.receiver(focus))

    async def _goto_partner(self, partner: Partner) -> Moment:
        if partner.tick > self.traveller.recorded.tails()[partner.rank].tick:
            moment = await self.goto_entry(partner.rank, partner.tick)
        else:
            moment = await self.goto_tick(partner.rank, partner.tick)
        self._last = partner.rank
        return replace(moment, note=joined(partner.text, moment.note))

    async def goto_entry(self, focus: int, tick: int) -> Moment:
        """To where a rank is about to make a call, which has not returned yet."""
        async with self._going():
            place = Instant.before(tick)
            await self.branching.make_way(self.traveller.cut_for(focus, place))
            arrival = await self.traveller.to_cut(self.traveller.cut_for(focus, place), focus)
            return self.now(focus, arrival.text)

    async def bisect(self, text: str, focus: int) -> tuple[First, Moment]:
        """The first moment, in ticks of the rank, at which a predicate over ranks holds; the job
        is there afterwards, or where it stood if there is none. Raises BadInput for a predicate
        that cannot be read."""
        async with self._going():
            predicate = parse(text, self._job.group.ranks)
            await self._after_last_call_if_ended(focus)
            stood = await self._returning.note(self.now(focus))
            try:
                found = await bisect(self.branching, self.traveller, predicate, focus, self._tell)
                if found.tick is not None:
                    await leave_hold(self._job, self.traveller.recorded.clock(focus))
                    return found, self.now(focus)
            except Interrupted:
                raise
            except CrdebugError:
                with contextlib.suppress(CrdebugError):
                    await self._returning.go(stood)
                raise
            await self._returning.go(stood)
            return found, self.now(focus)

    async def verify(self, name: str, focus: int) -> Verified:
        """Repeat what is recorded since a checkpoint twice, and compare the ranks' variables: see
        Verify.run. The job is afterwards where it stood. Raises CrdebugError."""
        if self._job.far is not None:
            raise NotAvailable(
                "cannot compare the memory of ranks: the job runs over several hosts"
            )
        async with self._going():
            await self._after_last_call_if_ended(focus)
            stood = await self._returning.note(self.now(focus), keep=True)
            try:
                return await Verify(self.traveller, self._tell).run(name)
            finally:
                await self._returning.go(stood)
