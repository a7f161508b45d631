"""Snapshots of a stopped rank, held by its GDB; see gdbscripts/snapshot/commands.py.

They last as long as the GDB holds the process: they end with it, and with a detach, a kill, and a
restart, because afterwards there is another process, or one that has run on without GDB.
"""

from __future__ import annotations

from collections.abc import Sequence

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, Refused
from crdebug.base.events import RankStopped
from crdebug.debugger.target import KeptInfo, TargetState
from crdebug.debugger.tracker import Tracker
from crdebug.gdbscripts.wire import MOST, Command
from crdebug.mi.connection import Connection
from crdebug.mi.records import MiTuple
from crdebug.node import proc


class Keeper:
    """The snapshots of one rank. The owner makes sure that calls do not overlap, and that the rank
    is stopped."""

    def __init__(self, connection: Connection, tracker: Tracker) -> None:
        self._connection = connection
        self._tracker = tracker
        self._stops: dict[str, RankStopped | None] = {}  # by snapshot: the last stop at the time
        # by snapshot: its frozen copy's thread, or 0, and the memory that it took
        self._taken: dict[str, tuple[int, int]] = {}

    async def keep(
        self, name: str, ranges: Sequence[str], deadline: Deadline, most: int | None
    ) -> KeptInfo:
        if not name or name.split() != [name]:
            raise BadInput(f"'{name}' is not a name for a snapshot", ranks=self._tracker.ranks)
        bound = () if most is None else (f"{MOST}{most}",)
        command = " ".join((Command.KEEP, name, *bound, *ranges))
        told = (await self._connection.command(command, deadline)).payload
        self._stops[name] = self._tracker.last_stop
        self._taken[name] = told.number("process"), told.number("changed")
        return KeptInfo(told.number("bytes"), told.number("changed"), told.text("way") == "frozen")

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of those that can be put back."""
        return tuple(self._stops) if self._tracker.state is not TargetState.EXITED else ()

    def lent(self, told: MiTuple) -> None:
        """The process was lent for a checkpoint, and its GDB has ended all frozen copies. told: the
        snapshots that it still has."""
        rows = told.list("snapshots").tuples() if "snapshots" in told else ()
        left = {row.text("name"): row.number("bytes") for row in rows}
        self._stops = {name: stop for name, stop in self._stops.items() if name in left}
        self._taken = {name: (0, left[name]) for name in self._stops}

    def sizes(self) -> dict[str, int]:
        """By snapshot, the bytes that only it holds. Works whatever the process does meanwhile."""
        return {
            name: proc.unshared_memory(frozen) if frozen else copied
            for name, (frozen, copied) in self._taken.items()
        }

    async def obstacles(self, name: str, deadline: Deadline) -> tuple[str, ...]:
        """Why a snapshot cannot be put back now; empty if it can."""
        self._require(name)
        told = await self._connection.command(f"{Command.PUT_BACK} {name} check", deadline)
        return told.payload.list("problems").texts()

    async def put_back(self, name: str, deadline: Deadline) -> None:
        """Make the process what it was. GDB does not notice until `show`."""
        self._require(name)
        told = (await self._connection.command(f"{Command.PUT_BACK} {name}", deadline)).payload
        problems = told.list("problems").texts()
        if problems:
            raise Refused(
                f"cannot go back in memory: {'; '.join(problems)}", ranks=self._tracker.ranks
            )

    async def show(self, name: str, stop: RankStopped | None, deadline: Deadline) -> RankStopped:
        """Make GDB see the process that was put back. This takes the SIGSTOP that holds it."""
        tracker = self._tracker
        await self._arrive(f"{Command.SHOW} {name}", deadline)
        then = stop or self._stops[name]
        if then is not None:
            tracker.restore(then)
            return then
        return await tracker.stopped()

    async def walk(self, command: str, deadline: Deadline) -> MiTuple:
        """A command of gdbscripts/stepper, which may leave the thread in another place."""
        told = (await self._connection.command(command, deadline)).payload
        await self._arrive("", deadline)
        return told

    async def _arrive(self, then: str, deadline: Deadline) -> None:
        """Let GDB learn where the rank is now. then: a command that follows."""
        command, tracker = self._connection.command, self._tracker
        quiet, tracker.quiet = tracker.quiet, True
        try:
            await command(Command.ARRIVE, deadline)
            await deadline.wait(tracker.stopped(), "the rank to stop where it was")
            if tracker.state is not TargetState.STOPPED:
                raise self.ended()
            if then:
                await command(then, deadline)
        finally:
            tracker.quiet = quiet

    def ended(self) -> Refused:
        """The error for a process that has ended meanwhile."""
        return Refused("the rank has ended meanwhile", ranks=self._tracker.ranks)

    async def forget(self, name: str, deadline: Deadline) -> None:
        self._require(name)
        await self._connection.command(f"{Command.FORGET} {name}", deadline)
        del self._stops[name], self._taken[name]

    async def forget_all(self, deadline: Deadline) -> None:
        """Forget all snapshots; without any, this sends nothing to GDB."""
        if self._stops:
            self._stops.clear()
            self._taken.clear()
            await self._connection.command(f"{Command.FORGET} all", deadline)

    def _require(self, name: str) -> None:
        if name not in self._stops:
            raise BadInput(
                f"there is no snapshot '{name}' of this process", ranks=self._tracker.ranks
            )
