"""Holding processes by ptrace(2)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import DeadlineExpired
from crdebug.node import proc, ptrace

pytestmark = pytest.mark.unit

# While its child waits for somebody to open the FIFO, the one that starts it waits in the kernel,
# and nothing but SIGKILL ends that (vfork(2)): as who waits for a file server that does not answer.
_WAITS = """
import os, sys
open_it = [(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)]
os.waitpid(os.posix_spawn("/bin/true", ["true"], {}, file_actions=open_it), 0)
"""
_HOLDS = """
import asyncio, sys
from crdebug.base.deadline import Deadline
from crdebug.node import ptrace
async def hold():
    async with ptrace.held(int(sys.argv[1]), Deadline(0.2)):
        pass
asyncio.run(hold())
"""


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A process whose thread cannot be stopped until the FIFO is opened."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with subprocess.Popen([sys.executable, "-c", _WAITS, str(fifo)]) as process:
        try:
            yield process, fifo
        finally:
            process.kill()
            os.close(os.open(fifo, os.O_RDWR))


async def in_kernel(pid: int) -> None:
    what = "it to wait in the kernel"
    await Deadline(30).until(lambda: proc.status(pid)["State"].startswith("D"), what)


async def test_who_does_not_stop_is_named_in_time(
    waiting: tuple[subprocess.Popen[bytes], Path],
) -> None:
    process, fifo = waiting
    await in_kernel(process.pid)
    holder = subprocess.run(
        [sys.executable, "-c", _HOLDS, str(process.pid)], capture_output=True, text=True, timeout=60
    )
    said = holder.stderr.splitlines()[-1]
    why = f"process {process.pid} to stop: thread {process.pid} is in state D (disk sleep)"
    assert DeadlineExpired.__name__ in said and why in said
    # and after the holder's end it continues as if nothing had happened
    with open(fifo, "wb"):
        assert process.wait(timeout=60) == 0


async def test_a_process_is_held_and_runs_on() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        async with ptrace.held(process.pid, Deadline(30)):
            assert proc.status(process.pid)["State"].startswith("t")
        process.communicate(timeout=60)
    assert process.returncode == 0
