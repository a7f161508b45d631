"""GDB ends, over a GDB in memory: every verb is an error then, and none a hang."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from fake_rank import PID, VERBS, Rank, soon, turn

from crdebug.base.errors import GdbDied
from crdebug.base.events import GdbSays
from crdebug.debugger.folding import MOST
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.target import (
    BreakpointRequest,
    DebuggerDied,
    TargetState,
)

pytestmark = pytest.mark.unit


EVERY_VERB: dict[str, tuple[str, Callable[[GdbTarget], Awaitable[object]]]] = {
    "-exec-continue": ("stopped", VERBS["continue"]),
    "-exec-step 1": ("stopped", VERBS["step"]),
    "-exec-next 1": ("stopped", VERBS["next"]),
    "-exec-finish --thread 2 --frame 0": ("stopped", VERBS["finish"]),
    "-target-detach": ("stopped", VERBS["detach"]),
    "kill": ("stopped", VERBS["kill"]),
    "-target-attach 5": ("idle", lambda target: target.attach(5, soon())),
    "print x": ("stopped", lambda target: target.evaluate("x", soon())),
    "info inferiors": ("stopped", lambda target: target.console("info inferiors", soon())),
    "-thread-info": ("stopped", lambda target: target.threads(soon())),
    "-thread-select 1": ("stopped", lambda target: target.select_thread(1, soon())),
    "-stack-info-frame": ("stopped", lambda target: target.location(soon())),
    f"-stack-list-frames 0 {MOST}": ("stopped", lambda target: target.backtrace(1, soon())),
    "-break-delete 1": ("stopped", lambda target: target.delete_breakpoint(1, soon())),
    '-break-insert -f -- "f"': (
        "stopped",
        lambda target: target.insert_breakpoint(BreakpointRequest("f"), soon()),
    ),
    "handle SIGSTOP stop print nopass": ("running", lambda target: target.interrupt(soon())),
}


@pytest.mark.parametrize("command", EVERY_VERB)
async def test_gdb_dies_in_the_middle_of_every_verb(rank: Rank, command: str) -> None:
    state, verb = EVERY_VERB[command]
    if state != "idle":
        await rank.target.attach(PID, soon())
    if state == "running":
        await rank.target.resume(soon())
    rank.gdb.silent.update(command.split()[:1])
    rank.gdb.silent.add("-interpreter-exec")
    task = asyncio.ensure_future(verb(rank.target))
    await turn()
    rank.gdb.transport.end(-9)
    with pytest.raises(GdbDied) as caught:
        await task
    assert caught.value.command == command
    assert str(caught.value).startswith("rank 2: gdb ended (exit status -9) during")
    assert rank.target.state is TargetState.DEAD


async def test_gdb_dies_while_the_rank_runs(attached: Rank) -> None:
    await attached.target.resume(soon())
    waiter = asyncio.create_task(attached.target.stopped())
    await turn()
    attached.gdb.transport.end(-9)
    with pytest.raises(GdbDied):
        await waiter
    with pytest.raises(GdbDied):
        await attached.target.stopped()
    with pytest.raises(GdbDied, match="during 'continue'"):
        await attached.target.resume(soon())


async def test_gdb_dies_while_nobody_waits(attached: Rank) -> None:
    attached.gdb.transport.end(-9)
    await turn()
    assert attached.target.state is TargetState.DEAD
    left, told = sorted(attached.told, key=lambda each: type(each).__name__)
    assert isinstance(left, DebuggerDied), "whoever has the ranks looks after it now"
    assert left.rank == 2
    assert isinstance(told, GdbSays)
    assert told.text.startswith("rank 2: gdb ended (exit status -9) during")


async def test_closing_is_not_reported_as_a_death(attached: Rank) -> None:
    await attached.target.close(soon())
    assert attached.told == []
