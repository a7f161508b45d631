"""Interrupt a rank so that nothing of the interrupt remains for later.

GDB's own -exec-interrupt sends SIGINT, which a process may block, catch or wait for. So we send
SIGSTOP, and have GDB stop for it, but never pass it on to the program.

A rank may stop for a reason of its own at that very moment. Then the SIGSTOP is in one of two
places:

1. Inside GDB, as the event of a thread that GDB did not choose to report. GDB drops it when it
   resumes the rank or lets it go, because except during an interrupt it ignores SIGSTOP.
2. In a queue in the kernel: of the process (ours), or of a thread (one of GDB's own, by which it
   stops threads; it may have taken ours instead, gdb/linux-nat.c, stop_wait_callback). A detach
   would deliver it, and stop the program; GDB itself would drop one of its own by sending SIGCONT,
   which the program may see. So we take it out while the rank is stopped: we run one thread alone
   into it, with one more queued for the process after it. A thread takes signals from its own queue
   first, then from the process's, and both before any instruction (kernel/signal.c, get_signal). If
   GDB takes the first for one of its own and says nothing, it reports the second, so the thread
   cannot run on. Meanwhile the thread blocks all other signals, because the lowest number in its
   queue would come first. And a signal at which it had stopped is delivered only when it goes on,
   with all of its siginfo (kernel/signal.c, ptrace_signal; GDB manual, "Signaling"). Without
   crdebug's scripts, as in some tests, neither of these holds.

It also matters for the interrupt itself that ours are queued for the process and GDB's for threads:
the kernel keeps only one SIGSTOP in a queue, so in the same queue ours could merge with one of
GDB's.
"""

from __future__ import annotations

import asyncio
import contextlib

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, DeadlineExpired, GdbError, Refused
from crdebug.base.events import RankStopped, StopReason
from crdebug.debugger import mi_values
from crdebug.debugger.target import TargetState
from crdebug.debugger.tracker import Tracker
from crdebug.gdbscripts.wire import Command
from crdebug.mi.connection import Connection
from crdebug.mi.records import quote
from crdebug.node import proc
from crdebug.node.sigstop import PendingStops, StopSignals

# More rounds would mean that some other process keeps sending SIGSTOP.
_ROUNDS = 16
# A SIGCONT from anywhere removes every queued SIGSTOP: send another after so many seconds.
_LOST_AFTER = 1.0
_LOOK = 0.5  # seconds; longer than GDB takes to report the end of a process


class Stopper:
    """Stops one rank; see the module. Calls must not overlap: its owner holds a lock."""

    def __init__(self, connection: Connection, tracker: Tracker, signals: StopSignals) -> None:
        self._connection = connection
        self._tracker = tracker
        self._signals = signals
        self._unsettled = False  # a SIGSTOP was sent, and may still be somewhere
        self._heeding = False  # GDB stops for SIGSTOP

    async def stop(self, reason: StopReason, deadline: Deadline) -> None:
        """Stop the rank if it runs, and `settle`. A stop by SIGSTOP counts as `reason`.

        Raises ProcessLookupError or GdbError if it was killed.
        """
        if self._tracker.state is TargetState.RUNNING:
            self._tracker.asked = reason
            await self._heed_stops(True, deadline)
            self._send()
            await self._stopped(deadline)
        await self.settle(deadline)

    async def first_stop(self, pid: int) -> RankStopped:
        """The stop after an attach to a process, or after a start (0).

        GDB may answer an attach, but never report that the process was killed meanwhile. Then this
        raises GdbError.
        """
        stop = asyncio.ensure_future(self._tracker.stopped())
        try:
            while not stop.done():
                gone = pid and not proc.is_alive(pid)
                await asyncio.wait([stop], timeout=_LOOK)
                if gone and not stop.done():
                    said = f"process {pid} has ended"
                    raise GdbError(said, "-target-attach", ranks=self._tracker.ranks)
            return stop.result()
        finally:
            stop.cancel()

    async def settle_attach(self, deadline: Deadline) -> None:
        """After an attach: end the process's group-stop (job control), if it was in one.

        Such a process runs under GDB all the same, but the kernel remembers the stop, shows it
        nowhere, and stops the process again when GDB lets it go (ptrace(2), "Group-stop"). We
        cannot see that before the attach either: the stop may be pending.
        """
        # SIGCONT must not remove a SIGSTOP that GDB still waits for: it would take the next for it.
        await self.settle_anew(deadline)
        if self._tracker.pid is not None:
            self._signals.lift_stop(self._tracker.pid)
            await self.settle_anew(deadline)

    async def leave_stopped(self, deadline: Deadline, *, scripted: bool) -> None:
        """Queue a SIGSTOP, so that the stopped process stays stopped when GDB lets it go, also if
        GDB ends. scripted: this GDB has loaded crdebug's scripts, which take back SIGSTOPs then."""
        if self._tracker.pid is not None:
            if scripted:
                await self._connection.command(Command.STAY_STOPPED, deadline)
            self._signals.send_stop(self._tracker.pid)

    async def settle_anew(self, deadline: Deadline) -> None:
        """`settle` even though nobody has interrupted the rank: GDB itself sends SIGSTOP, too."""
        self._unsettled = True
        await self.settle(deadline)

    async def stop_here(self, deadline: Deadline) -> None:
        """Make GDB see the stopped rank stop at its present place, by a SIGSTOP that comes before
        any instruction."""
        if self._tracker.pid is not None:
            self._signals.send_stop(self._tracker.pid)
            await self.settle_anew(deadline)

    async def settle(self, deadline: Deadline) -> None:
        """Leave no SIGSTOP behind. Cheap when there was no interrupt."""
        if self._unsettled:
            await self._consume(deadline)
            self._unsettled = False
        if self._tracker.state is TargetState.STOPPED:
            await self._heed_stops(False, deadline)
            self._tracker.asked = None

    def _send(self) -> None:
        # If it stopped while GDB handled the command, we send nothing, and so leave nothing behind.
        pid = self._tracker.pid
        if self._tracker.state is TargetState.RUNNING and pid is not None:
            self._unsettled = self._signals.send_stop(pid) or self._unsettled

    async def _stopped(self, deadline: Deadline) -> RankStopped:
        """The stop by a SIGSTOP that was sent, or by another if that one was lost.

        Raises ProcessLookupError if the process was killed. GDB may not report that: when a single
        thread was running, or when GDB was about to resume it.
        """
        while True:
            attempt = Deadline(min(_LOST_AFTER, deadline.left))
            try:
                return await attempt.wait(self._tracker.stopped(), "the rank to stop")
            except DeadlineExpired:
                if self._tracker.pid is not None and proc.is_killed(self._tracker.pid):
                    raise ProcessLookupError from None
                if deadline.left == 0.0:
                    raise deadline.expired(
                        "the rank to stop", ranks=self._tracker.ranks, phase="interrupt"
                    ) from None
                self._send()

    async def _heed_stops(self, heed: bool, deadline: Deadline) -> None:
        if heed is not self._heeding:
            words = "stop print" if heed else "nostop noprint"
            # If the process ends here, GDB runs the command but then fails to look up the selected
            # frame. Ignore that.
            with contextlib.suppress(GdbError):
                await self._connection.console(f"handle SIGSTOP {words} nopass", deadline)
            self._heeding = heed

    def _pending(self) -> PendingStops:
        pid = self._tracker.pid
        if pid is None or self._tracker.state is not TargetState.STOPPED:
            return PendingStops()
        return self._signals.pending_stops(pid)

    async def _consume(self, deadline: Deadline) -> None:
        standing: dict[str, str] = {}
        for _ in range(_ROUNDS):
            pending, pid = self._pending(), self._tracker.pid
            if not pending or pid is None:
                return
            await self._heed_stops(True, deadline)
            if not pending.process:
                self._signals.send_stop(pid)
            try:
                await self._run_alone(pending.threads, standing, deadline)
            except ProcessLookupError:
                return  # the next look at the rank will show it
            except GdbError:
                if self._pending():
                    raise
                return  # the same
        raise Refused("another process keeps sending it SIGSTOP", ranks=self._tracker.ranks)

    async def _run_alone(
        self, lwps: tuple[int, ...], standing: dict[str, str], deadline: Deadline
    ) -> None:
        """Run one thread, of `lwps` if there are any, into the SIGSTOP that is queued for it.

        standing: threads that have stopped at a signal since the rank ran, and at which.
        """
        mi, tracker = self._connection.command, self._tracker
        listing, setting = await asyncio.gather(
            mi("-thread-info", deadline), mi("-gdb-show scheduler-locking", deadline)
        )
        selected = listing.payload.text("current-thread-id")
        known = {each.tid: each.number for each in mi_values.threads(listing.payload)}
        chosen = next((str(known[lwp]) for lwp in lwps if lwp in known), selected)
        lwp = next(lwp for lwp, number in known.items() if str(number) == chosen)
        own, quiet, pid = tracker.last_stop, tracker.quiet, tracker.pid
        mask = await self._blocked(lwp, deadline)
        if own is not None and _is_own_signal(own):
            standing[str(own.thread)] = own.detail
        tracker.quiet = True

        async def as_before() -> None:
            tracker.quiet = quiet
            tracker.withdraw(TargetState.STOPPED, own)
            try:
                if self._connection.death is None:
                    await self._heedless(f"{Command.AS_BEFORE} {lwp}", deadline)
                    locking = setting.payload.text("value")
                    await mi(f"-gdb-set scheduler-locking {locking}", deadline)
            finally:
                if self._connection.death is not None:
                    await self._block(pid, lwp, mask, deadline)

        held = standing.get(chosen)
        try:
            await mi("-gdb-set scheduler-locking on", deadline)
            await self._heedless(f"{Command.ONLY_STOPS} {lwp}", deadline)
            if held:
                await self._queue(chosen, "0", deadline)
            tracker.begin()
            await mi(f"-exec-continue --thread {chosen}", deadline)
            stop = await self._stopped(deadline)
            if held:
                await self._heedless(f"{Command.AT_SIGNAL_AGAIN} {lwp}", deadline)
                await self._queue(chosen, held, deadline)
        except BaseException as error:
            with contextlib.suppress(CrdebugError):  # the first error is the one to report
                await as_before()
                if isinstance(error, ProcessLookupError):  # the selected thread is gone
                    await mi(f"-thread-select {known.get(tracker.pid or 0, selected)}", deadline)
            raise
        await as_before()
        if tracker.state is TargetState.STOPPED:
            await self._after(stop, own, selected, deadline)

    async def _queue(self, thread: str, signal: str, deadline: Deadline) -> None:
        """Make GDB give the thread this signal when it goes on, 0 for none."""
        # GDB refuses to queue a signal that it does not pass to the program anyway.
        words = f"thread apply {thread} queue-signal {signal}"
        await self._heedless(f"-interpreter-exec console {quote(words)}", deadline)

    async def _blocked(self, lwp: int, deadline: Deadline) -> int | None:
        """The signals that a thread blocks, as bits; None if this GDB cannot say."""
        try:
            told = await self._connection.command(f"{Command.MASK} {lwp}", deadline)
        except GdbError:
            return None
        return told.payload.number("mask")

    async def _block(self, pid: int | None, lwp: int, mask: int | None, deadline: Deadline) -> None:
        """Make a thread that a dead GDB has left behind block only these signals."""
        if pid is not None and mask is not None:
            with contextlib.suppress(OSError, CrdebugError):  # it has ended, or has another tracer
                await self._signals.block(pid, lwp, mask, deadline)

    async def _heedless(self, command: str, deadline: Deadline) -> None:
        """A command to GDB that may fail, for example because the process has ended."""
        if self._tracker.pid is not None:
            with contextlib.suppress(GdbError):
                await self._connection.command(command, deadline)

    async def _after(
        self, stop: RankStopped, own: RankStopped | None, selected: str, deadline: Deadline
    ) -> None:
        if mi_values.is_stop_signal(stop) and own is not None:
            await self._connection.command(f"-thread-select {selected}", deadline)
            self._tracker.restore(own)
        else:
            # GDB had held back another event of that thread: it counts, and comes last.
            self._tracker.tell(stop)


def _is_own_signal(stop: RankStopped) -> bool:
    """Did a thread stop because it gets a signal other than SIGSTOP?"""
    return stop.reason is StopReason.SIGNAL and not mi_values.is_stop_signal(stop)
