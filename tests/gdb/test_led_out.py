"""A process is held in its waitpoint, its GDB ends, and another one leads it back to where it was,
as at a restart: a signal that it had been about to get comes once, and ends the call it was in."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from processes import Launch, Process, compiled, soon

from crdebug.acquire.mpir import ProcDesc
from crdebug.attached.checkpoint import Whereabouts, calls_to_make_again, lead_out, note_threads
from crdebug.attached.gdbs import scripts
from crdebug.base.events import StopReason
from crdebug.base.settings import Settings
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.target import TargetState
from crdebug.job.holds import await_held
from crdebug.job.waitpoint import WaitpointHold
from crdebug.native.build import build
from crdebug.node import ptrace

WAITPOINT, SIGNAL = 62, 40
CALLS = {"ppoll": 271, "pause": 34}
SI_TKILL = -6

Start = Callable[[str], Process]


@pytest_asyncio.fixture
async def shim() -> Path:
    return (await build(Settings().compiler, soon())).shim


@pytest.fixture(scope="module")
def signalled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """programs/signalled.c, compiled."""
    return compiled("signalled", tmp_path_factory, "-O1", "-D_GNU_SOURCE", "-ldl")


@pytest.fixture
def start(signalled: Path, shim: Path) -> Iterator[Start]:
    processes: list[Process] = []

    def begin(call: str) -> Process:
        processes.append(Process(signalled, str(shim), str(WAITPOINT), str(SIGNAL), call))
        return processes[-1]

    yield begin
    for process in processes:
        process.end()


async def in_call(process: Process, call: str) -> None:
    def inside() -> bool:
        return Path(f"/proc/{process.pid}/syscall").read_text().split()[0] == str(CALLS[call])

    await soon().until(inside, f"the process to wait in {call}")


async def hold_at_signal(target: GdbTarget, hold: WaitpointHold, reported: bool) -> Whereabouts:
    """Lead the process of this GDB, which ends, into the waitpoint, as if it had stopped at a
    signal.

    reported: by the GDB; otherwise it has taken the signal, and stopped for another reason.
    """
    where = await note_threads(target, soon())
    info = struct.pack("<4i2I", SIGNAL, 0, SI_TKILL, 0, hold.pid, os.getuid()).ljust(128, b"\0")
    (main,) = (replace(each, signal=info.hex(), told=reported) for each in where.threads)
    hold.close(calls_to_make_again((main,)), {main.tid: SIGNAL})
    hold.lead_in()
    await target.lend(WAITPOINT, soon())
    await target.close(soon())
    await await_held(hold, soon())
    ptrace.queue_signal(hold.pid, info)
    return Whereabouts((main,))


async def signals_to_the_end(target: GdbTarget) -> list[str]:
    """Run to the end; returns the signals at which the process has stopped."""
    found = []
    while target.state is not TargetState.EXITED:
        await target.resume(soon())
        stop = await soon().wait(target.stopped(), "the next stop")
        if stop.reason is StopReason.SIGNAL:
            found.append(stop.detail)
    return found


@pytest.mark.parametrize("reported", [True, False], ids=["reported", "not_reported"])
@pytest.mark.parametrize("call", CALLS)
async def test_a_signal_comes_once_and_ends_the_call(
    call: str, reported: bool, start: Start, launch: Launch, shim: Path
) -> None:
    process = start(call)
    await in_call(process, call)
    hold = WaitpointHold.find(ProcDesc(0, "", "", process.pid), str(shim))
    target = await launch(scripts=scripts())
    await target.attach(process.pid, soon())
    where = await hold_at_signal(target, hold, reported)

    target = await launch(scripts=scripts())
    await target.attach(process.pid, soon())
    await lead_out(target, hold, where, None, soon())
    (now,) = (await note_threads(target, soon())).threads
    (before,) = where.threads
    assert (now.pc, now.rax, now.orig_rax) == (before.pc, before.rax, before.orig_rax)
    # Once more where the signal can only come in the call, which is made again.
    again = not reported or call == "ppoll"
    assert await signals_to_the_end(target) == [f"SIG{SIGNAL}"] * again
    assert process.wait() == 0
    assert process.said() == "-1 EINTR 1"
