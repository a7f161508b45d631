"""Ranks on another host: their targets are with the agent there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, GdbDied
from crdebug.base.events import Location, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger.target import (
    BreakpointRequest,
    Frame,
    Inserted,
    KeptInfo,
    Motion,
    Notice,
    Selection,
    TargetState,
    ThreadInfo,
)
from crdebug.gdbscripts.wire import Thread
from crdebug.hosts.merged import Mirror
from crdebug.hosts.messages import Do
from crdebug.hosts.node import RemoteNode
from crdebug.mi.records import MiTuple, Result

T = TypeVar("T")


class RemoteTarget:
    """One rank under a debugger on another host; `Target` says what its verbs promise.

    Its state is what the agent last said, which always comes before the answer or the stop that
    follows from it. When the agent is lost, its debugger counts as dead.
    """

    def __init__(self, node: RemoteNode, mirror: Mirror) -> None:
        self.subscriber: Callable[[Notice], None] = lambda notice: None
        self._node = node
        self.reflect(mirror)
        node.add(self)

    # ---- the agent's side ---------------------------------------------------------------------

    def reflect(self, mirror: Mirror) -> None:
        """The agent says how the rank is now."""
        self._mirror = mirror
        self.state = mirror.state
        if self._node.lost:
            self.agent_lost()

    def agent_lost(self) -> None:
        """Nobody can reach its debugger any more."""
        if self.state is not TargetState.EXITED:
            self.state = TargetState.DEAD

    def has_ended(self) -> None:
        """The rank has ended while nobody had a debugger on it."""
        self._mirror = replace(self._mirror, state=TargetState.EXITED, pid=None)
        self.state = TargetState.EXITED

    # ---- state --------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        return self._mirror.rank

    @property
    def node(self) -> RemoteNode:
        return self._node

    @property
    def pid(self) -> int | None:
        return self._mirror.pid

    @property
    def gdb_pid(self) -> int:
        return self._mirror.gdb_pid

    @property
    def dead(self) -> bool:
        return self._mirror.dead or bool(self._node.lost)

    @property
    def lent(self) -> bool:
        return self._mirror.lent

    @property
    def selection(self) -> Selection:
        raise AssertionError("only questions know the selection of a rank on another host")

    @property
    def last_stop(self) -> RankStopped | None:
        return self._mirror.last_stop

    # ---- messages -----------------------------------------------------------------------------

    async def _do(self, verb: str, *arguments: object) -> object:
        limits = [each.left for each in arguments if isinstance(each, Deadline)]
        seconds = max(limits) if limits else None
        try:
            return await self._node.call(Do(self.rank, verb, arguments), seconds)
        except CrdebugError as error:
            ranks = RankSet.of([self.rank])
            if self._node.lost:
                said = f"the agent on {self._node.host} {self._node.lost}"
                raise GdbDied(said, verb, None, ranks=ranks) from error
            error.ranks = error.ranks or ranks
            raise

    async def _get(self, kind: type[T], verb: str, *arguments: object) -> T:
        answer = await self._do(verb, *arguments)
        forged = isinstance(answer, RankStopped) and answer.rank != self.rank
        if forged or not isinstance(answer, kind):
            raise CrdebugError(
                f"the agent on {self._node.host} answers '{verb}' with a {type(answer).__name__}"
            )
        return answer

    # ---- acquiring and letting go -------------------------------------------------------------

    async def attach(self, pid: int, deadline: Deadline) -> RankStopped:
        return await self._get(RankStopped, "attach", pid, deadline)

    async def open_core(
        self, core: Path, program: Path, stop: RankStopped, deadline: Deadline
    ) -> RankStopped:
        raise AssertionError("core files are read on crdebug's own host")

    async def detach(self, deadline: Deadline, *, hold: bool = False) -> None:
        await self._do("detach_or_hold" if hold else "detach", deadline)

    async def lend(self, signal: int, deadline: Deadline) -> None:
        await self._do("lend", signal, deadline)

    async def take_back(self, deadline: Deadline) -> None:
        await self._do("take_back", deadline)

    async def walk_out(
        self, before: Sequence[Thread], selected: int, stop: RankStopped | None, deadline: Deadline
    ) -> None:
        await self._do("walk_out", tuple(before), selected, stop, deadline)

    async def kill(self, deadline: Deadline) -> None:
        await self._do("kill", deadline)

    def mark_ended(self, detail: str | None) -> None:
        self._node.post(Do(self.rank, "mark_ended", (detail,)))

    async def close(self, deadline: Deadline) -> None:
        if self._node.reachable:
            await self._do("close", deadline)

    # ---- running ------------------------------------------------------------------------------

    async def resume(self, deadline: Deadline) -> None:
        await self._do("resume", deadline)

    async def step(self, count: int, deadline: Deadline) -> None:
        await self._do("step", count, deadline)

    async def next(self, count: int, deadline: Deadline) -> None:
        await self._do("next", count, deadline)

    async def finish(self, deadline: Deadline, level: int = 0) -> None:
        await self._do("finish", deadline, level)

    async def run(self, motion: Motion, deadline: Deadline) -> None:
        await self._do("run", motion, deadline)

    async def stopped(self) -> RankStopped:
        return await self._get(RankStopped, "stopped")

    async def interrupt(
        self, deadline: Deadline, reason: StopReason = StopReason.INTERRUPT
    ) -> RankStopped:
        return await self._get(RankStopped, "interrupt", deadline, reason)

    async def arrive(self, deadline: Deadline) -> None:
        await self._do("arrive", deadline)

    async def settle(self, deadline: Deadline) -> None:
        await self._do("settle", deadline)

    def stands(self, location: Location) -> None:
        self._node.post(Do(self.rank, "stands", (location,)))
        stop = self._mirror.last_stop
        if stop is not None and self._mirror.state is TargetState.STOPPED:  # as it will be told
            self._mirror = replace(self._mirror, last_stop=replace(stop, location=location))

    # ---- looking ------------------------------------------------------------------------------

    async def evaluate(self, expression: str, deadline: Deadline, format: str = "") -> str:
        return await self._get(str, "evaluate", expression, deadline, format)

    async def backtrace(self, limit: int, deadline: Deadline) -> tuple[Frame, ...]:
        return await self._get(tuple, "backtrace", limit, deadline)

    async def threads(self, deadline: Deadline) -> tuple[ThreadInfo, ...]:
        return await self._get(tuple, "threads", deadline)

    async def select_thread(self, number: int, deadline: Deadline) -> None:
        await self._do("select_thread", number, deadline)

    async def location(self, deadline: Deadline) -> Location:
        return await self._get(Location, "location", deadline)

    async def console(self, command: str, deadline: Deadline) -> str:
        return await self._get(str, "console", command, deadline)

    async def mi(self, command: str, deadline: Deadline) -> Result:
        return await self._get(Result, "mi", command, deadline)

    def break_in(self) -> None:
        self._node.post(Do(self.rank, "break_in", ()))

    # ---- breakpoints --------------------------------------------------------------------------

    async def insert_breakpoint(self, request: BreakpointRequest, deadline: Deadline) -> Inserted:
        return await self._get(Inserted, "insert_breakpoint", request, deadline)

    async def delete_breakpoint(self, gdb_number: int, deadline: Deadline) -> None:
        await self._do("delete_breakpoint", gdb_number, deadline)

    # ---- snapshots ----------------------------------------------------------------------------

    async def keep(
        self, name: str, ranges: Sequence[str], deadline: Deadline, most: int | None = None
    ) -> KeptInfo:
        return await self._get(KeptInfo, "keep", name, tuple(ranges), deadline, most)

    @property
    def kept(self) -> tuple[str, ...]:
        return self._mirror.kept

    async def kept_sizes(self, deadline: Deadline) -> dict[str, int]:
        return await self._get(dict, "kept_sizes", deadline)

    async def put_back_obstacles(self, name: str, deadline: Deadline) -> tuple[str, ...]:
        return await self._get(tuple, "put_back_obstacles", name, deadline)

    async def hold(self, deadline: Deadline) -> None:
        await self._do("hold", deadline)

    async def put_memory_back(self, name: str, deadline: Deadline) -> None:
        await self._do("put_memory_back", name, deadline)

    async def show_put_back(
        self, name: str, deadline: Deadline, stop: RankStopped | None = None
    ) -> RankStopped:
        return await self._get(RankStopped, "show_put_back", name, deadline, stop)

    async def forget(self, name: str, deadline: Deadline) -> None:
        await self._do("forget", name, deadline)

    async def walk(self, command: str, deadline: Deadline) -> MiTuple:
        return await self._get(MiTuple, "walk", command, deadline)
