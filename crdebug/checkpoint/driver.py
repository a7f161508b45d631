"""Carries the protocol's instructions out, and tells it how each one ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol as Seam

from crdebug.checkpoint import protocol
from crdebug.errors import CrdebugError
from crdebug.ranks import RankSet


class RankLost(CrdebugError):
    """A rank ended in the middle of an operation."""


class Actions(Seam):
    """What the driver asks for: one method for each instruction.

    Each returns when it is done, and raises CrdebugError (RankLost when the rank has ended).
    """

    async def record_threads(self, rank: int) -> None: ...
    async def herd(self, rank: int) -> None: ...
    async def detach(self, rank: int) -> None: ...
    async def await_waitpoint(self, rank: int) -> None: ...
    async def attach(self, rank: int) -> None: ...
    async def walk_out(self, rank: int) -> None: ...
    async def dump(self) -> None: ...
    async def publish(self) -> None: ...
    async def restore(self) -> None: ...
    async def retire(self) -> None: ...
    async def announce(self) -> None: ...


async def _carry_out(actions: Actions, instruction: protocol.Instruction) -> None:
    match instruction:
        case protocol.Record(rank):
            await actions.record_threads(rank)
        case protocol.Herd(rank):
            await actions.herd(rank)
        case protocol.Detach(rank):
            await actions.detach(rank)
        case protocol.AwaitWaitpoint(rank):
            await actions.await_waitpoint(rank)
        case protocol.Attach(rank):
            await actions.attach(rank)
        case protocol.WalkOut(rank):
            await actions.walk_out(rank)
        case protocol.Dump():
            await actions.dump()
        case protocol.Publish():
            await actions.publish()
        case protocol.Restore():
            await actions.restore()
        case protocol.Retire():
            await actions.retire()
        case protocol.Announce():
            await actions.announce()


async def drive(
    machine: protocol.Protocol,
    actions: Actions,
    progress: Callable[[protocol.Phase, RankSet], None] = lambda phase, ranks: None,
) -> None:
    """Run a protocol from Start to ENDED; instructions that are pending together run together.

    Cancellation waits for what is under way: a half-detached job is nobody's. Look at the
    machine for the outcome.
    """
    queue: asyncio.Queue[protocol.Event] = asyncio.Queue()
    tasks: set[asyncio.Task[None]] = set()

    async def run(instruction: protocol.Instruction) -> None:
        event: protocol.Event
        try:
            await _carry_out(actions, instruction)
            event = protocol.Succeeded(instruction)
        except CrdebugError as error:
            error.phase = error.phase or machine.phase.value
            event = protocol.Failed(instruction, error, isinstance(error, RankLost))
        except OSError as error:  # from the operating system, in our own words
            wrapped = CrdebugError(str(error), phase=machine.phase.value)
            event = protocol.Failed(instruction, wrapped, isinstance(error, ProcessLookupError))
        queue.put_nowait(event)

    async def loop() -> None:
        event: protocol.Event = protocol.Start()
        while True:
            for instruction in machine.handle(event):
                task = asyncio.create_task(run(instruction))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            waiting_for = {getattr(p, "rank", -1) for p in machine.pending} - {-1}
            progress(machine.phase, RankSet.of(waiting_for))
            if machine.phase is protocol.Phase.ENDED:
                return
            event = await queue.get()

    await asyncio.shield(asyncio.create_task(loop()))
