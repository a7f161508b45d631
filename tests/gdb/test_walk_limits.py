"""Long loops, watchpoints, and impossible ways: crdebug says so, and no thread is moved."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from past import Open, run, run_to_end, step_number
from processes import number, soon
from walked import ORIGIN, compiled, walked

from crdebug.base.errors import CrdebugError, GdbError
from crdebug.base.events import StopReason
from crdebug.debugger import stepper
from crdebug.debugger.target import TargetState
from crdebug.native.build import build
from crdebug.node import proc, process_tree


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("walk"), "cc", "-O0")


@pytest.mark.parametrize("long", [0.15, 0.0])
async def test_a_long_loop_is_no_obstacle(program: Path, long: float) -> None:
    """long: seconds after which a way counts as long; 0: each does, as on a slow machine."""
    async with walked(program) as process:
        await process.target.console(f"python crdebug_gdb.stepper.search.LONG = {long}", soon())
        await process.with_trips(10000)
        await process.run_to("jumps")
        # From after three loops, the last of them in one line, into them.
        await process.back("next")
        assert (await process.where())[0] == "work"
        await process.back("step")
        assert await process.where() == ("loops", 44)
        await process.back("next")
        assert await process.where() == ("loops", 43)
        await process.back("next")
        assert await process.where() == ("loops", 42)
        assert await number(process.target, "n") == 10000
        await process.back("next")
        assert (await process.where())[0] == "loops"
        assert await number(process.target, "i") >= 9999


async def test_a_real_time_signal_comes_on_a_walk_too(program: Path) -> None:
    async with walked(program) as process:
        number_of_it = signal.SIGRTMIN + 4
        await process.target.console(f"handle SIG{number_of_it} nostop noprint pass", soon())
        await process.target.console(f"set var raised = {number_of_it}", soon())
        await process.target.forget(ORIGIN, soon())
        await process.target.keep(ORIGIN, (), soon())
        await process.run_to("called_back")
        assert await number(process.target, "handled") == number_of_it
        await process.back("next")
        assert (await process.where())[0] == "work"
        assert await number(process.target, "handled") == number_of_it


@pytest.mark.parametrize("creates", [1, 2])
async def test_no_thread_or_process_is_created_on_a_walk(program: Path, creates: int) -> None:
    """It could not be taken back, and would stay stopped."""
    async with walked(program) as process:
        target = process.target
        await target.console(f"set var creates = {creates}", soon())
        await target.forget(ORIGIN, soon())
        await target.keep(ORIGIN, (), soon())
        assert target.pid is not None
        before = (process_tree.descendants(target.pid), proc.tids(target.pid))
        await process.run_to("called_back")
        with pytest.raises(GdbError, match="creates a thread or a process on the way"):
            await process.back("next")
        assert (process_tree.descendants(target.pid), proc.tids(target.pid)) == before
        stop = await run_to_end(target)
        assert (stop.reason, stop.detail) == (StopReason.EXITED, "0")


async def test_a_watchpoint_of_the_user_is_no_obstacle(program: Path) -> None:
    async with walked(program) as process:
        await process.target.console("watch sink", soon())
        await process.target.console("watch handled", soon())
        await process.resume()
        sink, line = await process.value("sink"), await process.where()
        assert sink != "0"
        await process.back("step")
        assert await process.value("sink") == "0"
        await process.resume()  # and it works again
        assert (await process.value("sink"), await process.where()) == (sink, line)


async def test_there_is_no_time_limit_while_it_works(program: Path) -> None:
    async with walked(program) as process:
        await process.with_trips(20000)
        await process.run_to("leaf", "x == 15001")
        where = await process.where()
        await process.back("next", "--seconds 0.05")
        assert await process.where() != where


async def test_a_rank_that_is_killed_meanwhile_has_ended_at_once(program: Path) -> None:
    async with walked(program) as process:
        target = process.target
        await process.with_trips(2000000)
        await process.run_to("leaf", "x == 15001")
        assert target.pid is not None
        pid = target.pid
        back = asyncio.create_task(process.back("next"))
        before = proc.processor_time(pid)
        await soon().until(lambda: proc.processor_time(pid) > before, "the walk")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(CrdebugError, match=r"rank 0: .*ended"):
            await back
        assert target.state is TargetState.EXITED
        assert target.last_stop is not None and target.last_stop.detail == "SIGKILL"
        await target.mi("-break-list", soon())  # it answers


async def test_a_thread_that_sleeps_meanwhile_is_reported_with_a_hint(program: Path) -> None:
    async with walked(program) as process:
        await process.with_trips(2000000)
        await process.run_to("leaf", "x == 15001")
        # As what it waits for would be: nobody does it while the rank is taken back.
        await process.target.console(f"python {_ASLEEP}", soon())
        await process.target.console(f"python {_IDLE}", soon())
        with pytest.raises(GdbError, match=r"not found, after \d+ passages: it sleeps.*goto tick"):
            await process.back("next", "--seconds 0.001")


async def test_where_the_thread_is_held_other_memory_does_not_matter(program: Path) -> None:
    """An MPI may keep the time in it; beyond that place the thread would wait for good."""
    async with walked(program) as process:
        await process.target.console("set var waits = 1", soon())
        await process.with_trips(20)
        await process.run_to("*boundary")
        await process.target.console("set var numbers[0] = 77", soon())
        limit = await number(process.target, "(unsigned long) &boundary")
        await process.back("finish", "--seconds 0.5", f"--limit {limit:x}")
        assert (await process.where())[0] == "main"
        assert await process.value("(int) passed") == "1"


async def test_a_thread_that_rests_between_its_work_goes_on(program: Path) -> None:
    async with walked(program) as process:
        await process.with_trips(20000)
        await process.run_to("leaf", "x == 15001")
        where = await process.where()
        await process.target.console(f"python {_ASLEEP}", soon())
        await process.back("next", "--seconds 0.001")
        assert await process.where() != where


_IDLE = "Engine.work = lambda self: 0.0"
# The stepper's looks find the thread asleep.
_ASLEEP = (
    "from crdebug_gdb.stepper.engine import Engine;"
    " tick = Engine.on_tick; Engine.on_tick = lambda self, asleep: tick(self, 1)"
)


async def test_the_thread_that_was_recalled_is_walked(open_past: Open) -> None:
    """When the origin was kept another one was selected, as where crdebug interrupted the rank."""
    target, _ = await open_past("calls")
    native = await build(os.environ.get("CC", "cc"), soon())
    await stepper.load(target, native.stepper, soon())
    await target.console("thread 2", soon())
    await target.keep(ORIGIN, (), soon())
    await target.console("thread 1", soon())
    await run(target, 2)
    step, state = await step_number(target), await stepper.recall(target, soon())
    await target.put_back(ORIGIN, soon())
    assert await step_number(target) == step - 2
    await target.walk(f"-crdebug-meet {ORIGIN} {state}", soon())
    assert await step_number(target) == step
    assert "thread is 1 " in await target.console("thread", soon())
    assert (await run_to_end(target)).detail == "0"
