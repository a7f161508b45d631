"""Snapshots of a rank, as verbs of its target; see crdebug/debugger/snapshot.py."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from crdebug.base.deadline import Deadline
from crdebug.base.errors import GdbError
from crdebug.base.events import RankStopped
from crdebug.debugger.interrupting import Stopper
from crdebug.debugger.snapshot import Keeper, KeptInfo
from crdebug.debugger.target import TargetState
from crdebug.mi.records import MiTuple


class Kept:
    """The part of a GdbTarget that is about snapshots in the memory of its GDB."""

    _lock: asyncio.Lock
    _keeper: Keeper
    _stopper: Stopper
    _moved: bool

    async def _stand(self, verb: str, deadline: Deadline) -> None:
        raise NotImplementedError

    def _require(self, verb: str, *states: TargetState) -> None:
        raise NotImplementedError

    async def _was_killed(self, deadline: Deadline) -> bool:
        raise NotImplementedError

    async def keep(self, name: str, ranges: Sequence[str], deadline: Deadline) -> KeptInfo:
        """Keep what the stopped process is, under a name, in the memory of this GDB.

        Registers and private writable memory; ranges: of which shared mappings the content is kept
        too, see gdbscripts/snapshot/commands.py. It lasts until `forget`, `detach`, or the
        process's end.
        """
        async with self._lock:
            await self._stand("keep a snapshot", deadline)
            return await self._keeper.keep(name, ranges, deadline)

    async def put_back_obstacles(self, name: str, deadline: Deadline) -> tuple[str, ...]:
        """Why `put_back` would be refused now; empty if it would not."""
        async with self._lock:
            await self._stand("go back in memory", deadline)
            return await self._keeper.obstacles(name, deadline)

    async def put_back(
        self, name: str, deadline: Deadline, stop: RankStopped | None = None
    ) -> RankStopped:
        """Make the process what it was when a snapshot was kept; returns its last stop.

        stop: what counts as that from now on; None for what did at that time. Breakpoints stay as
        they are. What the process wrote meanwhile, to files and pipes, is not taken back.
        Raises Refused, with nothing done, when what the kernel holds of the process is not what it
        was; GdbError when it fails half-way: the process is of no use any more then.
        """
        await self.put_memory_back(name, deadline)
        return await self.show_put_back(name, deadline, stop)

    async def hold(self, deadline: Deadline) -> None:
        """Have the stopped process stay where it is should its GDB end, which lets it go: a SIGSTOP
        waits for it, until `show_put_back` takes that."""
        async with self._lock:
            await self._stand("hold", deadline)
            await self._stopper.settle_anew(deadline)  # else GDB might take it back as it ends
            self._stopper.leave_stopped()

    async def put_memory_back(self, name: str, deadline: Deadline) -> None:
        """The part of `put_back` that changes the process. Errors as there."""
        async with self._lock:
            await self._stand("go back in memory", deadline)
            self._moved = True
            await self._keeper.put_back(name, deadline)

    async def show_put_back(
        self, name: str, deadline: Deadline, stop: RankStopped | None = None
    ) -> RankStopped:
        """The other part: its GDB learns where it stands."""
        async with self._lock:
            self._require("go back in memory", TargetState.STOPPED)
            return await self._keeper.show(name, stop, deadline)

    async def walk(self, command: str, deadline: Deadline) -> MiTuple:
        """A command of gdbscripts/stepper: go back to a place; see there for the answer."""
        async with self._lock:
            await self._stand("go back", deadline)
            self._moved = True
            try:
                return await self._keeper.walk(command, deadline)
            except GdbError as error:
                killed = await self._was_killed(deadline)
                raise (self._keeper.ended() if killed else error) from None

    async def forget(self, name: str, deadline: Deadline) -> None:
        """Give a snapshot's memory back. Raises BadInput if there is none of that name."""
        async with self._lock:
            await self._keeper.forget(name, deadline)
