"""Follow the process through GDB's records: its state, and its stops for those who await them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from crdebug.base.errors import CrdebugError, GdbDied, GdbError, Refused
from crdebug.base.events import GdbSays, Location, RankRunning, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger import mi_values, python_lines
from crdebug.debugger.target import (
    BreakpointChanged,
    BreakpointGone,
    DebuggerDied,
    Notice,
    SelectedBy,
    Selection,
    TargetState,
)
from crdebug.mi.records import Async, Garbage, MiTuple, Record, Result, Stream
from crdebug.node import proc

# GDB's gdb/breakpoint.c, insert_breakpoints; after "Cannot insert breakpoint N." in the log.
_ABORTED = "Command aborted."


class Tracker:
    """Follows one process through its GDB's records.

    Only the connection's reader and `begin`, `withdraw` and `let_go` write to it. They do so in
    GDB's order, before any coroutine that waits for an answer runs on, so a stop that comes right
    after the answer is not missed.

    asked: the reason that a stop by SIGSTOP gets; None when crdebug did not ask for one.
    quiet: while it is set, runs and stops are crdebug's own business and are not reported.
    """

    def __init__(self, rank: int, tell: Callable[[Notice], None]) -> None:
        self.rank = rank
        self.state = TargetState.IDLE
        self.pid: int | None = None
        self.last_stop: RankStopped | None = None
        self.asked: StopReason | None = None
        self.quiet = False
        self.selection = Selection()
        self.tell = tell
        self.by_instructions = False  # does the run go by single instructions?
        self.goal_in_python = StopReason.STEP  # of the run, if it goes by lines of Python
        self._stop: asyncio.Future[RankStopped] | None = None
        self._caught: tuple[int, str] | None = None  # the catchpoint that was hit in this run
        self._ending = ""  # how the process is about to end
        self._exception = ""  # of Python's, that nothing has caught
        self._line: Location | None = None  # of Python's, that was reached
        self._goal = StopReason.OTHER  # of this run

    @property
    def ranks(self) -> RankSet:
        return RankSet.of([self.rank])

    @property
    def word(self) -> str:
        """The state, for messages."""
        return {
            TargetState.IDLE: "not attached",
            TargetState.STOPPED: "stopped",
            TargetState.RUNNING: "running",
            TargetState.EXITED: "at its end",
            TargetState.DEAD: "without its gdb",
            TargetState.CORE: "a core file",
        }[self.state]

    async def stopped(self) -> RankStopped:
        """The stop of the present or last run. Raises GdbDied, or Refused if there is none."""
        if self._stop is None:
            raise Refused(f"the rank is {self.word}", ranks=self.ranks)
        # Shielded: several may wait for the same stop, and one of them may give up.
        return await asyncio.shield(self._stop)

    # ---- crdebug's actions --------------------------------------------------------------------

    def begin(self, goal: StopReason = StopReason.OTHER) -> None:
        """A run begins: from here on there is a stop to wait for.

        goal: the reason that a stop without one gets.
        """
        self._stop = asyncio.get_running_loop().create_future()
        self._caught, self._ending, self._exception, self._line = None, "", "", None
        self._goal = goal
        self.last_stop = None
        self.state = TargetState.RUNNING

    def withdraw(self, state: TargetState, last_stop: RankStopped | None) -> None:
        """The run did not begin after all: back to the state and the stop before it."""
        if self.state is TargetState.RUNNING:
            self.state = state
            if last_stop is None:
                self._stop = None
            else:
                self.restore(last_stop)

    def restore(self, stop: RankStopped) -> None:
        """Make this the last stop, as if nothing had happened since."""
        self.selection.by = SelectedBy.NOBODY
        self.last_stop = stop
        self._resolve(stop)

    def stands(self, location: Location) -> None:
        """Report this as the place of the stopped rank."""
        if self.last_stop is not None and self.state is TargetState.STOPPED:
            self.restore(replace(self.last_stop, location=location))
            self.selection.by = SelectedBy.USER

    def opens(self, stop: RankStopped) -> None:
        """GDB looks at a core file. stop: how its process ended."""
        self.state, self.pid = TargetState.CORE, None  # the number may be another process's by now
        self.restore(stop)

    def let_go(self) -> None:
        """The process is gone."""
        self.pid = None
        if self.state is not TargetState.DEAD:
            self.state = TargetState.IDLE
        self._stop = self.last_stop = None

    def end(self, detail: str | None) -> None:
        """The process has ended, as crdebug found without GDB. None: before this GDB could attach;
        that is not reported."""
        if detail is None:
            self.pid, self.state = None, TargetState.EXITED
            self.restore(RankStopped(self.rank, StopReason.EXITED))
        elif self.state is not TargetState.EXITED:
            self._ended(RankStopped(self.rank, StopReason.KILLED, detail))

    def end_without_record(self, detail: str) -> None:
        """A typed detach or kill of a running rank ends its run without a stop record."""
        if self.state is TargetState.RUNNING and self.pid is None and not self.quiet:
            self._ended(RankStopped(self.rank, StopReason.KILLED, detail))

    # ---- GDB's records ------------------------------------------------------------------------

    def take(self, record: Record) -> None:
        """Take one record. Never raises: a record of an unknown shape is reported as text."""
        try:
            match record:
                case Result(kind="running"):
                    if self.state is TargetState.STOPPED:  # by a typed command
                        self.begin()
                case Result(kind="error", payload=payload):
                    if payload.text("msg", "") == _ABORTED:
                        self._run_aborted()
                case Async(kind="exec", name="running"):
                    self._running()
                case Async(kind="exec", name="stopped", payload=payload):
                    self._stopped(payload)
                case Async(kind="notify", name=name, payload=payload):
                    self._notified(name, payload)
                case Stream(kind="console", text=text) if mi_values.ending(text):
                    self._ending = mi_values.ending(text)
                case Stream(kind="console", text=text) if mi_values.caught(text):
                    self._exception = mi_values.caught(text)
                case Stream(kind="console", text=text) if python_lines.told(text):
                    self._line = python_lines.told(text)
                # GDB announces each stop on the console, too, and in the log the source line that
                # it cannot show; both are in the stop record.
                case Stream(kind="log", text=text) if not mi_values.is_noise(text):
                    self.tell(GdbSays(self.rank, text))
                case Garbage(text=text):
                    if text.startswith("*stopped"):  # a missing answer does not undo the stop
                        self._stopped(MiTuple())
                    self.tell(GdbSays(self.rank, text))
        except CrdebugError as error:
            self.tell(GdbSays(self.rank, str(error)))

    def died(self, death: GdbDied) -> None:
        """GDB has ended: raise that wherever a stop is awaited.

        Newer GDBs end by an internal error when a process is killed while they resume it or report
        its stop (seen with 16.3: regcache.c, get_thread_regcache; linux-nat.c, resume). Then we
        report the end of the process instead.
        """
        pid = self.pid
        by_itself = death.status is not None and death.status > 0
        if by_itself and pid is not None and proc.is_killed(pid):
            self.end("SIGKILL")
            return
        waiting = self._stop is not None and not self._stop.done()
        self.state = TargetState.DEAD
        self.pid = None
        if pid is not None and death.status != 0:
            self.tell(DebuggerDied(self.rank, pid))
        if self._stop is not None and waiting:
            self._stop.set_exception(death)
            self._stop.exception()  # nobody may be waiting
        elif not self.quiet:
            if pid is not None:
                death.hint = "the rank runs on"
            self.tell(GdbSays(self.rank, str(death)))

    def _notified(self, name: str, payload: MiTuple) -> None:
        match name:
            case "thread-group-started":
                self.pid = payload.number("pid")
            case "thread-group-exited":
                self.pid = None
                if self.state is TargetState.STOPPED:
                    self.let_go()
            case "breakpoint-created" | "breakpoint-modified":
                record = payload.tuple("bkpt")
                inserted = mi_values.breakpoint_(record)
                if record.text("type", "") == "catchpoint":
                    self._caught = inserted.gdb_number, record.text("what", "")
                self.tell(BreakpointChanged(self.rank, inserted))
            case "breakpoint-deleted":
                self.tell(BreakpointGone(self.rank, payload.number("id")))

    def _run_aborted(self) -> None:
        """GDB had already said ^running, but then could not resume; its log says why.

        After any other error that follows ^running, the process does run, or GDB reports its end;
        or it was killed, and whoever waits for the stop has to check.
        """
        if self.state is TargetState.RUNNING and self._stop is not None and not self._stop.done():
            problem = "gdb could not let it run: a breakpoint cannot be inserted"
            self.state = TargetState.STOPPED
            self._stop.set_exception(GdbError(problem, "continue", ranks=self.ranks))
            self._stop.exception()  # nobody may be waiting

    def _running(self) -> None:
        if self.pid is None or self.state in (TargetState.IDLE, TargetState.EXITED):
            return
        if self.state is TargetState.STOPPED:  # by a typed command
            self.begin()
        if not self.quiet:
            self.tell(RankRunning(self.rank))

    def _stopped(self, payload: MiTuple) -> None:
        try:
            stop = mi_values.stop(self.rank, payload)
        except CrdebugError as error:
            # Whatever the record says, the process has stopped: nobody must wait for ever.
            stop = RankStopped(self.rank, StopReason.OTHER, str(error))
        if self.asked is not None and mi_values.is_stop_signal(stop) and not self.quiet:
            stop = RankStopped(self.rank, self.asked, "", stop.thread, stop.location)
        stop = python_lines.in_python(stop, self._line, self.goal_in_python)
        if stop.reason is StopReason.BREAKPOINT and stop.detail.startswith("-"):
            report = mi_values.report(self._ending)
            reason = StopReason.REPORT if report else StopReason.ENDING
            stop = replace(stop, reason=reason, detail=report or self._ending)
        elif stop.reason is StopReason.BREAKPOINT and self._exception:
            stop = replace(stop, reason=StopReason.CATCHPOINT, note=self._exception)
        unsaid = stop.reason in (StopReason.OTHER, StopReason.CATCHPOINT) and not stop.detail
        if unsaid and self._caught is None:
            # GDB gives no reason where a function without debug information has returned
            # (infcmd.c, finish_command_fsm::should_stop).
            stop = replace(stop, reason=self._goal)
        elif unsaid and self._caught is not None:
            # GDB does not name the catchpoint that caught a signal (nor does it say that one did)
            # or a library; but it has counted the hit just before.
            number, what = self._caught
            note = stop.note or what
            stop = replace(stop, reason=StopReason.CATCHPOINT, detail=str(number), note=note)
        if stop.reason in (StopReason.EXITED, StopReason.KILLED):
            if self.state is not TargetState.EXITED:  # else we know already
                self._ended(stop)
            return
        self.state = TargetState.STOPPED
        self.restore(stop)
        if self.by_instructions and stop.reason is StopReason.STEP:
            self.selection.by = SelectedBy.USER  # a step by instructions is meant for this frame
        if not self.quiet:
            self.tell(stop)

    def _ended(self, stop: RankStopped) -> None:
        self.pid = None
        self.state = TargetState.EXITED
        self.restore(stop)
        self.tell(stop)

    def _resolve(self, stop: RankStopped) -> None:
        if self._stop is None or self._stop.done():
            self._stop = asyncio.get_running_loop().create_future()
        self._stop.set_result(stop)
