"""One rank under one GDB."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from crdebug.deadline import Deadline
from crdebug.errors import CrdebugError, GdbDied, GdbError, Refused
from crdebug.events import GdbSays, Location, RankRunning, RankStopped, StopReason
from crdebug.mi.connection import Connection
from crdebug.mi.records import Async, Garbage, MiTuple, Record, Result, Stream, quote
from crdebug.mi.transport import Transport
from crdebug.node.pipe import Pipe
from crdebug.node.stops import LocalStopSignals, StopSignals
from crdebug.ranks import RankSet
from crdebug.target import reading
from crdebug.target.interface import (
    BreakpointChanged,
    BreakpointGone,
    BreakpointRequest,
    Frame,
    Inserted,
    Notice,
    TargetState,
    ThreadInfo,
)
from crdebug.target.startup import command_line, environment

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
        self._rank = rank
        self._signals = signals or LocalStopSignals()
        self._connection = Connection(
            transport, rank=rank, subscriber=self._record, on_death=self._died
        )
        self._state = TargetState.IDLE
        self._pid: int | None = None
        self._last_stop: RankStopped | None = None
        self._stop: asyncio.Future[RankStopped] | None = None
        self._asked: StopReason | None = None  # what a stop by SIGSTOP counts as
        self._unsettled = False  # a SIGSTOP was sent, and may still be somewhere
        self._quiet = False  # stops and runs are our own business
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
        return self._rank

    @property
    def state(self) -> TargetState:
        return self._state

    @property
    def pid(self) -> int | None:
        return self._pid

    @property
    def gdb_pid(self) -> int:
        """The process id of the GDB."""
        return self._connection.pid

    @property
    def last_stop(self) -> RankStopped | None:
        return self._last_stop

    @property
    def _ranks(self) -> RankSet:
        return RankSet.of([self._rank])

    def _require(self, verb: str, *states: TargetState) -> None:
        if self._connection.death is not None:
            death = self._connection.death
            raise GdbDied(death.problem, verb, death.status, ranks=self._ranks)
        if self._state not in states:
            raise Refused(f"cannot {verb}: the rank is {self._word()}", ranks=self._ranks)

    def _word(self) -> str:
        return {
            TargetState.IDLE: "not attached",
            TargetState.STOPPED: "stopped",
            TargetState.RUNNING: "running",
            TargetState.EXITED: "at its end",
            TargetState.DEAD: "without its gdb",
        }[self._state]

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
            before, self._quiet = self._state, True
            self._begin()
            try:
                await self._connection.command(command, deadline)
                stop = await deadline.wait(self._awaited(), f"the stop after {verb}")
                # GDB sends a SIGSTOP of its own to a process that was stopped already.
                self._unsettled = True
                await self._settle(deadline)
            except BaseException:
                if self._state is TargetState.RUNNING and self._pid is None:
                    self._state = before
                raise
            finally:
                self._quiet = False
            return stop

    async def detach(self, deadline: Deadline) -> None:
        """Take breakpoints out of the process and let it go; the GDB stays. See `Target`."""
        async with self._lock:
            self._require("detach", TargetState.STOPPED)
            await self._settle(deadline)
            self._require("detach", TargetState.STOPPED)
            await self._connection.command("-target-detach", deadline)
            self._idle()

    async def kill(self, deadline: Deadline) -> None:
        """End the process. Refused while it runs; interrupt first."""
        async with self._lock:
            self._require("kill", TargetState.STOPPED)
            await self._connection.console("kill", deadline)
            self._idle()

    async def close(self, deadline: Deadline) -> None:
        """End the GDB: what it attached to runs on, what it started is killed. Idempotent."""
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
            await self._start_running(command, deadline)

    async def _start_running(self, command: str, deadline: Deadline) -> None:
        before = self._last_stop
        self._begin()
        try:
            await self._connection.command(command, deadline)
        except GdbError:
            # It did not start: whoever waits for a stop gets the old one.
            if before is not None and self._state is TargetState.RUNNING:
                self._state = TargetState.STOPPED
                self._last_stop = before
                self._resolve(before)
            raise

    async def stopped(self) -> RankStopped:
        self._require(
            "wait for a stop", TargetState.STOPPED, TargetState.RUNNING, TargetState.EXITED
        )
        return await self._awaited()

    async def _awaited(self) -> RankStopped:
        if self._stop is None:
            raise Refused(f"the rank is {self._word()}", ranks=self._ranks)
        # Shielded: several may wait for the same stop, and one of them may give up.
        return await asyncio.shield(self._stop)

    async def interrupt(
        self, deadline: Deadline, reason: StopReason = StopReason.INTERRUPT
    ) -> RankStopped:
        async with self._lock:
            self._require("interrupt", TargetState.STOPPED, TargetState.RUNNING, TargetState.EXITED)
            if self._state is TargetState.RUNNING:
                self._asked = reason
                await self._heed_stops(True, deadline)
                self._send_stop()
                await deadline.wait(
                    self._awaited(), "the rank to stop", ranks=self._ranks, phase="interrupt"
                )
            await self._settle(deadline)
            return await self._awaited()

    def _send_stop(self) -> None:
        # It may have stopped while GDB took note; then nothing is sent, and nothing left behind.
        if self._state is TargetState.RUNNING and self._pid is not None:
            self._unsettled = self._signals.send_stop(self._pid) is not None or self._unsettled

    async def _heed_stops(self, heed: bool, deadline: Deadline) -> None:
        words = "stop print" if heed else "nostop noprint"
        await self._connection.console(f"handle SIGSTOP {words} nopass", deadline)

    async def _settle(self, deadline: Deadline) -> None:
        """Leave nothing of an interrupt behind; the class's docstring says what there may be."""
        if self._unsettled and self._state is TargetState.STOPPED:
            await self._consume_stops(deadline)
        if self._asked is not None or self._unsettled:
            if self._state is TargetState.STOPPED:
                await self._heed_stops(False, deadline)
            self._asked, self._unsettled = None, False

    async def _consume_stops(self, deadline: Deadline) -> None:
        for _ in range(_SETTLE_ROUNDS):
            pending = self._signals.pending_stops(self._pid) if self._pid is not None else ()
            if not pending or self._state is not TargetState.STOPPED:
                return
            await self._heed_stops(True, deadline)
            await self._run_alone(pending[0], deadline)
        raise Refused("somebody keeps sending SIGSTOP to the rank", ranks=self._ranks)

    async def _run_alone(self, lwp: int, deadline: Deadline) -> None:
        """Let one thread run into the SIGSTOP that is pending for it."""
        listing = (await self.mi("-thread-info", deadline)).payload
        number = next(each.number for each in reading.threads(listing) if each.tid == lwp)
        locking = (await self.mi("-gdb-show scheduler-locking", deadline)).payload.text("value")
        own_stop, quiet = self._last_stop, self._quiet
        await self.mi("-gdb-set scheduler-locking on", deadline)
        self._quiet = True
        try:
            await self._start_running(f"-exec-continue --thread {number}", deadline)
            stop = await deadline.wait(
                self._awaited(), "a pending SIGSTOP to arrive", ranks=self._ranks
            )
        finally:
            self._quiet = quiet
            if self._connection.death is None:
                await self.mi(f"-gdb-set scheduler-locking {locking}", deadline)
        if self._state is not TargetState.STOPPED:
            return
        if stop.reason is StopReason.SIGNAL and stop.detail == "SIGSTOP" and own_stop is not None:
            await self.mi(f"-thread-select {listing.text('current-thread-id')}", deadline)
            self._last_stop = own_stop
            self._stop = asyncio.get_running_loop().create_future()
            self._stop.set_result(own_stop)
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
        finally:
            # A typed detach or kill of a running rank ends the run without a stop record.
            if self._state is TargetState.RUNNING and self._pid is None and not self._quiet:
                self._ended(RankStopped(self._rank, StopReason.KILLED, command))

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

    # ---- what GDB tells -----------------------------------------------------------------------

    def _record(self, record: Record) -> None:
        try:
            match record:
                case Async(kind="exec", name="running"):
                    self._running()
                case Async(kind="exec", name="stopped", payload=payload):
                    self._stopped(payload)
                case Async(kind="notify", name=name, payload=payload):
                    self._notified(name, payload)
                # GDB announces each stop on the console too, and the source line that it cannot
                # show in the log; both are in the stop record.
                case Stream(kind="log", text=text) if not reading.is_noise(text):
                    self.subscriber(GdbSays(self._rank, text))
                case Garbage(text=text):
                    self.subscriber(GdbSays(self._rank, text))
        except CrdebugError as error:  # a record of an unknown shape must not end the reader
            self.subscriber(GdbSays(self._rank, str(error)))

    def _notified(self, name: str, payload: MiTuple) -> None:
        match name:
            case "thread-group-started":
                self._pid = payload.number("pid")
            case "thread-group-exited":
                self._pid = None
                if self._state is TargetState.STOPPED:
                    self._idle()
            case "breakpoint-created" | "breakpoint-modified":
                inserted = reading.breakpoint_(payload.tuple("bkpt"))
                self.subscriber(BreakpointChanged(self._rank, inserted))
            case "breakpoint-deleted":
                self.subscriber(BreakpointGone(self._rank, payload.number("id")))

    def _begin(self) -> None:
        """A run begins: from here on there is a stop to wait for."""
        self._stop = asyncio.get_running_loop().create_future()
        self._last_stop = None
        self._state = TargetState.RUNNING

    def _running(self) -> None:
        if self._pid is None or self._state in (TargetState.IDLE, TargetState.EXITED):
            return
        if self._state is TargetState.STOPPED:  # by a typed command
            self._begin()
        if not self._quiet:
            self.subscriber(RankRunning(self._rank))

    def _stopped(self, payload: MiTuple) -> None:
        stop = reading.stop(self._rank, payload)
        ours = stop.reason is StopReason.SIGNAL and stop.detail == "SIGSTOP" and not self._quiet
        if ours and self._asked is not None:
            stop = RankStopped(self._rank, self._asked, "", stop.thread, stop.location)
        if stop.reason in (StopReason.EXITED, StopReason.KILLED):
            self._ended(stop)
            return
        self._state = TargetState.STOPPED
        self._settle_stop(stop)

    def _ended(self, stop: RankStopped) -> None:
        self._pid = None
        self._state = TargetState.EXITED
        self._settle_stop(stop)

    def _settle_stop(self, stop: RankStopped) -> None:
        self._last_stop = stop
        self._resolve(stop)
        if not self._quiet or self._state is TargetState.EXITED:
            self.subscriber(stop)

    def _resolve(self, stop: RankStopped) -> None:
        if self._stop is None or self._stop.done():
            self._stop = asyncio.get_running_loop().create_future()
        self._stop.set_result(stop)

    def _idle(self) -> None:
        self._pid = None
        self._state = TargetState.IDLE
        self._stop = self._last_stop = None

    def _died(self, death: GdbDied) -> None:
        self._state = TargetState.DEAD
        self._pid = None
        if self._stop is not None and not self._stop.done():
            self._stop.set_exception(death)
            self._stop.exception()  # nobody may be waiting
