"""SIGSTOPs in the queues of a process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

import pytest

from crdebug.base.deadline import Deadline
from crdebug.node import proc
from crdebug.node.sigstop import LocalStopSignals, PendingStops

pytestmark = pytest.mark.unit
# Its first thread ends, and the other one reads until it is let go.
_LEADER_ENDS = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""


async def test_one_for_a_thread_that_has_ended_is_not_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", _LEADER_ENDS], stdin=subprocess.PIPE) as process:
        pid = process.pid

        def alone() -> bool:
            return {thread.tid: thread.state for thread in proc.threads(pid)}[pid] == "Z"

        await Deadline(60).until(alone, "the first thread to end")
        _send(pid)  # some kernels keep it in that thread's queue, others (6.18) do not queue it
        assert LocalStopSignals().pending_stops(pid) == PendingStops()
        process.communicate()


def _send(pid: int) -> None:
    """SIGSTOP, to the first thread of this process alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.tgkill(pid, pid, signal.SIGSTOP) == 0, os.strerror(ctypes.get_errno())
