"""One rank under a real GDB: attach, run, look, let go."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from processes import Launch, Process, Spawn, soon

from crdebug.deadline import Deadline
from crdebug.errors import BadInput, DeadlineExpired, GdbDied, GdbError, Refused
from crdebug.events import GdbSays, RankRunning, RankStopped, StopReason
from crdebug.target.gdb import GdbTarget
from crdebug.target.interface import (
    BreakpointChanged,
    BreakpointGone,
    BreakpointRequest,
    Notice,
    TargetState,
)


async def number(target: GdbTarget, expression: str) -> int:
    return int(await target.evaluate(expression, soon()))


async def run_to(target: GdbTarget, location: str) -> RankStopped:
    """Run to a place, by a temporary breakpoint."""
    await target.insert_breakpoint(BreakpointRequest(location, temporary=True), soon())
    await target.resume(soon())
    return await soon().wait(target.stopped(), f"a stop at {location}")


async def held(launch: Launch, process: Process) -> GdbTarget:
    target = await launch()
    await target.attach(process.pid, soon())
    return target


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


async def test_a_process_that_is_stopped_is_taken_and_runs_when_let_go(
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


async def test_attach_to_nobody(launch: Launch, spawn: Spawn) -> None:
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
    assert target.state is TargetState.EXITED


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
async def test_a_process_that_somebody_kills(launch: Launch, spawn: Spawn, running: bool) -> None:
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


# ---- breakpoints -------------------------------------------------------------------------------


async def test_conditions_and_ignored_hits(launch: Launch, spawn: Spawn) -> None:
    target = await held(launch, spawn())
    now = await number(target, "n")
    request = BreakpointRequest("hot", f"n >= {now + 20}", ignore=2)
    inserted = await target.insert_breakpoint(request, soon())
    assert inserted.locations[0].function == "hot"
    await target.resume(soon())
    await soon().wait(target.stopped(), "a hit")
    assert await number(target, "n") == max(now + 20, now) + 2


async def test_a_bad_condition(launch: Launch, spawn: Spawn) -> None:
    target = await held(launch, spawn())
    with pytest.raises(GdbError, match='No symbol "nonsense" in current context'):
        await target.insert_breakpoint(BreakpointRequest("hot", "nonsense > 3"), soon())


async def test_an_unknown_location_is_pending(launch: Launch, spawn: Spawn) -> None:
    target = await held(launch, spawn())
    inserted = await target.insert_breakpoint(BreakpointRequest("nowhere"), soon())
    assert inserted.locations == ()
    await target.delete_breakpoint(inserted.gdb_number, soon())
    assert await target.console("info breakpoints", soon()) == "No breakpoints or watchpoints.\n"


async def test_set_and_deleted_while_it_runs(launch: Launch, spawn: Spawn) -> None:
    target = await held(launch, spawn())
    await target.resume(soon())
    inserted = await target.insert_breakpoint(BreakpointRequest("hot"), soon())
    stop = await soon().wait(target.stopped(), "a hit")
    assert stop.reason is StopReason.BREAKPOINT
    await target.delete_breakpoint(inserted.gdb_number, soon())
    await target.resume(soon())
    assert (await target.interrupt(soon())).reason is StopReason.INTERRUPT


# ---- looking -----------------------------------------------------------------------------------


async def test_values(launch: Launch, spawn: Spawn) -> None:
    target = await held(launch, spawn())
    expected = {
        "origin": r'{x = 1, y = -2, name = 0x[0-9a-f]+ "ursprung é \\"q\\" \\\\", '
        r"weights = {0.5, 1.5, 2.5}}",
        "table": r"\{1, 2, 3, 4\}",
        "text": r'"plain"',
        "/x table": r"\{0x1, 0x2, 0x3, 0x4\}",
        "origin.weights[1] * 2": "3",
        "table[0] = 9": "9",
        "table[0]": "9",
        "&table": r"\(int \(\*\)\[4\]\) 0x[0-9a-f]+ <table>",
        "twice(21)": "42",
        "(void) 0": "void",
    }
    import re

    for expression, value in expected.items():
        got = await target.evaluate(expression, soon())
        assert re.fullmatch(value.replace("{x", r"\{x").replace("{0.5", r"\{0.5"), got), got
    assert await target.evaluate("255", soon(), "/x") == "0xff"
    with pytest.raises(GdbError) as caught:
        await target.evaluate("nonsense", soon())
    assert caught.value.problem == 'No symbol "nonsense" in current context.'
    assert caught.value.command == "print nonsense"


async def test_console_text_is_as_gdb_prints_it(launch: Launch, spawn: Spawn) -> None:
    target = await held(launch, spawn())
    assert await target.console('echo é "x" \\\\ \\t|\\n', soon()) == 'é "x" \\ \t|\n'
    assert await target.console("ptype struct point", soon()) == (
        "type = struct point {\n    int x;\n    int y;\n    const char *name;\n"
        "    double weights[3];\n}\n"
    )
    many = await target.console("python print('y' * 3000000)", soon())
    assert many == "y" * 3000000 + "\n"
    with pytest.raises(GdbError, match='Undefined command: "nonsense"'):
        await target.console("nonsense", soon())


async def test_threads_and_their_selection(launch: Launch, spawn: Spawn) -> None:
    process = spawn("threads=3", "spin")
    target = await held(launch, process)
    await run_to(target, "hot")
    threads = await target.threads(soon())
    assert len(threads) == 4
    assert threads[0].tid == process.pid
    assert all(thread.state == "stopped" for thread in threads)
    await target.select_thread(threads[2].number, soon())
    assert (await target.location(soon())).function == "spin"
    with pytest.raises(GdbError, match="Thread ID 99 not known"):
        await target.select_thread(99, soon())


async def test_a_function_that_hits_a_breakpoint(launch: Launch, spawn: Spawn) -> None:
    target = await held(launch, spawn())
    await run_to(target, "hot")
    await target.insert_breakpoint(BreakpointRequest("twice"), soon())
    with pytest.raises(GdbError, match="stopped while in a function called from GDB"):
        await target.evaluate("twice(2)", soon())
    assert target.state is TargetState.STOPPED
    assert (await target.location(soon())).function == "twice"
    await target.finish(soon())
    await soon().wait(target.stopped(), "the return")


async def test_a_function_that_never_returns_is_broken_off(launch: Launch, spawn: Spawn) -> None:
    target = await held(launch, spawn())
    await run_to(target, "hot")
    with pytest.raises(DeadlineExpired, match="gdb's answer to 'print forever"):
        await target.evaluate("forever()", Deadline(0.5))
    # GDB is there again, and the rank where it was.
    assert (await target.location(soon())).function == "hot"
    assert target.state is TargetState.STOPPED
    await target.resume(soon())
    assert (await target.interrupt(soon())).reason is StopReason.INTERRUPT


# ---- GDB ---------------------------------------------------------------------------------------


async def test_extension_scripts(tmp_path: Path) -> None:
    script = tmp_path / "extension.py"
    script.write_text(
        "import gdb\n"
        "class Hello(gdb.MICommand):\n"
        "    def invoke(self, argv):\n"
        "        return {'said': argv, 'n': 1}\n"
        "Hello('-test-hello')\n"
    )
    target = await GdbTarget.launch(5, soon(), scripts=[script])
    try:
        result = await target.mi('-test-hello a "b c"', soon())
        assert result.payload.list("said").texts() == ("a", "b c")
        assert result.payload.number("n") == 1
    finally:
        await target.close(soon())


async def test_a_script_that_fails_is_told(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise RuntimeError('no')\n")
    told: list[Notice] = []
    target = await GdbTarget.launch(5, soon(), scripts=[script], subscriber=told.append)
    await target.close(soon())
    assert any(isinstance(each, GdbSays) and "RuntimeError: no" in each.text for each in told)


async def test_quit_is_a_death(launch: Launch, spawn: Spawn) -> None:
    process = spawn()
    target = await held(launch, process)
    with pytest.raises(GdbDied, match="exit status 0"):
        await target.console("quit", soon())
    assert target.state is TargetState.DEAD
    process.assert_free()


async def test_commands_are_pipelined(launch: Launch, spawn: Spawn) -> None:
    target = await held(launch, spawn())
    values = await asyncio.gather(*(number(target, f"{k} * 2") for k in range(50)))
    assert values == [2 * k for k in range(50)]


async def test_ours_and_garbage_on_gdbs_own_output(launch: Launch) -> None:
    told: list[Notice] = []
    target = await launch(told=told.append)
    text = await target.console("python import os; os.write(1, b'no newline')", soon())
    assert text == ""
    assert GdbSays(0, "no newline") in told
    assert await target.evaluate("1 + 1", soon()) == "2"
