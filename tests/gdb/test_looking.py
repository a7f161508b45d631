"""One rank under a real GDB: breakpoints, values, and GDB itself."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from processes import Launch, Spawn, held, number, run_to, soon

from crdebug.attached.gdbs import scripts
from crdebug.base.deadline import Deadline
from crdebug.base.errors import DeadlineExpired, GdbDied, GdbError
from crdebug.base.events import GdbSays, StopReason
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.in_c import number_in_c
from crdebug.debugger.rank_commands import in_memory
from crdebug.debugger.target import (
    BreakpointRequest,
    Notice,
    TargetState,
)

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


@pytest.mark.parametrize("location", ["nowhere", "rank.c:9999", "no_file.c:3", "no_file.c:f"])
async def test_an_unknown_location_is_pending(launch: Launch, spawn: Spawn, location: str) -> None:
    """GDB's log says why, on each rank: crdebug does not repeat it."""
    told: list[Notice] = []
    target = await launch(told=told.append)
    await target.attach(spawn().pid, soon())
    inserted = await target.insert_breakpoint(BreakpointRequest(location), soon())
    assert inserted.locations == ()
    assert not [each for each in told if isinstance(each, GdbSays)]
    await target.delete_breakpoint(inserted.gdb_number, soon())
    assert await target.console("info breakpoints", soon()) in (
        "No breakpoints or watchpoints.\n",
        "No breakpoints, watchpoints, tracepoints, or catchpoints.\n",  # from GDB 16 on
    )


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


async def test_the_failure_of_a_script_is_reported(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise RuntimeError('no')\n")
    told: list[Notice] = []
    target = await GdbTarget.launch(5, soon(), scripts=[script], subscriber=told.append)
    await target.close(soon())
    said = [each.text for each in told if isinstance(each, GdbSays)]
    assert any(re.search("RuntimeError('>)?: no", each) for each in said), said


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


async def test_a_question_about_no_symbol_gets_gdbs_own_answer(
    launch: Launch, spawn: Spawn
) -> None:
    target = await held(launch, spawn())
    for script in scripts():
        await target.console(f"source {script}", soon())
    with pytest.raises(GdbError) as caught:
        await in_memory(target, "nonsense", soon())
    assert caught.value.problem == 'No symbol "nonsense" in current context.'


@pytest.mark.parametrize("language", ["c", "fortran", "ada", "pascal", "rust"])
async def test_crdebugs_questions_are_in_c_whatever_the_language(
    launch: Launch, spawn: Spawn, language: str
) -> None:
    """Not all languages have casts, or this '&' and '=='."""
    target = await held(launch, spawn())
    for script in scripts():
        await target.console(f"source {script}", soon())
    sp = await number_in_c(target, "$sp", soon())
    address = await target.console(
        "python print(crdebug_gdb.rank_state.symbol_address('main'))", soon()
    )
    await target.console("set output-radix 16", soon())
    await target.console(f"set language {language}", soon())
    assert await number_in_c(target, "$sp", soon()) == sp
    assert (
        await target.console("python print(crdebug_gdb.rank_state.symbol_address('main'))", soon())
        == address
    )
    assert f'"{language}"' in await target.console("show language", soon())
