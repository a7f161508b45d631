"""Snapshots of a rank, as verbs of its target; see `Target` and crdebug/debugger/snapshot.py."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from crdebug.base.deadline import Deadline
from crdebug.base.errors import GdbError
from crdebug.base.events import RankStopped
from crdebug.debugger.interrupting import Stopper
from crdebug.debugger.snapshot import Keeper
from crdebug.debugger.target import KeptInfo, TargetState
from crdebug.mi.records import MiTuple


class SnapshotVerbs:
    """The part of a GdbTarget that handles snapshots."""

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

    async def keep(
        self, name: str, ranges: Sequence[str], deadline: Deadline, most: int | None = None
    ) -> KeptInfo:
        async with self._lock:
            await self._stand("keep a snapshot", deadline)
            return await self._keeper.keep(name, ranges, deadline, most)

    @property
    def kept(self) -> tuple[str, ...]:
        return self._keeper.kept

    async def kept_sizes(self, deadline: Deadline) -> dict[str, int]:
        return await deadline.wait(asyncio.to_thread(self._keeper.sizes), "the snapshots' sizes")

    async def put_back_obstacles(self, name: str, deadline: Deadline) -> tuple[str, ...]:
        async with self._lock:
            await self._stand("go back in memory", deadline)
            return await self._keeper.obstacles(name, deadline)

    async def put_back(
        self, name: str, deadline: Deadline, stop: RankStopped | None = None
    ) -> RankStopped:
        """`put_memory_back` and `show_put_back`."""
        await self.put_memory_back(name, deadline)
        return await self.show_put_back(name, deadline, stop)

    async def hold(self, deadline: Deadline) -> None:
        async with self._lock:
            await self._stand("hold", deadline)
            await self._stopper.settle_anew(deadline)  # else GDB might undo it as it ends
            await self._stopper.leave_stopped(deadline, scripted=True)

    async def put_memory_back(self, name: str, deadline: Deadline) -> None:
        async with self._lock:
            await self._stand("go back in memory", deadline)
            self._moved = True
            await self._keeper.put_back(name, deadline)

    async def show_put_back(
        self, name: str, deadline: Deadline, stop: RankStopped | None = None
    ) -> RankStopped:
        async with self._lock:
            self._require("go back in memory", TargetState.STOPPED)
            return await self._keeper.show(name, stop, deadline)

    async def walk(self, command: str, deadline: Deadline) -> MiTuple:
        async with self._lock:
            await self._stand("go back", deadline)
            self._moved = True
            try:
                return await self._keeper.walk(command, deadline)
            except GdbError as error:
                killed = await self._was_killed(deadline)
                raise (self._keeper.ended() if killed else error) from None

    async def forget(self, name: str, deadline: Deadline) -> None:
        async with self._lock:
            await self._keeper.forget(name, deadline)
