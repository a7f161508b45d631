"""Stop a traced process by SIGSTOP, and see whether such a stop is still pending.

SIGSTOP cannot be blocked, caught or waited for by the application (signal(7)).
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from typing import Protocol

from crdebug.base.deadline import Deadline
from crdebug.node import proc, ptrace

_STOP_BIT = 1 << (signal.SIGSTOP - 1)


@dataclass(frozen=True, slots=True)
class PendingStops:
    """Stops that are queued and not yet taken by a thread.

    process: one is queued for the process, and any thread may take it.
    threads: LWP ids of the threads that have one in a queue of their own (GDB sends its own there).
    """

    process: bool = False
    threads: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return self.process or bool(self.threads)


class StopSignals(Protocol):
    """The part of a node that a target needs to stop its rank."""

    def send_stop(self, pid: int) -> bool:
        """Queue a SIGSTOP for the process as a whole. False if the process has gone."""
        ...

    def pending_stops(self, pid: int) -> PendingStops:
        """The stops in the queues now; none if the process has ended, or is being killed."""
        ...

    def lift_stop(self, pid: int) -> None:
        """End job control's stop, if any, of a traced process; leaves a SIGSTOP queued.

        None may be queued before: SIGCONT removes every queued SIGSTOP.
        """
        ...

    async def block(self, pid: int, tid: int, mask: int, deadline: Deadline) -> None:
        """Make a thread of a process that nobody traces block exactly these signals; bit n - 1 for
        signal n. Raises OSError, DeadlineExpired."""
        ...


class LocalStopSignals:
    """StopSignals for processes of this machine."""

    def send_stop(self, pid: int) -> bool:
        """Raises PermissionError for another user's process."""
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            return False
        return True

    def lift_stop(self, pid: int) -> None:
        # SIGCONT ends the stop when it is sent, not when it is delivered (signal(7)). The program
        # may have a handler for it, but need not see it: SIGSTOP removes it from the queues.
        for number in (signal.SIGCONT, signal.SIGSTOP):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def block(self, pid: int, tid: int, mask: int, deadline: Deadline) -> None:
        async with ptrace.held(pid, deadline):
            ptrace.block_signals(tid, mask)

    def pending_stops(self, pid: int) -> PendingStops:
        process, threads = False, []
        if proc.is_killed(pid) or proc.is_zombie(pid):  # its queues stay as they are
            return PendingStops()
        try:
            for tid in proc.tids(pid):
                fields = _signals(pid, tid)
                process = process or _has_stop(fields, "ShdPnd")
                # The first thread may have ended with one in its queue, which then stays there.
                if _has_stop(fields, "SigPnd") and fields["State"][0] not in "ZX":
                    threads.append(tid)
        except ProcessLookupError:
            return PendingStops()
        return PendingStops(process, tuple(threads))


def _signals(pid: int, tid: int) -> dict[str, str]:
    try:
        return proc.status(pid, tid)
    except ProcessLookupError:  # this thread has ended; the process may live on
        return {}


def _has_stop(fields: dict[str, str], queue: str) -> bool:
    return bool(int(fields.get(queue, "0"), 16) & _STOP_BIT)
