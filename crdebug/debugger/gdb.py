"""One rank under one GDB."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, DeadlineExpired, GdbDied, GdbError, Refused
from crdebug.base.events import Location, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger import mi_values, motions, python_lines, stepping_out
from crdebug.debugger.debug_registers import forget_hits
from crdebug.debugger.folding import MOST, folded
from crdebug.debugger.frames import at_innermost
from crdebug.debugger.gdb_breakpoints import insert
from crdebug.debugger.interrupting import Stopper
from crdebug.debugger.snapshot import Keeper
from crdebug.debugger.snapshot_verbs import SnapshotVerbs
from crdebug.debugger.startup import command_line, environment
from crdebug.debugger.target import (
    NO_PROCESS,
    BreakpointRequest,
    Frame,
    Inserted,
    Motion,
    Notice,
    SelectedBy,
    Selection,
    TargetState,
    ThreadInfo,
    Verb,
)
from crdebug.debugger.tracker import Tracker
from crdebug.gdbscripts.wire import Command, Thread
from crdebug.mi.connection import Connection
from crdebug.mi.records import Result, quote
from crdebug.mi.transport import Transport
from crdebug.node import proc
from crdebug.node.pipe import Pipe
from crdebug.node.sigstop import LocalStopSignals, StopSignals

_HELD = (TargetState.STOPPED, TargetState.RUNNING, TargetState.EXITED)
_LOOK = 1.0  # seconds between two checks whether a running process was killed
_END = 30.0  # seconds that a killed process may take to end: it may have much memory to free


class GdbTarget(SnapshotVerbs):
    """One rank under one GDB; `Target` says what its verbs promise.

    Made by `launch`, or around any Transport. The GDB outlives `detach`: its symbol tables and
    its breakpoints are there for the next `attach`, of the same rank in a new incarnation.
    """

    def __init__(
        self,
        rank: int,
        transport: Transport,
        *,
        subscriber: Callable[[Notice], None] = lambda notice: None,
        signals: StopSignals | None = None,
    ) -> None:
        self.subscriber = subscriber
        self._tracker = Tracker(rank, lambda notice: self.subscriber(notice))
        self._connection = Connection(
            transport, rank=rank, subscriber=self._tracker.take, on_death=self._tracker.died
        )
        self._stopper = Stopper(self._connection, self._tracker, signals or LocalStopSignals())
        self._keeper = Keeper(self._connection, self._tracker)
        self._scripted = False  # this GDB has loaded crdebug's scripts
        self._lent = False
        self._moved = False  # the process was moved since GDB last saw it stop
        self._lock = asyncio.Lock()

    @classmethod
    async def launch(
        cls,
        rank: int,
        deadline: Deadline,
        *,
        gdb: str = "gdb",
        scripts: Sequence[Path] = (),
        auto_load: str = "",
        preload: Path | None = None,
        subscriber: Callable[[Notice], None] = lambda notice: None,
        signals: StopSignals | None = None,
    ) -> GdbTarget:
        """Start a GDB and wait until it answers.

        scripts: files that this GDB sources. auto_load: see `startup.command_line`. preload: a
        library that it loads before all others.
        Raises NotAvailable if it cannot be started, GdbDied if it ends at once.
        """
        argv = command_line(gdb, scripts, auto_load, preload)
        pipe = await Pipe.start(argv, environment=environment(preload))
        target = cls(rank, pipe, subscriber=subscriber, signals=signals)
        target._scripted = bool(scripts)
        try:
            await target.mi("-gdb-show version", deadline)
        except BaseException:
            await target.close(Deadline(5.0))
            raise
        return target

    # ---- state --------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        return self._tracker.rank

    @property
    def node(self) -> None:
        return None

    @property
    def state(self) -> TargetState:
        return self._tracker.state

    @property
    def pid(self) -> int | None:
        return self._tracker.pid

    @property
    def gdb_pid(self) -> int:
        return self._connection.pid

    @property
    def dead(self) -> bool:
        return self._connection.death is not None

    @property
    def selection(self) -> Selection:
        return self._tracker.selection

    @property
    def last_stop(self) -> RankStopped | None:
        return self._tracker.last_stop

    @property
    def _ranks(self) -> RankSet:
        return self._tracker.ranks

    def _require(self, verb: str, *states: TargetState) -> None:
        if (death := self._connection.death) is not None:
            raise GdbDied(death.problem, verb, death.status, ranks=self._ranks)
        if self._lent:
            raise Refused(f"cannot {verb}: a checkpoint is being taken", ranks=self._ranks)
        if self._tracker.state not in states:
            if self._tracker.state is TargetState.CORE:
                raise Refused(f"cannot {verb}: {NO_PROCESS}", ranks=self._ranks)
            raise Refused(f"cannot {verb}: the rank is {self._tracker.word}", ranks=self._ranks)

    async def _stand(self, verb: str, deadline: Deadline) -> None:
        """The beginning of each verb for a stopped process."""
        self._require(verb, TargetState.STOPPED)
        await self._stopper.settle(deadline)
        self._require(verb, TargetState.STOPPED)

    # ---- acquiring and letting go -------------------------------------------------------------

    async def start(
        self, argv: Sequence[str], deadline: Deadline, *, stdio: str = "/dev/null"
    ) -> RankStopped:
        """Start a program under this GDB and stop it at main.

        argv: the program's path and its arguments, which may not contain blanks: without a shell
        GDB splits them there ("Starting your Program").  stdio: its standard input, output and
        error; never GDB's own, which carries the protocol.
        """
        self._require("start", TargetState.IDLE, TargetState.EXITED)
        program, *arguments = argv
        for argument in arguments:
            if not argument or argument.split() != [argument]:
                raise BadInput(f"gdb cannot pass the argument '{argument}'", ranks=self._ranks)
        await self.mi(f"-file-exec-and-symbols {quote(program)}", deadline)
        await self.mi(f"-exec-arguments {' '.join(arguments)}", deadline)
        await self.mi(f"-inferior-tty-set {quote(stdio)}", deadline)
        return await self._acquire("-exec-run --start", deadline)

    async def attach(self, pid: int, deadline: Deadline) -> RankStopped:
        """Attach to a process and stop it. If SIGSTOP had stopped it, it still runs on later."""
        self._require("attach", TargetState.IDLE, TargetState.EXITED)
        if proc.has_lost_program(pid):
            # GDB before 14 looks for it by name only, and finds no file, or a newer one.
            await self.mi(f"-file-exec-and-symbols /proc/{pid}/exe", deadline)
        return await self._acquire(f"-target-attach {pid}", deadline, pid)

    async def open_core(
        self, core: Path, program: Path, stop: RankStopped, deadline: Deadline
    ) -> RankStopped:
        self._require("open a core file", TargetState.IDLE)
        await self.mi(f"-file-exec-and-symbols {quote(str(program))}", deadline)
        try:
            await self._connection.console(f"core-file {core}", deadline)
        except GdbError:
            # GDB before 16 takes all that follows for the name; later ones want quotes and
            # backslashes in front of blanks and quotes.
            if not set(str(core)) & set(" \\'\""):
                raise
            await self._connection.console(f"core-file {quote(str(core))}", deadline)
        self._tracker.opens(replace(stop, location=await self.location(deadline)))
        assert self.last_stop is not None
        return self.last_stop

    async def _acquire(self, command: str, deadline: Deadline, pid: int = 0) -> RankStopped:
        async with self._lock:
            await self._keeper.forget_all(deadline)
            before, ended = self._tracker.state, self._tracker.last_stop
            self._tracker.quiet = True
            self._tracker.begin()
            try:
                await self._connection.command(command, deadline)
                stop = await deadline.wait(self._stopper.first_stop(pid), "its first stop")
                await forget_hits(self._connection, deadline)
                await self._stopper.settle_attach(deadline)
            except GdbError:
                self._tracker.withdraw(before, ended)
                raise
            finally:
                self._tracker.quiet = False
            return stop

    async def detach(self, deadline: Deadline, *, hold: bool = False) -> None:
        """Remove breakpoints from the process and let it go; the GDB stays. See `Target`."""
        async with self._lock:
            await self._stand("detach", deadline)
            await self._put_before_calls(deadline)
            await self._keeper.forget_all(deadline)
            if hold:
                await self._stopper.leave_stopped(deadline, scripted=self._scripted)
            await self._connection.command("-target-detach", deadline)
            self._tracker.let_go()

    @property
    def lent(self) -> bool:
        return self._lent

    async def lend(self, signal: int, deadline: Deadline) -> None:
        async with self._lock:
            self._require("lend", TargetState.STOPPED)
            self._lent = True
            told = await self._connection.command(f"{Command.LEND} {signal}", deadline)
            self._keeper.lent(told.payload)

    async def take_back(self, deadline: Deadline) -> None:
        async with self._lock:
            await self._connection.command(Command.TAKE_BACK, deadline)
            self._lent = False
            await forget_hits(self._connection, deadline)

    async def walk_out(
        self, before: Sequence[Thread], selected: int, stop: RankStopped | None, deadline: Deadline
    ) -> None:
        async with self._lock:
            self._require("walk out", TargetState.STOPPED)
            self._moved = True
            words = (str(selected), *(each.word() for each in before))
            await self._connection.command(f"{Command.WALK_OUT} {' '.join(words)}", deadline)
            at = await self.location(deadline)
            self._tracker.restore(stop or RankStopped(self.rank, StopReason.OTHER, location=at))

    async def kill(self, deadline: Deadline) -> None:
        """End the process. Refused while it runs; interrupt first."""
        async with self._lock:
            self._require("kill", TargetState.STOPPED)
            await self._connection.console("kill", deadline)
            self._tracker.let_go()

    def mark_ended(self, detail: str | None) -> None:
        self._tracker.end(detail)

    async def close(self, deadline: Deadline) -> None:
        """End the GDB. A process that it attached to runs on; one that it started is killed.
        Idempotent."""
        self._tracker.quiet = True
        await self._connection.close(deadline)

    # ---- running ------------------------------------------------------------------------------

    async def resume(self, deadline: Deadline) -> None:
        await self._run("-exec-continue", "continue", deadline)

    async def step(self, count: int, deadline: Deadline) -> None:
        await self.run(Motion(Verb.STEP, count), deadline)

    async def next(self, count: int, deadline: Deadline) -> None:
        await self.run(Motion(Verb.NEXT, count), deadline)

    async def finish(self, deadline: Deadline, level: int = 0) -> None:
        if level == 0 and await self._steps_in_python(Motion(Verb.FINISH), deadline):
            command = "-exec-continue"
        else:
            command = await stepping_out.finish(level, self._connection, deadline)
        await self._run(command, "finish", deadline)

    async def run(self, motion: Motion, deadline: Deadline) -> None:
        by_line = await self._steps_in_python(motion, deadline)
        command = "-exec-continue" if by_line else motions.command(motion)
        await self._run(command, motion.verb.value, deadline)

    async def _steps_in_python(self, motion: Motion, deadline: Deadline) -> bool:
        """Prepare a motion by lines of Python, if the rank stands at one."""
        command = python_lines.step(motion)
        if command is None or not python_lines.is_in_python(self.last_stop):
            return False
        self._require(motion.verb.value, TargetState.STOPPED)
        await self.mi(command, deadline)
        self._tracker.goal_in_python = motions.completed(motion)
        return True

    async def _run(self, command: str, verb: str, deadline: Deadline) -> None:
        async with self._lock:
            self._require(verb, TargetState.STOPPED)
            if await self._was_killed(deadline):
                return  # the kill counts as the stop that ends this run
            try:
                await self._stopper.settle(deadline)
                self._require(verb, TargetState.STOPPED)
                await self._put_before_calls(deadline)
                await at_innermost(self, deadline)
                self._tracker.by_instructions = "-instruction" in command
                await self._start_running(command, deadline)
            except GdbError:  # it may be killed at any of these steps
                if not await self._was_killed(deadline):
                    raise

    async def _was_killed(self, deadline: Deadline) -> bool:
        """Was the process killed while it was stopped? GDB does not check before it lets it run,
        and would leave a zombie."""
        if self._connection.death is not None:
            return self._tracker.state is TargetState.EXITED  # see Tracker.died
        pid, stands = self._tracker.pid, self._tracker.state is TargetState.STOPPED
        if pid is None or not (proc.is_killed(pid) or (stands and not proc.is_alive(pid))):
            return False
        await Deadline(_END).until(lambda: not proc.is_alive(pid), "its end", ranks=self._ranks)
        with contextlib.suppress(GdbError):  # GDB may have noticed meanwhile
            await self._connection.console("kill", deadline)
        self._tracker.end("SIGKILL")  # nothing else ends a process that is being traced
        return True

    async def _put_before_calls(self, deadline: Deadline) -> None:
        """A stop ends some system calls, which the program must not notice; see
        rank_state.settle."""
        if self._scripted:
            await self._connection.command(Command.SETTLE, deadline)

    async def _start_running(self, command: str, deadline: Deadline) -> None:
        before = self._tracker.last_stop
        self._moved = False
        self._tracker.begin(stepping_out.goal(command))
        try:
            await self._connection.command(command, deadline)
        except GdbDied:
            if not await self._was_killed(deadline):
                raise
        except GdbError as error:
            self._tracker.withdraw(TargetState.STOPPED, before)  # it did not start
            out = await stepping_out.way_out(error, self._connection, deadline)
            self._tracker.begin(StopReason.STEP)
            await self._connection.command(out, deadline)

    async def stopped(self) -> RankStopped:
        self._require("wait for a stop", *_HELD)
        while True:
            try:
                return await Deadline(_LOOK).wait(self._tracker.stopped(), "a stop")
            except (DeadlineExpired, GdbError) as error:
                # If it is killed just as GDB resumes it, GDB may say nothing more.
                if not await self._was_killed(Deadline(_END)) and isinstance(error, GdbError):
                    raise

    def stands(self, location: Location) -> None:
        self._tracker.stands(location)

    async def interrupt(
        self, deadline: Deadline, reason: StopReason = StopReason.INTERRUPT
    ) -> RankStopped:
        async with self._lock:
            self._require("interrupt", *_HELD)
            try:
                await self._stopper.stop(reason, deadline)
            except (GdbError, GdbDied, ProcessLookupError):
                if not await self._was_killed(deadline):
                    raise
            return await self._tracker.stopped()

    async def arrive(self, deadline: Deadline) -> None:
        # see gdb/infrun.c, proceed
        async with self._lock:
            if self._moved and self.state is TargetState.STOPPED:
                await self._stopper.stop_here(deadline)
                self._moved = False

    async def settle(self, deadline: Deadline) -> None:
        async with self._lock:
            self._require("settle", TargetState.STOPPED)
            await self._stopper.settle_anew(deadline)

    # ---- looking ------------------------------------------------------------------------------

    async def evaluate(self, expression: str, deadline: Deadline, format: str = "") -> str:
        return mi_values.printed(await self.console(f"print{format} {expression}", deadline))

    async def backtrace(self, limit: int, deadline: Deadline) -> tuple[Frame, ...]:
        bounds = f" 0 {limit + MOST - 1}" if limit else ""
        listing, arguments = await asyncio.gather(
            self.mi(f"-stack-list-frames{bounds}", deadline),
            self.mi(f"-stack-list-arguments --simple-values{bounds}", deadline),
        )
        return folded(mi_values.frames(listing.payload, arguments.payload))[: limit or None]

    async def threads(self, deadline: Deadline) -> tuple[ThreadInfo, ...]:
        return mi_values.threads((await self.mi("-thread-info", deadline)).payload)

    def break_in(self) -> None:
        self._connection.break_in()

    async def select_thread(self, number: int, deadline: Deadline) -> None:
        await self.mi(f"-thread-select {number}", deadline)
        self._tracker.selection.by = SelectedBy.NOBODY

    async def location(self, deadline: Deadline) -> Location:
        told = await self.mi("-stack-info-frame", deadline)
        found = mi_values.location(told.payload.tuple("frame"))
        if python_lines.is_line(found):
            told = await self.mi(Command.PYTHON_PLACE, deadline)
            found = python_lines.line(found, told.payload)
        return found

    async def console(self, command: str, deadline: Deadline) -> str:
        try:
            return await self._connection.console(command, deadline)
        except DeadlineExpired:
            # A function called in the rank, or a Python script, may never return.
            self._connection.break_in()
            raise
        finally:
            # A typed detach or kill of a running rank ends the run without a stop record.
            self._tracker.end_without_record(command)

    async def mi(self, command: str, deadline: Deadline) -> Result:
        return await self._connection.command(command, deadline)

    # ---- breakpoints --------------------------------------------------------------------------

    async def insert_breakpoint(self, request: BreakpointRequest, deadline: Deadline) -> Inserted:
        return await insert(self._connection, self.rank, request, deadline)

    async def delete_breakpoint(self, gdb_number: int, deadline: Deadline) -> None:
        await self.mi(f"-break-delete {gdb_number}", deadline)
