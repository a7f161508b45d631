"""A thread that is led out of the dynamic linker may come to its end there: GDB still sees how."""

from __future__ import annotations

import pytest
from processes import Launch, Process, compiled, soon

from crdebug.attached.gdbs import scripts
from crdebug.base.errors import GdbError
from crdebug.base.events import StopReason
from crdebug.debugger.target import BreakpointRequest
from crdebug.gdbscripts.wire import Command


async def test_the_exit_status_is_not_lost(
    launch: Launch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    process = Process(compiled("last", tmp_path_factory))
    try:
        target = await launch(0, scripts=scripts())
        await target.attach(process.pid, soon())
        await target.insert_breakpoint(BreakpointRequest("last"), soon())
        await target.mi(f"{Command.ENDINGS} off", soon())
        await target.console("set var go = 1", soon())
        await target.resume(soon())
        assert (await target.stopped()).reason is StopReason.BREAKPOINT
        with pytest.raises(GdbError, match=f"thread {process.pid} has come to its end"):
            await target.mi(f"{Command.INJECT} 0 0 62 0 /nothing", soon())
        await target.resume(soon())
        stop = await target.stopped()
        assert (stop.reason, stop.detail) == (StopReason.EXITED, "7"), stop
        assert process.wait() == 7
    finally:
        process.end()
