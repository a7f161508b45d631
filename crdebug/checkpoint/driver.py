"""Carries the protocol's instructions out, and tells it how each one ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol as Seam

from crdebug.base.errors import CrdebugError, GdbDied, Interrupted, in_words
from crdebug.base.ranks import RankSet
from crdebug.checkpoint import protocol


class RankLost(CrdebugError):
    """A rank ended in the middle of an operation."""


class JobActions(Seam):
    """The actions of the driver: one method for each instruction about the whole job.

    Each returns when it is done, and raises CrdebugError.
    """

    async def dump(self) -> None: ...
    async def publish(self) -> None: ...
    async def restore(self) -> None: ...
    async def retire(self) -> None: ...


class RankActions(Seam):
    """The actions of the driver under a debugger: one method for each instruction about ranks.

    Each returns when it is done, and raises CrdebugError (RankLost when the rank has ended).
    """

    async def record_threads(self, rank: int) -> None: ...
    async def herd(self, rank: int) -> None: ...
    async def detach(self, rank: int) -> None: ...
    async def await_waitpoint(self, rank: int) -> None: ...
    async def attach(self, rank: int) -> None: ...
    async def walk_out(self, rank: int) -> None: ...
    async def announce(self) -> None: ...


async def _carry_out(
    job: JobActions, ranks: RankActions | None, instruction: protocol.Instruction
) -> None:
    match instruction:
        case protocol.Dump():
            await job.dump()
        case protocol.Publish():
            await job.publish()
        case protocol.Restore():
            await job.restore()
        case protocol.Retire():
            await job.retire()
        case _:
            assert ranks is not None, "without a debugger nothing is to be done with ranks"
            await _carry_out_on(ranks, instruction)


async def _carry_out_on(
    ranks: RankActions, instruction: protocol.RankInstruction | protocol.Announce
) -> None:
    match instruction:
        case protocol.Record(rank):
            await ranks.record_threads(rank)
        case protocol.Herd(rank):
            await ranks.herd(rank)
        case protocol.Detach(rank):
            await ranks.detach(rank)
        case protocol.AwaitWaitpoint(rank):
            await ranks.await_waitpoint(rank)
        case protocol.Attach(rank):
            await ranks.attach(rank)
        case protocol.WalkOut(rank):
            await ranks.walk_out(rank)
        case protocol.Announce():
            await ranks.announce()


_ANY = asyncio.FIRST_COMPLETED


async def drive(
    machine: protocol.Protocol,
    job: JobActions,
    ranks: RankActions | None = None,
    progress: Callable[[protocol.Phase, RankSet], None] = lambda phase, ranks: None,
    asked: asyncio.Event | None = None,
) -> None:
    """Run a protocol from Start to ENDED; instructions that are pending together run together.

    ranks: None for a machine without a debugger.
    progress: called after each event with the phase and the ranks that it waits for.
    asked: set when the user gives up, with the same effect as cancellation; nothing is raised for
    it. Cancellation waits for a safe end, since a job half in its waitpoints is of no use: a
    checkpoint is given up, and so is a restart unless the job is back. Look at the machine for the
    outcome; what an action raises is in its problems. Only a fault in the machine or in `progress`
    is raised, after the end.
    """
    driving = _Driving(machine, job, ranks, progress)
    work = asyncio.create_task(driving.loop())
    cancelled: asyncio.CancelledError | None = None
    asking = asyncio.create_task((asked or asyncio.Event()).wait())
    while not work.done():
        try:
            await asyncio.wait({work, asking} if not asking.done() else {work}, return_when=_ANY)
            if asking.done() and not work.done():
                driving.give_up()
        except asyncio.CancelledError as error:
            cancelled = error
            driving.give_up()
    asking.cancel()
    await asyncio.wait([asking])
    fault = work.exception()
    if cancelled is not None:
        raise cancelled from fault
    if fault is not None:
        raise fault


class _Driving:
    """One run of a machine."""

    def __init__(
        self,
        machine: protocol.Protocol,
        job: JobActions,
        ranks: RankActions | None,
        progress: Callable[[protocol.Phase, RankSet], None],
    ) -> None:
        self._machine = machine
        self._job = job
        self._ranks = ranks
        self._progress = progress
        self._queue: asyncio.Queue[protocol.Event] = asyncio.Queue()
        self._tasks: dict[asyncio.Task[protocol.Event], protocol.Instruction] = {}
        self._fault: Exception | None = None
        self._given_up = False

    async def loop(self) -> None:
        self._handle(protocol.Start())
        while self._tasks or not self._queue.empty():
            self._handle(await self._queue.get())
        if self._fault is not None:
            raise self._fault

    def give_up(self) -> None:
        """Break the CRS off, which may take long; other instructions under way are completed."""
        if self._given_up:
            return  # an action that is broken off has yet to clean up after itself
        self._given_up = True
        self._queue.put_nowait(protocol.GiveUp(_interrupted()))
        for task, instruction in self._tasks.items():
            if isinstance(instruction, protocol.Dump | protocol.Restore):
                task.cancel()

    def _handle(self, event: protocol.Event) -> None:
        try:
            for instruction in self._machine.handle(event):
                task = asyncio.create_task(self._outcome(instruction))
                self._tasks[task] = instruction
                task.add_done_callback(self._settled)
            waiting = {getattr(each, "rank", -1) for each in self._machine.pending} - {-1}
            self._progress(self._machine.phase, RankSet.of(waiting))
        except Exception as error:  # a fault of ours: no reason to leave the job half-way
            self._fault = self._fault or error

    def _settled(self, task: asyncio.Task[protocol.Event]) -> None:
        instruction = self._tasks.pop(task)
        # One that was cancelled before its first step has no outcome of its own.
        cancelled = protocol.Failed(instruction, _interrupted())
        self._queue.put_nowait(cancelled if task.cancelled() else task.result())

    async def _outcome(self, instruction: protocol.Instruction) -> protocol.Event:
        phase = protocol.phase_of(instruction).value
        lost = let_go = False
        try:
            await _carry_out(self._job, self._ranks, instruction)
            return protocol.Succeeded(instruction)
        except CrdebugError as error:
            failure = error
            lost, let_go = isinstance(error, RankLost), isinstance(error, GdbDied)
        except OSError as error:
            failure = in_words(error)
            lost = isinstance(error, ProcessLookupError)
        except asyncio.CancelledError:
            failure = _interrupted()
        except Exception as error:  # a fault of ours must not leave the job half-way either
            failure = CrdebugError(f"internal error: {error!r}")
            failure.__cause__ = error
        failure.phase = failure.phase or phase
        if failure.ranks is None and isinstance(instruction, protocol.RankInstruction):
            failure.ranks = RankSet.of([instruction.rank])
        return protocol.Failed(instruction, failure, lost, let_go)


def _interrupted() -> CrdebugError:
    return Interrupted("interrupted")
