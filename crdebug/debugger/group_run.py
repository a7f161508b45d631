"""One run of a group: from the moment its ranks are resumed until all of them have stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, DeadlineExpired, GdbDied, Refused
from crdebug.base.events import GroupStopped, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger.target import Target, TargetState


class GroupRun:
    """Lets targets run, and stops all of them when one stops for a reason that ends the run.

    start: makes one target run, and returns once it runs.
    completed: does this stop complete one rank's part, so that it ends the run only when all ranks
    have such a stop? It may ask the rank. None if every stop ends the run.
    stop_seconds: how long the others may take to stop.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        verb: str,
        start: Callable[[Target], Awaitable[None]],
        completed: Callable[[Target, RankStopped], Awaitable[bool]] | None,
        stop_seconds: float,
    ) -> None:
        self._verb = verb
        self._start = start
        self._completes = completed
        self._completed: set[int] = set()  # the ranks whose stop completes their part
        self._stop_seconds = stop_seconds
        self._asked = asyncio.Event()
        self._check(targets)
        self._alive = [each for each in targets if each.state is not TargetState.EXITED]
        self._started = {each.rank: asyncio.Event() for each in self._alive}
        self._stops: dict[int, RankStopped] = {}
        self._errors: dict[int, CrdebugError] = {}
        self._fault: Exception | None = None  # a fault of ours: raised once all ranks have stopped
        self._along: dict[asyncio.Future[None], Target] = {}
        self._more = asyncio.Event()
        self.changed = asyncio.get_running_loop().time()  # when a rank last stopped or joined

    def ask_to_stop(self, patience: float = 0.0) -> None:
        """Interrupt the run, which then returns by itself. Idempotent. patience: how many seconds
        the ranks may take to stop, if that is more than usual."""
        self._stop_seconds = max(self._stop_seconds, patience)
        self._asked.set()

    @property
    def pending(self) -> RankSet:
        """The ranks of this run that have not stopped."""
        return RankSet.of(rank for rank in self._started if rank not in self._stops)

    def join(self, targets: Sequence[Target], start: Callable[[Target], Awaitable[None]]) -> None:
        """Make other ranks run along until this run is over."""
        for each in targets:
            self._alive.append(each)
            self._started[each.rank] = asyncio.Event()
            self._along[asyncio.ensure_future(self._one(each, start))] = each
        self._more.set()

    def refuse(self, verb: str) -> Refused:
        """The error for another run while this one lasts."""
        ranks = RankSet.of(self._started)
        return Refused(
            f"cannot {verb}: a {self._verb} is under way", ranks=ranks, hint="interrupt it first"
        )

    def _check(self, targets: Sequence[Target]) -> None:
        wrong = {
            state: RankSet.of(each.rank for each in targets if each.state is state)
            for state in (TargetState.RUNNING, TargetState.IDLE)
        }
        for state, ranks in wrong.items():
            if ranks:
                word = "running" if state is TargetState.RUNNING else "not attached"
                raise Refused(f"cannot {self._verb}: {word}", ranks=ranks)
        dead = RankSet.of(each.rank for each in targets if each.state is TargetState.DEAD)
        if dead:
            hint = f"'[@stopped] {self._verb}' leaves them out"
            raise GdbDied("gdb had ended before", self._verb, None, ranks=dead, hint=hint)
        if all(each.state is TargetState.EXITED for each in targets):
            raise Refused(
                f"cannot {self._verb}: no rank is alive",
                ranks=RankSet.of(each.rank for each in targets),
            )

    async def until_stopped(self) -> GroupStopped:
        """Run. See TargetGroup.resume for what it raises."""
        runs: dict[asyncio.Future[None], Target] = {
            asyncio.ensure_future(self._one(each, self._start)): each for each in self._alive
        }
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await self._until_over(set(runs), asked)
            runs |= self._along
            followers = [each for run, each in runs.items() if not run.done()]
            interrupted = asked.done() and not self._is_over()
            reason = StopReason.INTERRUPT if interrupted else StopReason.FOLLOWED
            await self._stop(followers, reason)
        finally:
            for task in runs:
                task.cancel()
            asked.cancel()
            await asyncio.gather(*runs, asked, return_exceptions=True)
        self._raise_first_error()
        return self._result()

    async def _one(self, target: Target, start: Callable[[Target], Awaitable[None]]) -> None:
        """One rank's run. Notes its stop or error, and raises nothing."""
        try:
            try:
                await start(target)
            finally:
                self._started[target.rank].set()
            await self._note(target, await target.stopped())
            self.changed = asyncio.get_running_loop().time()
        except CrdebugError as error:
            self._errors[target.rank] = error
        except Exception as error:
            self._fault = error

    async def _note(self, target: Target, stop: RankStopped) -> None:
        if self._completes is not None and await self._completes(target, stop):
            self._completed.add(target.rank)
        self._stops[target.rank] = stop

    async def _until_over(
        self, runs: set[asyncio.Future[None]], asked: asyncio.Task[Literal[True]]
    ) -> None:
        while not (all(run.done() for run in runs) or asked.done() or self._is_over()):
            self._more.clear()
            more = asyncio.create_task(self._more.wait())
            ranks = [each for each in (*runs, *self._along) if not each.done()]
            waited: set[asyncio.Future[None] | asyncio.Task[Literal[True]]] = {*ranks, asked, more}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            more.cancel()

    def _is_over(self) -> bool:
        """Has a rank failed, or stopped for a reason that ends the run?"""
        return bool(self._errors or self._fault) or any(
            rank not in self._completed for rank in self._stops
        )

    async def _stop(self, followers: Sequence[Target], reason: StopReason) -> None:
        deadline = Deadline(self._stop_seconds)
        await asyncio.gather(*(self._stop_one(each, reason, deadline) for each in followers))

    async def _stop_one(self, target: Target, reason: StopReason, deadline: Deadline) -> None:
        # A rank that does not run yet cannot be interrupted, but it will run in a moment.
        try:
            await deadline.wait(
                self._started[target.rank].wait(),
                f"the start of {self._verb}",
                ranks=RankSet.of([target.rank]),
            )
            if target.rank not in self._errors:
                await self._note(target, await target.interrupt(deadline, reason))
        except CrdebugError as error:
            self._errors.setdefault(target.rank, error)

    def _raise_first_error(self) -> None:
        """Raise an error of the gravest kind, with all the ranks that report the same."""
        if self._fault is not None:
            raise self._fault
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
        stops = tuple(self._stops[each.rank] for each in sorted(self._alive, key=_rank))
        causes = tuple(
            stop
            for stop in stops
            if stop.reason is not StopReason.FOLLOWED and stop.rank not in self._completed
        )
        done = tuple(stop for stop in stops if stop.reason is not StopReason.FOLLOWED)
        return GroupStopped(causes or done or stops, stops)


def _rank(target: Target) -> int:
    return target.rank
