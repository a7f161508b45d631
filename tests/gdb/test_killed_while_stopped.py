"""A rank that is killed while it stands, at each step of letting it run on: that ends the run."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from importlib import resources
from pathlib import Path

import pytest
from processes import Launch, Process, Spawn, soon

from crdebug.base.deadline import Deadline
from crdebug.base.events import StopReason
from crdebug.debugger.target import TargetState
from crdebug.gdbscripts.wire import Command
from crdebug.mi.connection import Connection
from crdebug.mi.records import Result
from crdebug.node import proc

# What GDB knows of the registers; it must look, as it must after a run.
FORGET = '-interpreter-exec console "maintenance flush register-cache"'
STEPS = (Command.SETTLE, "-exec-continue")


Sending = Callable[[Connection, str, Deadline], Awaitable[Result]]


def killed_before(step: str, process: Process, command: Sending) -> Sending:
    async def send(self: Connection, text: str, deadline: Deadline) -> Result:
        if text == step and not proc.is_zombie(process.pid):
            process.signal(signal.SIGKILL)
            await soon().until(lambda: proc.is_zombie(process.pid), "its end")
            await command(self, FORGET, deadline)
        return await command(self, text, deadline)

    return send


@pytest.mark.parametrize("step", STEPS)
async def test_it_ends_with_its_signal(
    launch: Launch, spawn: Spawn, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    home = resources.files("crdebug.gdbscripts")
    target = await launch(3, scripts=[Path(str(home / "load.py"))])
    await target.console("python import crdebug_gdb.checkpoint", soon())
    process = spawn()
    await target.attach(process.pid, soon())
    command = Connection.command
    monkeypatch.setattr(Connection, "command", killed_before(step, process, command))
    await target.resume(soon())
    stop = await soon().wait(target.stopped(), "the end")
    assert (stop.reason, stop.detail) == (StopReason.KILLED, "SIGKILL")
    assert target.state is TargetState.EXITED
