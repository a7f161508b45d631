"""A rank without a process: it does what a test says, when the test says it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, GdbDied, Refused
from crdebug.base.events import Location, RankRunning, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger.target import (
    BreakpointChanged,
    BreakpointGone,
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
from crdebug.gdbscripts.wire import Command, Thread
from crdebug.mi.records import MiTuple, Result

HERE = Location(0x1000, "main", "ring.c", 7)


class FakeTarget:
    """A Target.

    calls: the verbs that were called.
    errors: exceptions that verbs raise instead, by name.
    gates: a verb with an event here waits for it first.
    stubborn: does not stop when it is interrupted.
    answers: to MI commands, by their names.
    own_stop: the reason with which it stops by itself just as it is interrupted.
    """

    def __init__(self, rank: int, state: TargetState = TargetState.STOPPED) -> None:
        self.subscriber: Callable[[Notice], None] = lambda notice: None
        self.calls: list[str] = []
        self.errors: dict[str, CrdebugError] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.selection = Selection()
        self.values: Mapping[str, str] = {}
        self.answers = {Command.STEP_ENDS: MiTuple((("ended", "no"),))}
        self.stubborn = False
        self.kept: tuple[str, ...] = ()
        self.own_stop: StopReason | None = None
        self.numbers = 10 * (rank + 1)
        self._rank = rank
        self._state = state
        self._pid: int | None = 100 + rank
        self._last: RankStopped | None = RankStopped(rank, StopReason.OTHER, "", 1, HERE)
        self._stop: asyncio.Future[RankStopped] | None = None

    # ---- the test's side ----------------------------------------------------------------------

    def stops(self, reason: StopReason, detail: str = "", at: Location = HERE) -> None:
        ended = reason in (StopReason.EXITED, StopReason.KILLED)
        self._state = TargetState.EXITED if ended else TargetState.STOPPED
        self._last = RankStopped(self._rank, reason, detail, 1, None if ended else at)
        assert self._stop is not None
        self._stop.set_result(self._last)
        self.subscriber(self._last)

    def dies(self) -> None:
        self._state = TargetState.DEAD
        self._pid = None
        if self._stop is not None and not self._stop.done():
            self._stop.set_exception(self._death("-exec-continue"))
            self._stop.exception()

    def _death(self, command: str) -> GdbDied:
        return GdbDied("gdb ended", command, -9, ranks=RankSet.of([self._rank]))

    # ---- Target -------------------------------------------------------------------------------

    node = None

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def state(self) -> TargetState:
        return self._state

    @property
    def pid(self) -> int | None:
        return self._pid

    @property
    def gdb_pid(self) -> int:
        return 1000 + self._rank

    @property
    def dead(self) -> bool:
        return self._state is TargetState.DEAD

    @property
    def lent(self) -> bool:
        return False

    @property
    def last_stop(self) -> RankStopped | None:
        return self._last

    async def _call(self, verb: str) -> None:
        self.calls.append(verb)
        if verb in self.gates:
            await self.gates[verb].wait()
        if self._state is TargetState.DEAD:
            raise self._death(verb)
        if verb in self.errors:
            raise self.errors[verb]

    async def _run(self, verb: str) -> None:
        await self._call(verb)
        if self._state is not TargetState.STOPPED:
            raise Refused(f"cannot {verb}: the rank is {self._state.value}")
        self._stop = asyncio.get_running_loop().create_future()
        self._state, self._last = TargetState.RUNNING, None
        self.subscriber(RankRunning(self._rank))

    async def attach(self, pid: int, deadline: Deadline) -> RankStopped:
        await self._call("attach")
        self._pid, self._state = pid, TargetState.STOPPED
        self._last = RankStopped(self._rank, StopReason.OTHER, "", 1, HERE)
        return self._last

    async def open_core(
        self, core: Path, program: Path, stop: RankStopped, deadline: Deadline
    ) -> RankStopped:
        await self._call("open core")
        self._pid, self._state = None, TargetState.CORE
        self._last = replace(stop, location=HERE)
        return self._last

    async def detach(self, deadline: Deadline, *, hold: bool = False) -> None:
        await self._call("detach held" if hold else "detach")
        self._pid, self._state, self._last = None, TargetState.IDLE, None

    async def lend(self, signal: int, deadline: Deadline) -> None:
        await self._call("lend")

    async def take_back(self, deadline: Deadline) -> None:
        await self._call("take back")

    async def walk_out(
        self, before: Sequence[Thread], selected: int, stop: RankStopped | None, deadline: Deadline
    ) -> None:
        await self._call("walk out")

    def mark_ended(self, detail: str | None) -> None:
        self._state, self._pid = TargetState.EXITED, None

    async def resume(self, deadline: Deadline) -> None:
        await self._run("resume")

    async def step(self, count: int, deadline: Deadline) -> None:
        await self._run("step")

    async def next(self, count: int, deadline: Deadline) -> None:
        await self._run("next")

    async def finish(self, deadline: Deadline, level: int = 0) -> None:
        await self._run("finish")

    async def run(self, motion: Motion, deadline: Deadline) -> None:
        await self._run(motion.verb.value)

    async def arrive(self, deadline: Deadline) -> None:
        pass

    async def settle(self, deadline: Deadline) -> None:
        pass

    async def stopped(self) -> RankStopped:
        assert self._stop is not None
        return await asyncio.shield(self._stop)

    def stands(self, location: Location) -> None:
        if self._last is not None:
            self._last = replace(self._last, location=location)

    async def interrupt(
        self, deadline: Deadline, reason: StopReason = StopReason.INTERRUPT
    ) -> RankStopped:
        await self._call("interrupt")
        if self._state is TargetState.RUNNING:
            if self.own_stop is not None:
                self.stops(self.own_stop, "7")
            elif not self.stubborn:
                self.stops(reason)
        return await deadline.wait(
            self.stopped(), "the rank to stop", ranks=RankSet.of([self._rank])
        )

    async def evaluate(self, expression: str, deadline: Deadline, format: str = "") -> str:
        await self._call("evaluate")
        return self.values[format + expression]

    async def backtrace(self, limit: int, deadline: Deadline) -> tuple[Frame, ...]:
        await self._call("backtrace")
        return (Frame(0, HERE),)

    async def threads(self, deadline: Deadline) -> tuple[ThreadInfo, ...]:
        await self._call("threads")
        return (ThreadInfo(1, 100, "a", HERE, "stopped"),)

    async def select_thread(self, number: int, deadline: Deadline) -> None:
        await self._call(f"select_thread {number}")

    async def location(self, deadline: Deadline) -> Location:
        await self._call("location")
        return HERE

    async def console(self, command: str, deadline: Deadline) -> str:
        await self._call("console")
        return command

    async def mi(self, command: str, deadline: Deadline) -> Result:
        await self._call(command)
        return Result(1, "done", self.answers.get(command.split()[0], MiTuple()))

    async def insert_breakpoint(self, request: BreakpointRequest, deadline: Deadline) -> Inserted:
        await self._call("insert")
        self.numbers += 1
        return Inserted(self.numbers, (HERE,))

    async def delete_breakpoint(self, gdb_number: int, deadline: Deadline) -> None:
        await self._call(f"delete {gdb_number}")

    async def keep(
        self, name: str, ranges: Sequence[str], deadline: Deadline, most: int | None = None
    ) -> KeptInfo:
        await self._call(f"keep {name}")
        self.kept = (*self.kept, name)
        return KeptInfo(0, 0, frozen=True)

    async def kept_sizes(self, deadline: Deadline) -> dict[str, int]:
        await self._call("kept sizes")
        return {}

    async def put_back_obstacles(self, name: str, deadline: Deadline) -> tuple[str, ...]:
        return ()

    async def hold(self, deadline: Deadline) -> None:
        await self._call("hold")

    async def put_memory_back(self, name: str, deadline: Deadline) -> None:
        await self._call(f"put back {name}")

    async def show_put_back(
        self, name: str, deadline: Deadline, stop: RankStopped | None = None
    ) -> RankStopped:
        await self._call(f"show {name}")
        self._last = stop or RankStopped(self._rank, StopReason.OTHER, "", 1, HERE)
        return self._last

    async def forget(self, name: str, deadline: Deadline) -> None:
        await self._call(f"forget {name}")

    def break_in(self) -> None:
        self.calls.append("break in")

    async def walk(self, command: str, deadline: Deadline) -> MiTuple:
        await self._call(command)
        return MiTuple()

    async def kill(self, deadline: Deadline) -> None:
        await self._call("kill")

    async def close(self, deadline: Deadline) -> None:
        await self._call("close")

    # ---- events of its GDB --------------------------------------------------------------

    def hits(self, gdb_number: int, times: int) -> None:
        self.subscriber(BreakpointChanged(self._rank, Inserted(gdb_number, (HERE,), times)))

    def loses(self, gdb_number: int) -> None:
        self.subscriber(BreakpointGone(self._rank, gdb_number))
