"""One run of a group: from the moment its ranks are resumed until all of them have stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, DeadlineExpired, GdbDied, Refused
from crdebug.base.events import GroupStopped, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger.node import MARGIN, Node
from crdebug.debugger.question import Question
from crdebug.debugger.run import Ran, Run, is_completed
from crdebug.debugger.target import Target, TargetState

Start = Callable[[Target], Awaitable[None]]

_numbers = count(1)


@dataclass(eq=False)
class _Here:
    """The part of one rank whose debugger is here. ranks: it, or none if it has joined since."""

    target: Target
    start: Start
    ranks: RankSet
    started: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class _There:
    """The part of ranks of another host. number: of the run, for its agent.  ranks: without those
    that have joined since."""

    node: Node
    ranks: RankSet
    run: Run
    number: int


class GroupRun:
    """Lets targets run, and stops all of them when one stops for a reason that ends the run. Those
    of another host start and stop each other there; one message lets them run, and one tells their
    stops.

    For start, completes and stop_seconds see Run.
    completes: for these ranks.
    led: by rank, what makes this one run instead.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        verb: str,
        start: Question[None],
        completes: Callable[[RankSet], Question[bool]] | None,
        stop_seconds: float,
        led: Mapping[int, Start] | None = None,
    ) -> None:
        self._verb = verb
        self._completes = completes
        self._stop_seconds = stop_seconds
        if (error := why_not(verb, targets)) is not None:
            raise error
        self._ranks = RankSet()
        self._parts: dict[asyncio.Task[None], _Here | _There] = {}
        self._first = self._parted(targets, start, led or {})
        self._own: list[asyncio.Task[None]] = []  # of these parts: it is over when they are
        self._starting = 0  # ranks here that do not run yet
        self._asked: StopReason | None = None
        self._stops: dict[int, RankStopped] = {}
        self._completed: set[int] = set()  # the ranks whose stop completes their part
        self._stand = RankSet()  # those elsewhere of which we know only that they have stopped
        self._errors: dict[int, CrdebugError] = {}
        self._fault: Exception | None = None  # a fault of ours: raised once all ranks have stopped
        self._news = asyncio.Event()
        self.on_news: Callable[[], None] = lambda: None  # a rank has stopped, or failed
        self.on_start: Callable[[], None] = lambda: None  # all ranks here run
        self.is_over = False  # has a rank failed, or stopped for a reason that ends the run?
        self.changed = asyncio.get_running_loop().time()  # when a rank last stopped or joined

    def ask_to_stop(self, patience: float = 0.0, reason: StopReason = StopReason.INTERRUPT) -> None:
        """Interrupt the run, which then returns by itself. Idempotent. patience: how many seconds
        the ranks may take to stop, if that is more than usual.  reason: of their stops."""
        self._stop_seconds = max(self._stop_seconds, patience)
        self._asked = self._asked or reason
        self._news.set()

    @property
    def is_asked(self) -> bool:
        """Has it been asked to stop?"""
        return self._asked is not None

    @property
    def stand(self) -> RankSet:
        """The ranks of this run that have stopped, or ended."""
        return self._stand | RankSet.of(self._stops)

    @property
    def pending(self) -> RankSet:
        """The ranks of this run that have not stopped."""
        return self._ranks - self.stand

    @property
    def completed(self) -> RankSet:
        """The ranks whose stop completes their part."""
        return RankSet.of(self._completed)

    def join(self, targets: Sequence[Target], start: Question[None]) -> None:
        """Make other ranks run along until this run is over; also some of its own that have
        stopped. They stand if it is over already."""
        if self.is_over or self.is_asked:
            return
        ranks = RankSet.of(each.rank for each in targets)
        for part in self._parts.values():
            part.ranks -= ranks
        self._stand -= ranks
        self._completed -= {*ranks}
        for rank in ranks:
            self._stops.pop(rank, None)
        self._begin(self._parted(targets, start, {}))
        self._has_news()

    def refuse(self, verb: str) -> Refused:
        """The error for another run while this one lasts."""
        return Refused(
            f"cannot {verb}: a {self._verb} is under way",
            ranks=self._ranks,
            hint="interrupt it first",
        )

    def _parted(
        self, targets: Sequence[Target], start: Question[None], led: Mapping[int, Start]
    ) -> list[_Here | _There]:
        """The parts of those that are alive: a led rank has one of its own."""
        alive = [each for each in targets if each.state is not TargetState.EXITED]
        self._ranks |= RankSet.of(each.rank for each in alive)
        parts: list[_Here | _There] = []
        elsewhere: dict[Node, list[int]] = {}
        for each in alive:
            if each.node is None or each.rank in led:
                one = RankSet.of([each.rank])
                parts.append(_Here(each, led.get(each.rank, start), one))
            else:
                elsewhere.setdefault(each.node, []).append(each.rank)
        for node, members in elsewhere.items():
            ranks = RankSet.of(members)
            completes = None if self._completes is None else self._completes(ranks)
            run = Run(self._verb, start, completes, self._stop_seconds)
            parts.append(_There(node, ranks, run, next(_numbers)))
        return parts

    def _begin(self, parts: Sequence[_Here | _There]) -> list[asyncio.Task[None]]:
        begun = []
        for part in parts:
            run = self._here(part) if isinstance(part, _Here) else self._there(part)
            self._starting += isinstance(part, _Here)
            begun.append(asyncio.create_task(self._part(run)))
            self._parts[begun[-1]] = part
        return begun

    async def _part(self, run: Coroutine[None, None, None]) -> None:
        """Raises nothing: what happened is noted."""
        try:
            await run
        except Exception as fault:
            self._fault = fault
            self.is_over = True
        self._has_news()

    def _has_news(self) -> None:
        self.changed = asyncio.get_running_loop().time()
        self._news.set()
        self.on_news()

    async def until_stopped(self) -> GroupStopped:
        """Run. See TargetGroup.resume for what it raises."""
        await self.until_over()
        self._raise_first_error()
        return self._result()

    async def until_over(self) -> Ran:
        """Run, as a part of a run over several hosts."""
        self._own = self._begin(self._first)
        try:
            while not (self.is_over or self._asked or all(part.done() for part in self._own)):
                self._news.clear()
                await self._news.wait()
            await asyncio.sleep(0)  # a stop that came before the request counts first
            asked = None if self.is_over else self._asked
            await self._stop(asked or StopReason.FOLLOWED)
        finally:
            for task in self._parts:
                task.cancel()
            await asyncio.gather(*self._parts, return_exceptions=True)
        if self._fault is not None:
            raise self._fault
        return Ran(self._stops, self._errors, self.completed)

    async def _stop(self, reason: StopReason) -> None:
        """Stop those that run."""
        deadline, seconds = Deadline(self._stop_seconds), self._stop_seconds
        stopping = []
        for task, part in self._parts.items():
            if task.done():
                continue
            if isinstance(part, _Here):
                stopping.append(self._stop_here(part, reason, deadline))
            else:
                part.node.stop(part.number, reason, seconds)
                stopping.append(self._until_they_stand(task, part, Deadline(seconds + MARGIN)))
        await asyncio.gather(*stopping)

    # ---- a rank here ----------------------------------------------------------------------------

    async def _here(self, part: _Here) -> None:
        target = part.target
        try:
            try:
                await part.start(target)
            finally:
                part.started.set()
                self._starting -= 1
                if not self._starting:
                    self.on_start()
            await self._note(part, await target.stopped())
        except CrdebugError as error:
            self._failed(target.rank, error)

    async def _note(self, part: _Here, stop: RankStopped) -> None:
        target, completes = part.target, self._completes and self._completes(part.ranks)
        completed = completes is not None and await is_completed(target, stop, completes)
        if not part.ranks:
            return
        if completed:
            self._completed.add(target.rank)
        else:
            self.is_over = True
        self._stops[target.rank] = stop

    def _failed(self, rank: int, error: CrdebugError) -> None:
        self._errors.setdefault(rank, error)
        self.is_over = True

    async def _stop_here(self, part: _Here, reason: StopReason, deadline: Deadline) -> None:
        # A rank that does not run yet cannot be interrupted, but it will run in a moment.
        target, what = part.target, f"the start of {self._verb}"
        try:
            await deadline.wait(part.started.wait(), what, ranks=part.ranks)
            if target.rank not in self._errors:
                await self._note(part, await target.interrupt(deadline, reason))
        except CrdebugError as error:
            self._failed(target.rank, error)

    # ---- those of another host ------------------------------------------------------------------

    async def _there(self, part: _There) -> None:
        def stand(ranks: RankSet, over: bool) -> None:
            self._stand |= ranks & part.ranks
            self.is_over = self.is_over or over
            self._has_news()

        try:
            ran = await part.node.run(part.number, part.run, part.ranks, stand)
        except CrdebugError as error:
            for rank in part.ranks:
                self._failed(rank, error)
            return
        for rank, problem in ran.errors.items():
            self._failed(rank, problem)
        for rank in part.ranks & RankSet.of(ran.stops):
            self._stops[rank] = ran.stops[rank]
        self._completed |= {*(part.ranks & ran.completed)}
        self.is_over = self.is_over or bool(part.ranks - ran.completed)

    async def _until_they_stand(
        self, task: asyncio.Task[None], part: _There, deadline: Deadline
    ) -> None:
        try:
            await deadline.wait(asyncio.shield(task), f"the agent on {part.node.host}")
        except DeadlineExpired as error:
            for rank in part.ranks - self._stand:
                self._failed(rank, error)

    # ---- its end --------------------------------------------------------------------------------

    def _raise_first_error(self) -> None:
        """Raise an error of the gravest kind, with all the ranks that report the same."""
        if not self._errors:
            return
        kinds = (GdbDied, DeadlineExpired, CrdebugError)
        first = next(
            error for kind in kinds for error in self._errors.values() if isinstance(error, kind)
        )
        first.ranks = RankSet.of(
            rank
            for rank, error in self._errors.items()
            if type(error) is type(first) and error.clause() == first.clause()
        )
        raise first

    def _result(self) -> GroupStopped:
        stops = tuple(stop for _, stop in sorted(self._stops.items()))
        own = tuple(stop for stop in stops if stop.reason is not StopReason.FOLLOWED)
        causes = tuple(stop for stop in own if stop.rank not in self._completed)
        return GroupStopped(causes or own or stops, stops)


def why_not(verb: str, targets: Sequence[Target]) -> CrdebugError | None:
    """The error if these cannot run."""
    for state, word in ((TargetState.RUNNING, "running"), (TargetState.IDLE, "not attached")):
        if ranks := _in_state(targets, state):
            return Refused(f"cannot {verb}: {word}", ranks=ranks)
    if dead := _in_state(targets, TargetState.DEAD):
        hint = f"'[@stopped] {verb}' leaves them out"
        return GdbDied("gdb had ended before", verb, None, ranks=dead, hint=hint)
    ranks = RankSet.of(each.rank for each in targets)
    if _in_state(targets, TargetState.EXITED) == ranks:
        return Refused(f"cannot {verb}: no rank is alive", ranks=ranks)
    return None


def _in_state(targets: Sequence[Target], state: TargetState) -> RankSet:
    return RankSet.of(each.rank for each in targets if each.state is state)
