"""Running a job forward to a cut: each rank to its place, in the recorded order.

A rank is given the instant at which it is to hold (native/recorder/clock.h); it holds at the entry
of its next call, or just before the return of the one it is in. A place inside a call counts as
reached as soon as the call is entered: it may be one that cannot complete at this cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from crdebug.attached.job import AttendedJob
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, GdbError, Interrupted, NotAvailable
from crdebug.base.events import Event, GroupStopped, Progress, RankStopped, StopReason
from crdebug.base.instant import Cut, Instant
from crdebug.base.ranks import RankSet
from crdebug.debugger import own_breakpoints
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.target import Target
from crdebug.job.clocks import NEVER, ClockHandle
from crdebug.native.matcher.library import Library
from crdebug.timeline.differing import difference
from crdebug.timeline.log import read_log

_LOOK = 3.0  # seconds after which a rank that does not move is looked at
_STANDSTILL = 60.0  # seconds without any rank moving on
TELL = 10.0  # seconds between two signs of life


def diverges(clocks: Sequence[ClockHandle]) -> bool:
    """Has a rank made a call other than the recorded one? Raises ProcessLookupError."""
    return any(clock.read().diverged for clock in clocks)


def divergence(
    job: AttendedJob, clocks: Sequence[ClockHandle], library: Library
) -> CrdebugError | None:
    """The error if a rank has made another call than the recorded one, else None. That rank waits
    there, and the others wait for it. library: reads the rank's log. Raises ProcessLookupError."""
    for clock in clocks:
        state = clock.read()
        if state.diverged:
            log = job.logs / str(clock.rank)
            names = functools.partial(_comm_name, log, library, state.cursor)
            return CrdebugError(
                f"call {state.diverged_now.tick + 1} of the replay is not the recorded one: "
                + difference(state, names),
                ranks=RankSet.of([clock.rank]),
                hint="time, random numbers, data races and other input from outside MPI are not "
                "recorded, see docs/limits.md",
            )
    return None


def _comm_name(log: Path, library: Library, place: int, number: int) -> str:
    try:
        return read_log(log, library).comm_name(number, place)
    except (NotAvailable, OSError):
        return ""  # the message does without the name


def moved(clock: ClockHandle) -> tuple[Instant, int]:
    """Values that change while a rank moves on: its clock and, between two calls, its processor
    time. Inside a call that says nothing: many MPIs compute while they wait."""
    state = clock.read()
    computes = not state.now.inside and not state.held
    return state.now, clock.worked() if computes else 0


class SignsOfLife:
    """Tells when a long way is to be reported: every TELL seconds."""

    def __init__(self) -> None:
        self._begun = self._reported = time.monotonic()

    def due(self) -> float | None:
        """How many seconds the way has taken, if that is to be reported now."""
        now = time.monotonic()
        if now - self._reported <= TELL:
            return None
        self._reported = now
        return now - self._begun


class Replay:
    """One way to a cut. focus: the rank that is to be held just before the return too, not only
    somewhere inside the call.

    library: reads the log of a rank that diverges.  also: what else has to hold when all are there.
    """

    def __init__(
        self,
        job: AttendedJob,
        library: Library,
        clocks: Sequence[ClockHandle],
        cut: Cut,
        focus: int | None,
        also: Callable[[], bool] = lambda: True,
    ) -> None:
        self._job = job
        self._library = library
        self._group = job.group
        self._clocks = clocks
        self._cut = cut
        self._focus = focus
        self._also = also
        self.held_up = RankSet()  # ranks that cannot come to their place, and wait inside a call
        # ranks that are where they were, and wait for input as they did then
        self.reading = RankSet()

    async def run(self) -> None:
        """Run until all ranks are there, and stand. Raises CrdebugError, which names those that are
        not.

        The user's breakpoints stop nothing on the way.
        """
        for clock in self._clocks:
            clock.set_stop(self._cut[clock.rank])
        if self._there():
            return
        if (diverged := divergence(self._job, self._clocks, self._library)) is not None:
            raise diverged  # only from an earlier state can it go on
        async with quiet(self._group), self._job.watched():
            await self._run()

    async def _run(self) -> None:
        if self._job.broken_off:
            raise Interrupted.on_the_way(self._places())
        ranks = RankSet.of(clock.rank for clock in self._clocks)
        run = asyncio.create_task(self._group.resume(ranks))
        try:
            await self._until_there(run)
        finally:
            stop = await ended(self._group, run)
        if not self._there() and not self.held_up and not self.reading:
            raise self._why_not(stop)

    async def _until_there(self, run: asyncio.Task[GroupStopped]) -> None:
        before: list[tuple[Instant, int]] = []
        waited, signs = 0.0, SignsOfLife()

        def over() -> bool:
            at_end = run.done() or self._there() or self._job.broken_off
            return at_end or diverges(self._clocks)

        while not over():
            now = [moved(clock) for clock in self._clocks]
            if now == before and self._only_held_up():
                self.reading = self._waiting_for_input()
                self.held_up = self._missing() - self.reading
                return
            if now == before and waited >= _STANDSTILL:
                raise CrdebugError(
                    f"the replay does not move on: {self._places()}", ranks=self._missing()
                )
            waited = waited + _LOOK if now == before else 0.0
            before = now
            if (taken := signs.due()) is not None:
                phase = f"replay, {taken:.0f} s so far: {self._places()}"
                self._group.subscriber(Progress("back in time", phase))
            with contextlib.suppress(CrdebugError):
                await Deadline(_LOOK).until(over, "the replay to move on")

    def _only_held_up(self) -> bool:
        """Is the focused rank there, while every other rank waits inside a call for something that
        no rank does at this cut? The rules (crdebug/timeline/cuts.py) do not cover everything: not
        which rank got the lock of a window first. A rank may also wait for input that nobody has
        sent: it comes to no next call."""
        missing = self._missing() - self._waiting_for_input()
        others = [clock for clock in self._clocks if clock.rank in missing]
        return not others or (
            self._focus is not None
            and self._focus not in missing
            and all(clock.read().now.inside and not clock.read().held for clock in others)
        )

    def _waiting_for_input(self) -> RankSet:
        return RankSet.of(
            clock.rank
            for clock in self._clocks
            if clock.rank != self._focus
            and clock.read().now == self._cut[clock.rank]
            and clock.reads_input
        )

    def _there(self) -> bool:
        return not self._missing() and self._also()

    def _missing(self) -> RankSet:
        return RankSet.of(clock.rank for clock in self._clocks if not self._is_there(clock))

    def _is_there(self, clock: ClockHandle) -> bool:
        state, place = clock.read(), self._cut[clock.rank]
        if state.now != place or state.diverged:
            return False
        return bool(state.held) or (place.inside and clock.rank != self._focus)

    def _places(self) -> str:
        texts = []
        for clock in self._clocks:
            if not self._is_there(clock):
                now, place = clock.read().now, self._cut[clock.rank]
                texts.append(f"rank {clock.rank} is at tick {now.ticks:g} of {place.ticks:g}")
        return ", ".join(texts)

    def _why_not(self, stop: GroupStopped) -> CrdebugError:
        diverged = divergence(self._job, self._clocks, self._library)
        if diverged is not None:
            return diverged
        cause = stop.cause[0]
        if cause.reason is StopReason.INTERRUPT:
            return Interrupted.on_the_way(self._places())
        return CrdebugError(
            f"the replay was stopped on its way: {cause.reason.value} {cause.detail}".rstrip()
            + f"; {self._places()}",
            ranks=RankSet.of(each.rank for each in stop.cause),
        )


async def ended(group: TargetGroup, run: asyncio.Task[GroupStopped]) -> GroupStopped:
    """The end of a run of the group. A run that still lasts is ended, even if a GDB has died."""
    try:
        if not run.done():
            await group.interrupt()
    except BaseException:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        raise
    return await run


@contextlib.asynccontextmanager
async def quiet(group: TargetGroup, ranks: RankSet | None = None) -> AsyncIterator[None]:
    """Inside the block the user's breakpoints stop nothing (on `ranks`, or on all ranks), and stops
    are not reported."""

    async def each(switch: Callable[[Target, Deadline], Awaitable[object]]) -> None:
        deadline = Deadline(group.settings.command)
        chosen = group.ranks if ranks is None else ranks
        answers = await group.ask(chosen, lambda target: switch(target, deadline))
        for error in answers.errors.values():
            if isinstance(error, GdbError):
                raise error

    told, group.subscriber = group.subscriber, _without_stops(group)
    try:
        await each(own_breakpoints.switch_off)
        try:
            yield
        finally:
            await each(own_breakpoints.switch_on)
    finally:
        group.subscriber = told


def _without_stops(group: TargetGroup):  # type: ignore[no-untyped-def]
    tell = group.subscriber

    def hear(event: Event) -> None:
        if not isinstance(event, RankStopped):
            tell(event)

    return hear


def let_run(clocks: Sequence[ClockHandle]) -> None:
    """Hold no rank any more once the ranks run. (Those of a lost host nobody can reach.)"""
    for clock in clocks:
        with contextlib.suppress(ProcessLookupError, NotAvailable):
            clock.set_stop(NEVER)
