"""GDB is killed in the middle of every verb: an error that names rank and command, never a hang."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from processes import Launch, Spawn, kill_gdb, soon

from crdebug.base.errors import GdbDied
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.target import BreakpointRequest, TargetState
from crdebug.node import proc

VERBS: dict[str, Callable[[GdbTarget], Awaitable[object]]] = {
    "resume": lambda target: target.resume(soon()),
    "step": lambda target: target.step(1, soon()),
    "next": lambda target: target.next(1, soon()),
    "finish": lambda target: target.finish(soon()),
    "detach": lambda target: target.detach(soon()),
    "kill": lambda target: target.kill(soon()),
    "evaluate": lambda target: target.evaluate("n", soon()),
    "call": lambda target: target.evaluate("forever()", soon()),
    "backtrace": lambda target: target.backtrace(0, soon()),
    "threads": lambda target: target.threads(soon()),
    "select_thread": lambda target: target.select_thread(1, soon()),
    "location": lambda target: target.location(soon()),
    "console": lambda target: target.console("info threads", soon()),
    "insert": lambda target: target.insert_breakpoint(BreakpointRequest("hot"), soon()),
    "delete": lambda target: target.delete_breakpoint(1, soon()),
    "settle": lambda target: target.settle(soon()),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_in_every_verb(launch: Launch, spawn: Spawn, verb: str) -> None:
    target = await launch(3)
    await target.attach(spawn().pid, soon())
    await target.insert_breakpoint(BreakpointRequest("twice"), soon())
    kill_gdb(target)
    with pytest.raises(GdbDied) as caught:
        await soon().wait(_to_the_end(VERBS[verb], target), verb)
    assert caught.value.status == -9
    assert str(caught.value).startswith("rank 3: gdb ended (exit status -9) during")
    assert target.state is TargetState.DEAD


async def _to_the_end(verb: Callable[[GdbTarget], Awaitable[object]], target: GdbTarget) -> None:
    await verb(target)
    # It was quicker than the signal; the next one cannot be.
    while True:
        await target.mi("-list-features", soon())


async def test_in_attach(launch: Launch, spawn: Spawn) -> None:
    target = await launch(3)
    task = asyncio.create_task(target.attach(spawn().pid, soon()))
    await asyncio.sleep(0)
    kill_gdb(target)
    with pytest.raises(GdbDied, match="rank 3: gdb ended"):
        await task


async def test_while_it_runs(launch: Launch, spawn: Spawn) -> None:
    target = await launch(3)
    await target.attach(spawn().pid, soon())
    await target.resume(soon())
    waiters = [asyncio.create_task(target.stopped()) for _ in range(3)]
    kill_gdb(target)
    for waiter in waiters:
        with pytest.raises(GdbDied, match="exit status -9"):
            await soon().wait(waiter, "the news")


async def test_in_an_interrupt(launch: Launch, spawn: Spawn) -> None:
    target = await launch(3)
    await target.attach(spawn().pid, soon())
    await target.resume(soon())
    task = asyncio.create_task(target.interrupt(soon()))
    await asyncio.sleep(0)
    kill_gdb(target)
    with pytest.raises(GdbDied, match="exit status -9"):
        await task


async def test_a_gdb_that_cannot_start(tmp_path: object) -> None:
    with pytest.raises(GdbDied, match=r"rank 1: gdb ended.*during '-gdb-show version'"):
        await GdbTarget.launch(1, soon(), gdb="false")


async def test_a_walk_ends_with_the_crdebug_that_wanted_it(spawn: Spawn) -> None:
    process = spawn("spin")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("walks_on.py"), str(process.pid)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    gdb = int(done.stdout)
    await soon().until(lambda: not proc.is_alive(gdb), "GDB to end")
    process.assert_free()
