"""A process is taken back in time inside its GDB's memory: the process, and GDB's view of it, are
as they were."""

from __future__ import annotations

import pytest
from past import Open, look, run, run_to_end, step_number
from processes import number, soon

from crdebug.base.errors import BadInput, GdbError
from crdebug.base.events import Location, StopReason
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.target import BreakpointRequest
from crdebug.gdbscripts.wire import Command, Thread


@pytest.mark.parametrize("what", [(), ("heap",), ("calls", "actions"), ("heap", "calls")])
async def test_at_every_stop_the_past_is_as_it_was_and_leads_on_as_it_did(
    open_past: Open, what: tuple[str, ...]
) -> None:
    target, _ = await open_past("steps=60", *what)
    for far in (1, 2, 3, 5, 8, 13):
        then = await step_number(target)
        before = await look(target)
        await target.keep("here", (), soon())
        for _ in range(2):
            await run(target, far)
            assert await step_number(target) == then + far
            await target.put_back("here", soon())
            before.expect_same(await look(target))
            assert await step_number(target) == then
        stop = await run(target)
        assert stop.reason is StopReason.BREAKPOINT
        assert await step_number(target) == then + 1  # not again where it is
    assert "here" in target.kept
    assert (await run_to_end(target)).detail == "0"
    assert "here" not in target.kept


async def test_steps_after_going_back_are_those_that_were_made_before(open_past: Open) -> None:
    target, _ = await open_past("heap")
    await target.keep("here", (), soon())

    async def walk() -> list[tuple[Location | None, str]]:
        places = []
        for verb in ("step", "next", "stepi", "finish") * 6:
            if verb == "stepi":
                await target.mi("-exec-step-instruction", soon())
            elif verb == "finish" and (await target.location(soon())).function == "main":
                continue
            else:
                await (
                    target.finish(soon()) if verb == "finish" else getattr(target, verb)(1, soon())
                )
            stop = await soon().wait(target.stopped(), "a step's end")
            places.append((stop.location, stop.reason.value))
        return places

    first = await walk()
    assert len(set(first)) > 5
    for _ in range(3):
        await target.put_back("here", soon())
        assert await walk() == first


async def test_a_stop_elsewhere_in_the_future_does_not_make_the_breakpoint_hit_again(
    open_past: Open,
) -> None:
    target, _ = await open_past("steps=30")
    for _ in range(4):
        then = await step_number(target)
        await target.keep("here", (), soon())
        await target.finish(soon())
        assert (await soon().wait(target.stopped(), "the end of tick")).reason is StopReason.FINISH
        await target.put_back("here", soon())
        await run(target)
        assert await step_number(target) == then + 1


async def test_ten_snapshots_of_a_process_that_changes_little_cost_little_more_than_one(
    open_past: Open,
) -> None:
    target, _ = await open_past("mib=16")
    first = await target.keep("0", (), soon())
    assert first.bytes > 16 << 20
    for name in "123456789":
        await run(target)
        later = await target.keep(name, (), soon())
        assert later.bytes == pytest.approx(first.bytes, rel=0.01)
        assert later.changed < first.bytes / 40
    assert sum((await target.kept_sizes(soon())).values()) < first.bytes / 2
    for name in "5380":
        await target.put_back(name, soon())
        assert await step_number(target) == int(name) + 1
        await target.forget(name, soon())
        with pytest.raises(BadInput, match=f"no snapshot '{name}'"):
            await target.put_back(name, soon())
    await target.put_back("9", soon())
    assert await step_number(target) == 10
    assert (await run_to_end(target)).detail == "0"


# ---- threads, watchpoints, signals --------------------------------------------------------------


async def test_threads_in_blocking_calls_are_put_back_into_them_and_none_sees_eintr(
    open_past: Open,
) -> None:
    """The breakpoint finds the other threads anywhere in their calls, or between them."""
    target, _ = await open_past("calls", "steps=80")
    inside = set()
    for far in (1, 20, 3, 12, 2, 9):
        await target.keep("here", (), soon())
        then = (await target.mi(Command.THREADS, soon())).payload
        inside |= {Thread.of(word).orig_rax for word in then.list("threads").texts()}
        for _ in range(2):
            await run(target, far)
            await target.put_back("here", soon())
            now = (await target.mi(Command.THREADS, soon())).payload
            assert now == then
        await run(target)
    assert len(inside) > 5
    assert (await run_to_end(target)).detail == "0"


async def test_functions_called_in_threads_that_were_put_back_into_calls(open_past: Open) -> None:
    """GDB then writes the registers that it shows into a thread: that must not end the thread's
    call either."""
    target, _ = await open_past("calls", "steps=60")
    for _ in range(3):
        await target.keep("here", (), soon())
        await run(target, 3)
        await target.put_back("here", soon())
        await target.console("set scheduler-locking on", soon())
        for thread in await target.threads(soon()):
            await target.select_thread(thread.number, soon())
            assert await target.evaluate("(int)getpid()", soon()) == str(target.pid)
        await target.console("set scheduler-locking off", soon())
        await target.select_thread(1, soon())
        await run(target, 4)
    assert (await run_to_end(target)).detail == "0"


@pytest.mark.parametrize("when", ["before the snapshot", "in the past"])
async def test_running_on_with_another_thread_selected_than_the_one_at_the_breakpoint(
    open_past: Open, when: str
) -> None:
    target, _ = await open_past("calls", "steps=60")
    for _ in range(3):
        if when == "before the snapshot":
            await target.select_thread(3, soon())
        then = await step_number(target)
        await target.keep("here", (), soon())
        for _ in range(3):
            await run(target, 2)
            await target.put_back("here", soon())
            if when == "in the past":
                await target.select_thread(3, soon())
            assert (await run(target)).thread == 1
            assert await step_number(target) == then + 1
            await target.put_back("here", soon())
            if when == "before the snapshot":
                await target.select_thread(1, soon())
            await run(target)
            assert await step_number(target) == then + 1
    assert (await run_to_end(target)).detail == "0"


async def test_another_thread_may_be_the_one_that_stopped(open_past: Open) -> None:
    target, _ = await open_past("calls", "steps=600")
    await target.console("delete", soon())
    await target.insert_breakpoint(BreakpointRequest("call_poll"), soon())
    first = await run(target)
    assert first.thread > 1
    before = await look(target)
    await target.keep("here", (), soon())
    made = await number(target, "calls_made")
    for _ in range(3):
        assert (await run(target, 3)).thread == first.thread
        assert await number(target, "calls_made") > made + 2
        await target.put_back("here", soon())
        before.expect_same(await look(target))
    assert (await run_to_end(target)).detail == "0"


@pytest.mark.parametrize("can_use_hardware", [1, 0])
async def test_a_watchpoint_sees_the_same_changes_again(
    open_past: Open, can_use_hardware: int
) -> None:
    target, _ = await open_past("steps=20")
    await target.console("delete", soon())
    await target.console(f"set can-use-hw-watchpoints {can_use_hardware}", soon())
    # set before the snapshot, so that it has been hit then, and known by the value that it saw
    await target.console("watch sum", soon())
    await run(target)
    await target.keep("here", (), soon())
    before = await look(target)
    seen = [await target.evaluate("sum", soon())]

    async def change() -> tuple[str, str]:
        stop = await run(target)
        assert stop.reason is StopReason.WATCHPOINT
        return stop.detail, await target.evaluate("sum", soon())

    changes = [await change() for _ in range(3)]
    for times in (1, 3, 2):
        await target.put_back("here", soon())
        before.expect_same(await look(target))
        assert await target.evaluate("sum", soon()) == seen[0]
        assert [await change() for _ in range(times)] == changes[:times]
    # one that was set in the future watches the past too
    await target.console("delete", soon())
    await target.console("watch value", soon())
    await run(target, 2)
    value = await target.evaluate("value", soon())
    await target.put_back("here", soon())
    await run(target)
    assert await target.evaluate("value", soon()) != value
    await run(target)
    assert (await run_to_end(target)).detail == "0"


async def test_back_from_a_crash_and_another_way_on(open_past: Open) -> None:
    target, _ = await open_past("crash=10", "steps=20")
    await target.keep("here", (), soon())
    await target.console("delete", soon())
    for _ in range(2):
        stop = await run(target)
        assert (stop.reason, stop.detail) == (StopReason.SIGNAL, "SIGSEGV")
        with pytest.raises(GdbError, match="is about to get SIGSEGV"):
            await target.keep("crashed", (), soon())
        await target.put_back("here", soon())
    await target.console("set var crash_step = 0", soon())
    assert (await run(target)).detail == "0"


async def test_a_value_changed_in_the_past_makes_another_future(open_past: Open) -> None:
    target, _ = await open_past("steps=20")
    await target.keep("here", (), soon())
    await run(target, 3)
    await target.put_back("here", soon())
    await target.console("set var steps = 5", soon())
    assert await run_to_steps(target) == [2, 3, 4, 5]


async def run_to_steps(target: GdbTarget) -> list[int]:
    found: list[int] = []
    while True:
        stop = await run(target)
        if stop.reason is not StopReason.BREAKPOINT:
            assert stop.detail == "0"
            return found
        found.append(await step_number(target))


async def test_back_and_forth_between_snapshots_of_different_memory(open_past: Open) -> None:
    """Mappings and the heap's end differ between them: both appear and disappear, in both
    directions."""
    target, _ = await open_past("heap", "steps=130")
    looks = {}
    for name in "abcdef":
        looks[name] = await look(target)
        await target.keep(name, (), soon())
        await run(target, 19)
    layouts = {tuple(region.span for region in each.memory.regions) for each in looks.values()}
    assert len(layouts) > 3
    for name in "faebdcafb":
        await target.put_back(name, soon())
        looks[name].expect_same(await look(target))
        await run(target, 2)
    assert (await run_to_end(target)).detail == "0"
