"""One rank under a real GDB: attach, run, let go."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from processes import Launch, Process, Spawn, held, number, run_to, soon

from crdebug.base.errors import BadInput, GdbError, Refused
from crdebug.base.events import RankRunning, RankStopped, StopReason
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.target import (
    BreakpointChanged,
    BreakpointGone,
    BreakpointRequest,
    Notice,
    TargetState,
)

# ---- attach and detach -------------------------------------------------------------------------


async def test_attach_and_detach(launch: Launch, spawn: Spawn) -> None:
    process, told = spawn(), list[Notice]()
    target = await launch(told=told.append)
    stop = await target.attach(process.pid, soon())
    assert (stop.reason, target.state, target.pid) == (
        StopReason.OTHER,
        TargetState.STOPPED,
        process.pid,
    )
    assert process.fields()["TracerPid"] == str(target.gdb_pid)
    await target.detach(soon())
    process.assert_free()
    assert (target.state, target.pid, told) == (TargetState.IDLE, None, [])


async def test_no_breakpoint_is_left_in_memory(launch: Launch, spawn: Spawn) -> None:
    process = spawn()
    target = await held(launch, process)
    inserted = await target.insert_breakpoint(BreakpointRequest("hot"), soon())
    (place,) = inserted.locations
    clean = process.code(place.address)
    for _ in range(3):
        await target.resume(soon())
        assert (await soon().wait(target.stopped(), "a hit")).detail == "1"
        await target.detach(soon())
        assert process.code(place.address) == clean
        process.assert_free()
        await target.attach(process.pid, soon())
    assert await number(target, "continued") == 0


async def test_a_program_that_is_rebuilt_while_it_runs(
    launch: Launch, program: Path, tmp_path: Path
) -> None:
    """The running one is debugged, whatever file has its name now."""
    name = tmp_path / "program"
    shutil.copy(program, name)
    process = Process(name)
    try:
        name.unlink()
        shutil.copy("/bin/true", name)
        target = await held(launch, process)
        await target.insert_breakpoint(BreakpointRequest("hot"), soon())
        await target.resume(soon())
        stop = await soon().wait(target.stopped(), "a hit")
        assert (stop.reason, stop.location and stop.location.function) == (
            StopReason.BREAKPOINT,
            "hot",
        )
        await target.detach(soon())
    finally:
        process.end()


async def test_a_breakpoint_survives_in_the_gdb_and_goes_into_another_process(
    launch: Launch, spawn: Spawn
) -> None:
    first, second, told = spawn(), spawn(), list[Notice]()
    target = await launch(told=told.append)
    await target.attach(first.pid, soon())
    await target.insert_breakpoint(BreakpointRequest("twice"), soon())
    await target.insert_breakpoint(BreakpointRequest("hot", "n > 0"), soon())
    await target.detach(soon())
    first.end()
    await target.attach(second.pid, soon())
    await target.resume(soon())
    stop = await soon().wait(target.stopped(), "a hit")
    assert (stop.reason, stop.detail) == (StopReason.BREAKPOINT, "2")
    places = [each.inserted for each in told if isinstance(each, BreakpointChanged)]
    assert places[-1].gdb_number == 2
    assert places[-1].hits == 1


async def test_attaching_to_a_stopped_process_works_and_it_runs_after_the_detach(
    launch: Launch, spawn: Spawn
) -> None:
    process = spawn()
    target = await launch()
    for _ in range(5):
        process.signal(signal.SIGSTOP)
        await target.attach(process.pid, soon())
        assert process.queued() == (0, 0)
        await target.resume(soon())
        await target.interrupt(soon())
        await target.detach(soon())
        process.assert_free()


async def test_attach_to_a_process_that_does_not_exist(launch: Launch, spawn: Spawn) -> None:
    process = spawn()
    process.end()
    target = await launch()
    with pytest.raises(GdbError, match="No such process"):
        await target.attach(process.pid, soon())
    assert target.state is TargetState.IDLE
    await target.attach(spawn().pid, soon())


async def test_two_debuggers(launch: Launch, spawn: Spawn) -> None:
    process = spawn()
    await held(launch, process)
    other = await launch()
    with pytest.raises(GdbError, match=r"already traced by process|Operation not permitted"):
        await other.attach(process.pid, soon())
    assert other.state is TargetState.IDLE


@pytest.mark.parametrize("running", [False, True])
async def test_closing_lets_an_attached_process_go(
    launch: Launch, spawn: Spawn, running: bool
) -> None:
    process = spawn()
    target = await held(launch, process)
    (place,) = (await target.insert_breakpoint(BreakpointRequest("twice"), soon())).locations
    clean = process.code(place.address)
    if running:
        await target.resume(soon())
    await target.close(soon())
    process.assert_free()
    assert process.code(place.address) == clean


async def test_kill(launch: Launch, spawn: Spawn) -> None:
    process = spawn()
    target = await held(launch, process)
    await target.kill(soon())
    assert process.wait() == -signal.SIGKILL
    assert target.state is TargetState.IDLE


def state_of(target: GdbTarget) -> TargetState:
    """The present state; mypy believes that the property still has the value seen before."""
    return target.state


async def test_start(launch: Launch, program: Path) -> None:
    target = await launch()
    for argument in ("a b", "", "a\t"):
        with pytest.raises(BadInput, match="cannot pass the argument"):
            await target.start([str(program), argument], soon())
    stop = await target.start([str(program), "threads=1", 'it\'s"x"*'], soon())
    assert stop.location is not None
    assert stop.location.function == "main"
    assert target.state is TargetState.STOPPED
    assert await target.evaluate("argc", soon()) == "3"
    assert (await target.evaluate("argv[2]", soon())).endswith('"it\'s\\"x\\"*"')
    await target.resume(soon())
    stop = await soon().wait(target.stopped(), "the end")
    assert (stop.reason, stop.detail) == (StopReason.EXITED, "2")
    assert state_of(target) is TargetState.EXITED


# ---- running -----------------------------------------------------------------------------------


async def test_breakpoint_step_next_finish(launch: Launch, spawn: Spawn) -> None:
    told: list[Notice] = []
    target = await launch(told=told.append)
    await target.attach(spawn().pid, soon())
    stop = await run_to(target, "factorial")
    assert stop.reason is StopReason.BREAKPOINT
    assert (await target.location(soon())).function == "factorial"
    assert await number(target, "k") == 3
    frames = await target.backtrace(2, soon())
    assert [frame.location.function for frame in frames] == ["factorial", "work"]
    assert frames[0].arguments == "k=3"
    assert len(await target.backtrace(0, soon())) == 3

    await target.step(2, soon())
    stop = await soon().wait(target.stopped(), "a step")
    assert (stop.reason, await number(target, "k")) == (StopReason.STEP, 2)

    await target.finish(soon())
    stop = await soon().wait(target.stopped(), "the return")
    assert (stop.reason, stop.detail, await number(target, "k")) == (StopReason.FINISH, "2", 3)

    await target.next(1, soon())
    stop = await soon().wait(target.stopped(), "a step")
    assert stop.reason is StopReason.STEP
    assert any(isinstance(each, BreakpointGone) for each in told)
    runs = [each for each in told if isinstance(each, RankRunning)]
    assert len(runs) == 4


async def test_finish_in_the_outermost_frame(launch: Launch, program: Path) -> None:
    target = await launch()
    before = await target.start([str(program)], soon())
    with pytest.raises(GdbError, match="not meaningful in the outermost frame"):
        await target.finish(soon())
    assert (target.state, target.last_stop) == (TargetState.STOPPED, before)
    await target.next(1, soon())
    assert (await soon().wait(target.stopped(), "a step")).reason is StopReason.STEP


async def test_refusals_while_it_runs(launch: Launch, spawn: Spawn) -> None:
    target = await held(launch, spawn())
    await target.resume(soon())
    with pytest.raises(Refused, match="rank 0: cannot step: the rank is running"):
        await target.step(1, soon())
    with pytest.raises(Refused, match="cannot detach"):
        await target.detach(soon())
    with pytest.raises(GdbError, match="thread is running"):
        await target.backtrace(0, soon())
    await target.interrupt(soon())


async def test_the_end_of_a_process(launch: Launch, spawn: Spawn) -> None:
    process, told = spawn(), list[Notice]()
    target = await launch(told=told.append)
    await target.attach(process.pid, soon())
    await target.evaluate("ending = 1 + 42", soon())
    await target.resume(soon())
    stop = await soon().wait(target.stopped(), "the end")
    assert stop == RankStopped(0, StopReason.EXITED, "42")
    assert (target.state, target.pid) == (TargetState.EXITED, None)
    assert process.wait() == 42
    assert told[-1] == stop
    await target.attach(spawn().pid, soon())


async def test_a_crash_is_a_signal_and_then_an_end(launch: Launch, spawn: Spawn) -> None:
    process = spawn()
    target = await held(launch, process)
    await target.evaluate("crash = 1", soon())
    await target.resume(soon())
    stop = await soon().wait(target.stopped(), "the crash")
    assert (stop.reason, stop.detail) == (StopReason.SIGNAL, "SIGSEGV")
    assert stop.location is not None
    assert stop.location.function == "work"
    await target.resume(soon())
    stop = await soon().wait(target.stopped(), "the end")
    assert stop == RankStopped(0, StopReason.KILLED, "SIGSEGV")
    assert process.wait() == -signal.SIGSEGV


@pytest.mark.parametrize("running", [False, True])
async def test_a_process_that_is_killed(launch: Launch, spawn: Spawn, running: bool) -> None:
    process = spawn()
    target = await held(launch, process)
    if running:
        await target.resume(soon())
        process.signal(signal.SIGKILL)
    else:
        process.signal(signal.SIGKILL)
        await target.resume(soon())
    stop = await soon().wait(target.stopped(), "the end")
    assert stop == RankStopped(0, StopReason.KILLED, "SIGKILL")
    assert target.state is TargetState.EXITED


async def test_the_programs_own_signals(launch: Launch, spawn: Spawn) -> None:
    process = spawn()
    target = await held(launch, process)
    await target.resume(soon())
    process.signal(signal.SIGUSR1)
    stop = await soon().wait(target.stopped(), "the signal")
    assert (stop.reason, stop.detail) == (StopReason.SIGNAL, "SIGUSR1")


async def test_a_watchpoint(launch: Launch, spawn: Spawn) -> None:
    target = await held(launch, spawn())
    await run_to(target, "hot")
    assert "atchpoint 2: n" in await target.console("watch n", soon())
    await target.resume(soon())
    stop = await soon().wait(target.stopped(), "a change")
    assert (stop.reason, stop.detail) == (StopReason.WATCHPOINT, "2")


async def test_typed_run_control_is_followed(launch: Launch, spawn: Spawn) -> None:
    process, told = spawn(), list[Notice]()
    target = await launch(told=told.append)
    await target.attach(process.pid, soon())
    await target.console("break hot", soon())
    await target.console("continue", soon())
    stop = await soon().wait(target.stopped(), "a hit")
    assert stop.reason is StopReason.BREAKPOINT
    await target.console("detach", soon())
    assert target.state is TargetState.IDLE
    process.assert_free()
