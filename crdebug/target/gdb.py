"""One rank under one GDB."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from crdebug.deadline import Deadline
from crdebug.errors import DeadlineExpired, GdbDied, GdbError, Refused
from crdebug.events import Location, RankStopped, StopReason
from crdebug.mi.connection import Connection
from crdebug.mi.records import Result, quote
from crdebug.mi.transport import Transport
from crdebug.node.pipe import Pipe
from crdebug.node.stops import LocalStopSignals, StopSignals
from crdebug.ranks import RankSet
from crdebug.target import reading
from crdebug.target.interface import (
    BreakpointRequest,
    Frame,
    Inserted,
    Notice,
    TargetState,
    ThreadInfo,
)
from crdebug.target.startup import command_line, environment
from crdebug.target.tracker import Tracker

__all__ = ["Frame", "GdbTarget", "TargetState", "ThreadInfo"]

# More rounds would mean that somebody else keeps sending SIGSTOP.
_SETTLE_ROUNDS = 16


class GdbTarget:
    """One rank under one GDB; see interface.Target for what its verbs promise.

    Made by `launch`, or around any Transport. The GDB outlives `detach`: its symbol tables and
    its breakpoints are there for the next `attach`, of the same rank in a new incarnation.

    How it interrupts. GDB's own -exec-interrupt sends SIGINT, which a process may block; so the
    node sends SIGSTOP to one thread, and GDB is told to stop for it, and never to pass it on.
    When the rank stops for a reason of its own at that moment, the SIGSTOP may (1) have been
    merged with one of GDB's own, (2) be held back inside GDB, or (3) be pending in the kernel.
    (2) is dropped at the next resume or detach, since GDB ignores SIGSTOP at all other times;
    (3) is seen in /proc and taken out at once: only the thread that has it is let run, which
    takes it before any instruction of its own.
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
        self._signals = signals or LocalStopSignals()
        self._tracker = Tracker(rank, lambda notice: self.subscriber(notice))
        self._connection = Connection(
            transport, rank=rank, subscriber=self._tracker.take, on_death=self._tracker.died
        )
        self._unsettled = False  # a SIGSTOP was sent, and may still be somewhere
        self._heeding = False  # GDB stops for SIGSTOP
        self._displaced = False  # threads show the inside of calls that they are to make again
        self._lock = asyncio.Lock()

    @classmethod
    async def launch(
        cls,
        rank: int,
        deadline: Deadline,
        *,
        gdb: str = "gdb",
        scripts: Sequence[Path] = (),
        subscriber: Callable[[Notice], None] = lambda notice: None,
        signals: StopSignals | None = None,
    ) -> GdbTarget:
        """Start a GDB and wait until it answers.

        scripts: files that this GDB sources (commands written for it).
        Raises NotAvailable if it cannot be started, GdbDied if it does not stay.
        """
        pipe = await Pipe.start(command_line(gdb, scripts), environment=environment())
        target = cls(rank, pipe, subscriber=subscriber, signals=signals)
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
    def state(self) -> TargetState:
        return self._tracker.state

    @property
    def pid(self) -> int | None:
        return self._tracker.pid

    @property
    def gdb_pid(self) -> int:
        """The process id of the GDB."""
        return self._connection.pid

    @property
    def last_stop(self) -> RankStopped | None:
        return self._tracker.last_stop

    @property
    def _ranks(self) -> RankSet:
        return self._tracker.ranks

    def _require(self, verb: str, *states: TargetState) -> None:
        if self._connection.death is not None:
            death = self._connection.death
            raise GdbDied(death.problem, verb, death.status, ranks=self._ranks)
        if self._tracker.state not in states:
            raise Refused(f"cannot {verb}: the rank is {self._tracker.word}", ranks=self._ranks)

    # ---- acquiring and letting go -------------------------------------------------------------

    async def start(
        self, argv: Sequence[str], deadline: Deadline, *, stdio: str = "/dev/null"
    ) -> RankStopped:
        """Start a program under this GDB and stop it at main.

        argv: the program's path and its arguments.  stdio: what it has for its standard input,
        output and error; never GDB's own, which carries the protocol.
        """
        self._require("start", TargetState.IDLE, TargetState.EXITED)
        program, *arguments = argv
        await self.mi(f"-file-exec-and-symbols {quote(program)}", deadline)
        await self.mi(f"-exec-arguments {shlex.join(arguments)}", deadline)
        await self.mi(f"-inferior-tty-set {quote(stdio)}", deadline)
        return await self._acquire("-exec-run --start", "start", deadline)

    async def attach(self, pid: int, deadline: Deadline) -> RankStopped:
        """Take hold of a process and stop it, at once also if it is stopped by SIGSTOP."""
        self._require("attach", TargetState.IDLE, TargetState.EXITED)
        return await self._acquire(f"-target-attach {pid}", "attach", deadline)

    async def _acquire(self, command: str, verb: str, deadline: Deadline) -> RankStopped:
        async with self._lock:
            before, ended = self._tracker.state, self._tracker.last_stop
            self._tracker.quiet = True
            self._tracker.begin()
            try:
                await self._connection.command(command, deadline)
                stop = await deadline.wait(self._tracker.stopped(), f"the stop after {verb}")
                # GDB sends a SIGSTOP of its own to a process that was stopped already.
                self._unsettled = True
                await self._settle(deadline)
            except GdbError:
                self._tracker.withdraw(before, ended)
                raise
            finally:
                self._tracker.quiet = False
            return stop

    async def detach(self, deadline: Deadline) -> None:
        """Take breakpoints out of the process and let it go; the GDB stays. See `Target`."""
        async with self._lock:
            self._require("detach", TargetState.STOPPED)
            await self._settle(deadline)
            self._require("detach", TargetState.STOPPED)
            await self._put_before_calls(deadline)
            await self._connection.command("-target-detach", deadline)
            self._tracker.let_go()

    async def walk_out(
        self, before: Sequence[str], stop: RankStopped | None, deadline: Deadline
    ) -> None:
        """Lead every thread from the waitpoint to where it was; see gdbscripts/rank_mi.py.

        before: for each thread "TID:PC:SP:RAX:ORIG_RAX" in hexadecimal, but for the TID.
        stop: what counts as the last stop from now on; None for what it was after the attach.
        Raises GdbError that names the threads that are somewhere else.
        """
        async with self._lock:
            self._require("walk out", TargetState.STOPPED)
            stop = stop or self._tracker.last_stop
            self._tracker.quiet = True
            try:
                await self._connection.command(f"-crdebug-walk-out {' '.join(before)}", deadline)
                self._displaced = True
            finally:
                self._tracker.quiet = False
                if self._tracker.state is TargetState.STOPPED and stop is not None:
                    self._tracker.restore(stop)

    async def kill(self, deadline: Deadline) -> None:
        """End the process. Refused while it runs; interrupt first."""
        async with self._lock:
            self._require("kill", TargetState.STOPPED)
            await self._connection.console("kill", deadline)
            self._tracker.let_go()

    async def close(self, deadline: Deadline) -> None:
        """End the GDB: what it attached to runs on, what it started is killed. Idempotent."""
        self._tracker.quiet = True
        await self._connection.close(deadline)

    # ---- running ------------------------------------------------------------------------------

    async def resume(self, deadline: Deadline) -> None:
        await self._run("-exec-continue", "continue", deadline)

    async def step(self, count: int, deadline: Deadline) -> None:
        await self._run(f"-exec-step {count}", "step", deadline)

    async def next(self, count: int, deadline: Deadline) -> None:
        await self._run(f"-exec-next {count}", "next", deadline)

    async def finish(self, deadline: Deadline) -> None:
        await self._run("-exec-finish", "finish", deadline)

    async def _run(self, command: str, verb: str, deadline: Deadline) -> None:
        async with self._lock:
            self._require(verb, TargetState.STOPPED)
            await self._settle(deadline)
            self._require(verb, TargetState.STOPPED)
            await self._put_before_calls(deadline)
            await self._start_running(command, deadline)

    async def _put_before_calls(self, deadline: Deadline) -> None:
        """Before threads run that `walk_out` shows inside a system call: see -crdebug-settle."""
        if self._displaced:
            self._displaced = False
            await self._connection.command("-crdebug-settle", deadline)

    async def _start_running(self, command: str, deadline: Deadline) -> None:
        before = self._tracker.last_stop
        self._tracker.begin()
        try:
            await self._connection.command(command, deadline)
        except GdbError:
            # It did not start: whoever waits for a stop gets the old one.
            self._tracker.withdraw(TargetState.STOPPED, before)
            raise

    async def stopped(self) -> RankStopped:
        self._require(
            "wait for a stop", TargetState.STOPPED, TargetState.RUNNING, TargetState.EXITED
        )
        return await self._tracker.stopped()

    async def interrupt(
        self, deadline: Deadline, reason: StopReason = StopReason.INTERRUPT
    ) -> RankStopped:
        async with self._lock:
            self._require("interrupt", TargetState.STOPPED, TargetState.RUNNING, TargetState.EXITED)
            if self._tracker.state is TargetState.RUNNING:
                self._tracker.asked = reason
                await self._heed_stops(True, deadline)
                self._send_stop()
                await deadline.wait(
                    self._tracker.stopped(),
                    "the rank to stop",
                    ranks=self._ranks,
                    phase="interrupt",
                )
            await self._settle(deadline)
            return await self._tracker.stopped()

    def _send_stop(self) -> None:
        # It may have stopped while GDB took note; then nothing is sent, and nothing left behind.
        pid = self._tracker.pid
        if (
            self._tracker.state is TargetState.RUNNING
            and pid is not None
            and self._signals.send_stop(pid) is not None
        ):
            self._unsettled = True

    async def _heed_stops(self, heed: bool, deadline: Deadline) -> None:
        if heed is not self._heeding:
            words = "stop print" if heed else "nostop noprint"
            await self._connection.console(f"handle SIGSTOP {words} nopass", deadline)
            self._heeding = heed

    async def _settle(self, deadline: Deadline) -> None:
        """Leave nothing of an interrupt behind; the class's docstring says what there may be."""
        if self._unsettled:
            await self._consume_stops(deadline)
            self._unsettled = False
        if self._tracker.state is TargetState.STOPPED:
            await self._heed_stops(False, deadline)
            self._tracker.asked = None

    async def _consume_stops(self, deadline: Deadline) -> None:
        for _ in range(_SETTLE_ROUNDS):
            pid = self._tracker.pid
            if pid is None or self._tracker.state is not TargetState.STOPPED:
                return
            pending = self._signals.pending_stops(pid)
            if not pending:
                return
            await self._heed_stops(True, deadline)
            await self._run_alone(pending[0], deadline)
        raise Refused("somebody keeps sending SIGSTOP to the rank", ranks=self._ranks)

    async def _run_alone(self, lwp: int, deadline: Deadline) -> None:
        """Let one thread run into the SIGSTOP that is pending for it."""
        listing = (await self.mi("-thread-info", deadline)).payload
        number = next((each.number for each in reading.threads(listing) if each.tid == lwp), 0)
        locking = (await self.mi("-gdb-show scheduler-locking", deadline)).payload.text("value")
        own, quiet = self._tracker.last_stop, self._tracker.quiet
        await self.mi("-gdb-set scheduler-locking on", deadline)
        self._tracker.quiet = True
        try:
            await self._start_running(f"-exec-continue --thread {number}", deadline)
            stop = await deadline.wait(
                self._tracker.stopped(), "a pending SIGSTOP to arrive", ranks=self._ranks
            )
        finally:
            self._tracker.quiet = quiet
            if self._connection.death is None:
                await self.mi(f"-gdb-set scheduler-locking {locking}", deadline)
        if self._tracker.state is not TargetState.STOPPED:
            return
        if reading.is_stop_signal(stop) and own is not None:
            await self.mi(f"-thread-select {listing.text('current-thread-id')}", deadline)
            self._tracker.restore(own)
        else:
            # GDB had kept another event of that thread back: it counts, and comes last.
            self.subscriber(stop)

    # ---- looking ------------------------------------------------------------------------------

    async def evaluate(self, expression: str, deadline: Deadline, format: str = "") -> str:
        text = await self.console(f"print{format} {expression}", deadline)
        return reading.printed(text)

    async def backtrace(self, limit: int, deadline: Deadline) -> tuple[Frame, ...]:
        bounds = f" 0 {limit - 1}" if limit else ""
        listing, arguments = await asyncio.gather(
            self.mi(f"-stack-list-frames{bounds}", deadline),
            self.mi(f"-stack-list-arguments --simple-values{bounds}", deadline),
        )
        return reading.frames(listing.payload, arguments.payload)

    async def threads(self, deadline: Deadline) -> tuple[ThreadInfo, ...]:
        return reading.threads((await self.mi("-thread-info", deadline)).payload)

    async def select_thread(self, number: int, deadline: Deadline) -> None:
        await self.mi(f"-thread-select {number}", deadline)

    async def location(self, deadline: Deadline) -> Location:
        return reading.location(
            (await self.mi("-stack-info-frame", deadline)).payload.tuple("frame")
        )

    async def console(self, command: str, deadline: Deadline) -> str:
        try:
            return await self._connection.console(command, deadline)
        except DeadlineExpired:
            # A function that was called in the rank, or a Python script, may never return.
            self._connection.break_in()
            raise
        finally:
            # A typed detach or kill of a running rank ends the run without a stop record.
            self._tracker.end_without_record(command)

    async def mi(self, command: str, deadline: Deadline) -> Result:
        return await self._connection.command(command, deadline)

    # ---- breakpoints --------------------------------------------------------------------------

    async def insert_breakpoint(self, request: BreakpointRequest, deadline: Deadline) -> Inserted:
        options = ["-f"]
        if request.temporary:
            options.append("-t")
        if not request.enabled:
            options.append("-d")
        if request.condition:
            options += ["-c", quote(request.condition)]
        if request.ignore:
            options += ["-i", str(request.ignore)]
        command = f"-break-insert {' '.join(options)} -- {quote(request.location)}"
        result = await self.mi(command, deadline)
        return reading.breakpoint_(result.payload.tuple("bkpt"))

    async def delete_breakpoint(self, gdb_number: int, deadline: Deadline) -> None:
        await self.mi(f"-break-delete {gdb_number}", deadline)
