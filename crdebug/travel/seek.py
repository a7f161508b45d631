"""Bringing a recorded job to any consistent cut of its history.

The way there is always the same: a state that can be brought back (a checkpoint, or a snapshot in
the debuggers' memory), then an enforced replay up to the cut. Design: "Time", docs/timeline.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

from crdebug.attached.job import AttendedJob
from crdebug.base.errors import CrdebugError, Refused, StoreError
from crdebug.base.events import Event, GroupStopped, Progress
from crdebug.base.instant import Cut, Instant
from crdebug.base.ranks import RankSet
from crdebug.checkpoint.store import CheckpointStore
from crdebug.debugger.target import Target, TargetState
from crdebug.job import clocks
from crdebug.job.clocks import NEVER, ClockHandle
from crdebug.native.matcher.library import Library
from crdebug.timeline.cuts import latest_cut
from crdebug.timeline.functions import OUTSIDE
from crdebug.travel.arrival import Arrival
from crdebug.travel.call_sites import functions, show_callers
from crdebug.travel.checkpoints import Checkpoints
from crdebug.travel.dead_ends import DeadEnds
from crdebug.travel.memory_snapshots import Near
from crdebug.travel.position import Position
from crdebug.travel.recorded_job import RecordedJob
from crdebug.travel.replay import Replay, diverges, let_run, quiet
from crdebug.travel.restore_points import Base, StartOfHistory, below, given_up, is_before, no_base

_NEAR = 16  # MPI calls


class Traveller:
    """Moves the job of a session through its recorded history.

    library: reads the record.  tell: gets progress. All verbs need the job stopped; they leave it
    stopped.
    """

    def __init__(self, job: AttendedJob, library: Library, tell: Callable[[Event], None]) -> None:
        self.job = job
        self.tell = tell
        self.recorded = RecordedJob(job, library)
        self._checkpoints = Checkpoints(job.directory)
        self.near = Near(job, lambda: clocks.leaving(self.recorded.clocks()), tell)
        self.position = Position(len(job.group.ranks))
        self.dead_ends = DeadEnds()

    def on_branch(self, begins: Cut) -> None:
        """The job is on another branch of history now, with other logs. begins: where; (): the
        first."""
        self.position.change_branch(begins)
        self.recorded.forget()
        self.dead_ends = DeadEnds()

    # ---- moving -----------------------------------------------------------------------------

    def release(self) -> None:
        """Before the user lets ranks run: hold no rank at a place any more."""
        if self.job.record.layer:
            let_run(self.recorded.clocks())

    def arrived(self, cut: Cut) -> None:
        """The user's own run has ended there."""
        self.position.advance(cut)
        self.dead_ends.note(self.job.group, cut)

    def cut_for(self, focus: int, now: Instant) -> Cut:
        """Where the others have to be when the focused rank is at this place of its past.

        Each stays as far forward as it has been, without anything that depends on the focused
        rank's future.
        """
        recorded = self.recorded
        matching, last, begin = recorded.matching(), recorded.last_places(), recorded.beginning
        if now > last[focus]:
            raise recorded.not_recorded(focus)
        if now < begin[focus]:
            raise given_up(focus, begin[focus])
        furthest, start = self.position.furthest, self.position.branch_start
        frontier = furthest if now <= furthest[focus] else recorded.tails()
        found = latest_cut(matching, focus, now, tuple(map(min, frontier, last)), recorded.ended)
        # A branch begins with all ranks at once; before it, there is the branch that it left.
        bound = max if now >= start[focus] else min
        return tuple(
            now
            if rank == focus
            else self._before_its_end(rank, max(bound(now, start[rank]), begin[rank]))
            for rank, now in enumerate(found)
        )

    @property
    def in_the_past(self) -> bool:
        """Is any rank in the past?"""
        return self.position.is_behind(self.recorded.cut())

    async def alongside(
        self, focus: int, start: Callable[[Target], Awaitable[None]]
    ) -> GroupStopped:
        """Let one rank run in the past, and the others with it as far as it needs them, but no
        further than they have been. Then take them to where they can have been."""
        group, clocks, furthest = self.job.group, self.recorded.clocks(), self.position.furthest
        for clock in clocks:
            clock.set_stop(NEVER if clock.rank == focus else furthest[clock.rank])
        async with quiet(group, group.ranks - RankSet.of([focus])):
            stop = await group.lead(focus, start)
        now = self.recorded.cut()[focus]
        there = min(furthest[focus], self.recorded.tails()[focus])
        if now <= there and focus in group.in_state(TargetState.STOPPED):
            await self.others_to(self.cut_for(focus, now), focus)
            others = group.in_state(TargetState.STOPPED) - RankSet.of([focus])
            await show_callers(group, others, self.job.record.layer)
        if all(each.rank == focus for each in stop.cause):
            return GroupStopped(stop.cause, stop.cause)  # others have only come along
        return stop

    def replay(
        self,
        clocks: Sequence[ClockHandle],
        cut: Cut,
        focus: int | None,
        also: Callable[[], bool] = lambda: True,
    ) -> Replay:
        return Replay(self.job, self.recorded.library, clocks, cut, focus, also)

    async def others_to(self, cut: Cut, focus: int) -> None:
        """Take the others forward while the focused rank stands."""
        clocks = [clock for clock in self.recorded.clocks() if clock.rank != focus]
        here = self.recorded.cut()
        if all(here[clock.rank] == cut[clock.rank] for clock in clocks):
            return
        if is_before(here, cut):
            await self.replay(clocks, cut, None).run()

    def _before_its_end(self, rank: int, now: Instant) -> Instant:
        """No rank can be held at the entry of a call that never comes: a rank that has left MPI for
        good, or crashes before its next call, is held before it leaves its last one."""
        logs = self.recorded.so_far.logs
        calls = logs[rank].calls if rank in logs else ()
        over = calls and calls[-1].name == "MPI_Finalize" and now == calls[-1].returned
        return now.in_last_call if over or self.dead_ends.has(rank, now) else now

    async def to_cut(self, cut: Cut, focus: int | None = None) -> Arrival:
        """Bring every rank to its place. focus: if this rank's place is inside a call, hold it just
        before the call returns. Raises CrdebugError; the job then stands somewhere on the way.
        """
        self.job.go_on()
        self.position.brought_elsewhere()
        self.recorded.require(cut)
        if not self.position.is_on_branch(cut):
            raise StartOfHistory(f"branch {self.job.record.branch} begins here")
        bases = self.bases()
        ahead = []
        problem: CrdebugError = no_base(self.job.has_no_checkpoints)
        group = self.job.group
        stopped = group.in_state(TargetState.STOPPED) == group.ranks
        if stopped and not self.position.change and not diverges(self.recorded.clocks()):
            ahead.append(Base(self.recorded.cut(), kept="here"))
        for base in below([*bases, *ahead], cut):
            if base.kept and self.job.is_half_back:
                continue
            if base.kept == "here":
                break
            try:
                await self.bring_back(base)
                break
            except CrdebugError as error:
                if not (isinstance(error, StoreError | Refused) or self.job.is_half_back):
                    raise
                problem = error
        else:
            raise problem
        await self.job.give_input_again()
        if base.kept != "here":
            await self.awake()
        self.tell(Progress("back in time", "replay"))
        await self._stop_after_init(base.cut, cut)
        if focus is not None:
            await self._stop_over(base.cut, cut, focus)
        replay = self.replay(self.recorded.clocks(), cut, focus)
        await replay.run()
        caveats = []
        if replay.held_up:
            caveats.append(f"{replay.held_up.words}: further back than before, held up by a call")
        if self.recorded.unrecorded():
            ranks = RankSet.of(self.recorded.unrecorded())
            caveats.append(f"{ranks.words}: left the record on the way, and may be elsewhere")
        await show_callers(group, group.ranks, self.job.record.layer)
        return Arrival((*caveats, *self._one_sided(base.cut, cut)))

    def _one_sided(self, start: Cut, cut: Cut) -> Iterator[str]:
        """The caveats of one-sided communication on a way: no record has its order or its data."""
        logs = self.recorded.logs()
        ranks = RankSet.of(
            rank for rank, log in logs.items() if log.goes_one_sided(start[rank], cut[rank])
        )
        if ranks:
            yield (
                f"{ranks.words}: one-sided communication on the way is not recorded: its data and "
                "the order of locks may differ"
            )
        if self.recorded.in_epochs:
            yield f"{self.recorded.in_epochs.words}: inside an epoch of one-sided communication"

    async def _outside_since(self, base: Base) -> bool:
        """Has any rank talked with another process than a rank since then? A snapshot cannot take
        that process back; a checkpoint has the launcher too."""
        logs, cut = self.recorded.logs(), self.recorded.cut()
        if self.recorded.unrecorded():
            return True  # nobody knows
        for rank, now in enumerate(cut):
            calls = logs[rank].calls if rank in logs else ()
            if rank in logs and logs[rank].goes_outside(base.begun(rank), now):
                return True
            if now.inside and (not calls or calls[-1].tick < now.entered):  # not on record yet
                names = await functions(self.job.group, rank)
                if any(f"MPI_{name.removeprefix('wrap_')}" in OUTSIDE for name in names):
                    return True
        return False

    async def awake(self) -> None:
        """Let all ranks notice that they are in the past, before any of them moves on: they then
        post receives that are open inside MPI again as they are recorded."""
        clocks = self.recorded.clocks()
        states = [clock.read() for clock in clocks]
        if not any(state.pending_wild for state in states):
            return
        logs = self.recorded.logs()
        waits = [
            clock
            for clock, state in zip(clocks, states, strict=True)
            if not state.now.inside
            and clock.rank in logs
            and state.cursor < logs[clock.rank].records
        ]
        await self.replay(
            clocks,
            tuple(state.now for state in states),
            None,
            also=lambda: all(clock.read().replaying for clock in waits),
        ).run()

    async def _stop_after_init(self, start: Cut, cut: Cut) -> None:
        """On a way from before MPI_Init, which takes longer than all else: keep a snapshot as soon
        as every rank has returned from it."""
        if all(now.tick for now in start):
            return
        logs = self.recorded.logs()
        if not all(log.calls and log.calls[0].name in OUTSIDE for log in logs.values()):
            return
        ends = (self._before_its_end(rank, Instant.after(1)) for rank in range(len(cut)))
        place = tuple(map(max, start, ends))
        if start != place != cut and is_before(place, cut):
            await self.replay(self.recorded.clocks(), place, None).run()
            await self.near.keep(self.recorded.cut())

    async def _stop_over(self, start: Cut, cut: Cut, focus: int) -> None:
        """On a long way, keep a snapshot a little before the end: it makes the next way back a
        short one."""
        place = cut[focus].before_return.back(_NEAR)
        if place.back(_NEAR) < start[focus]:
            return
        near = self.cut_for(focus, place)
        if is_before(start, near) and is_before(near, cut):
            await self.replay(self.recorded.clocks(), near, focus).run()
            await self.near.keep(near)

    async def bring_back(self, base: Base) -> None:
        """Bring a state of the past back. Raises Refused or StoreError if that is impossible."""
        self.job.go_on()
        self.position.brought_elsewhere()
        self.tell(Progress("back in time", base.text))
        if base.kept:
            if await self._outside_since(base):
                raise Refused("a rank has talked with the launcher since that snapshot")
            await self.near.put_back(base)
            self.position.change_is_over()
            if self.near.begins_with(base):  # it may be as far as the job can be taken
                await show_callers(self.job.group, self.job.group.ranks, self.job.record.layer)
            return
        store = self.store(base)
        manifest = store.load(base.number)
        run = store.path(base.number) / "run"
        self.job.repeats_from(run)
        await self.job.restart(manifest, store)
        await self.job.give_input_again()
        self.position.change_is_over()
        if all(base.cut):  # a snapshot from before MPI_Init could never be put back
            await self.near.keep(base.cut)

    def store(self, base: Base) -> CheckpointStore:
        """Where a base that is a checkpoint is kept."""
        directory = self.job.directory
        return directory.history if base.history else directory.store

    def bases(self) -> list[Base]:
        """All states that can be brought back on the present branch, as far as its record goes."""
        branch, begin = self.job.record.branch, self.recorded.beginning
        found = [base for base in self.near.bases() + self.checkpoints() if base.branch == branch]
        return [base for base in found if is_before(begin, base.cut)]

    def checkpoints(self) -> list[Base]:
        """The checkpoints of all branches with their ranks' clocks."""
        return self._checkpoints.all()
