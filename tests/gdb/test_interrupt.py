"""Interrupts against stops: whichever wins, nothing of the interrupt remains."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter

import pytest
from processes import Launch, Process, Spawn, number, soon

from crdebug.attached.gdbs import scripts
from crdebug.base.events import RankStopped, StopReason
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.target import BreakpointChanged, BreakpointRequest, Notice, TargetState
from crdebug.node.signals import tgkill
from harness.gdbs import use_gdb


@pytest.fixture
def rounds(thorough: bool) -> int:
    """The number of times to run a race."""
    return int(os.environ.get("CRDEBUG_TEST_RACES", "120" if thorough else "48"))


async def held_and_heard(
    launch: Launch, process: Process, told: list[Notice] | None = None
) -> GdbTarget:
    target = await launch(told=(told if told is not None else list[Notice]()).append)
    await target.attach(process.pid, soon())
    return target


@pytest.mark.parametrize("arguments", [(), ("block", "spin"), ("threads=0", "pace=0")])
async def test_it_stops_whatever_the_program_blocks(
    launch: Launch, spawn: Spawn, arguments: tuple[str, ...]
) -> None:
    process = spawn(*arguments)
    target = await held_and_heard(launch, process)
    for reason in (StopReason.INTERRUPT, StopReason.FOLLOWED) * 5:
        await target.resume(soon())
        assert (await target.interrupt(soon(), reason)).reason is reason
        assert process.queued() == (0, 0)
    await target.detach(soon())
    process.assert_free()


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="debug registers of x86-64")
@pytest.mark.parametrize("stopped", [False, True])
async def test_hits_that_somebody_elses_breakpoint_left(
    launch: Launch, spawn: Spawn, stopped: bool
) -> None:
    """CRIU leaves them; GDB would take every signal for a removed breakpoint, and run on."""
    process = spawn()
    target = await launch()
    for _ in range(3):
        process.mark_hits()
        if stopped:
            process.signal(signal.SIGSTOP)
        await target.attach(process.pid, soon())
        await target.resume(soon())
        assert (await target.interrupt(soon())).reason is StopReason.INTERRUPT
        await target.detach(soon())
        process.assert_free()
    process.mark_hits()
    await target.attach(process.pid, soon())
    await target.evaluate("crash = 1", soon())
    await target.resume(soon())
    stop = await soon().wait(target.stopped(), "the crash")
    assert (stop.reason, stop.detail) == (StopReason.SIGNAL, "SIGSEGV")


async def test_the_program_does_not_notice(launch: Launch, spawn: Spawn) -> None:
    process = spawn()
    target = await held_and_heard(launch, process)
    for _ in range(20):
        before = await number(target, "n")
        await target.resume(soon())
        await target.interrupt(soon())
        await target.detach(soon())
        await target.attach(process.pid, soon())
        assert await number(target, "n") >= before
    assert await number(target, "interrupted") == 0
    assert await number(target, "continued") == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("threads=0", "pace=0"),
        ("threads=2", "pace=20"),
        ("threads=2", "pace=50", "block", "spin"),
    ],
    ids=" ".join,
)
async def test_races_with_a_breakpoint(
    launch: Launch, spawn: Spawn, arguments: tuple[str, ...], rounds: int
) -> None:
    """Interrupt a rank that is about to hit a breakpoint, again and again.

    After every stop no SIGSTOP is queued; after every run the next stop is a hit, never a leftover
    stop; each hit that GDB counts is reported; a detach leaves the process running.
    """
    process, told = spawn(*arguments), list[Notice]()
    target = await held_and_heard(launch, process, told)
    inserted = await target.insert_breakpoint(BreakpointRequest("hot"), soon())
    chance = random.Random(len(arguments))
    won: Counter[StopReason] = Counter()
    for turn in range(rounds):
        await target.resume(soon())
        for _ in range(chance.randrange(30)):
            await asyncio.sleep(0)
        stop = await target.interrupt(soon())
        assert stop.reason in (StopReason.BREAKPOINT, StopReason.INTERRUPT)
        assert stop == target.last_stop
        assert process.queued() == (0, 0)
        won[stop.reason] += 1
        if turn % 3 == 0:
            await target.resume(soon())
            stop = await soon().wait(target.stopped(), "a hit")
            assert (stop.reason, stop.detail) == (StopReason.BREAKPOINT, "1")
        if turn % 7 == 0:
            await target.detach(soon())
            process.assert_free()
            await target.attach(process.pid, soon())
    if stop.reason is not StopReason.BREAKPOINT:
        await target.resume(soon())
        await soon().wait(target.stopped(), "a hit")
    hits = [each.inserted.hits for each in told if isinstance(each, BreakpointChanged)]
    told_hits = [
        each
        for each in told
        if isinstance(each, RankStopped) and each.reason is StopReason.BREAKPOINT
    ]
    assert hits[-1] == len(told_hits)
    assert inserted.gdb_number == 1
    assert await number(target, "continued") == 0


async def test_no_hit_is_lost(launch: Launch, spawn: Spawn, rounds: int) -> None:
    """Each passage is reported; twice if another thread's stop interrupted GDB in its step off the
    breakpoint: GDB forgets that it had to step the thread (docs/limits.md)."""
    process = spawn("threads=2", "pace=10", "spin")
    target = await held_and_heard(launch, process)
    await target.insert_breakpoint(BreakpointRequest("hot"), soon())
    await target.resume(soon())
    stop = await soon().wait(target.stopped(), "a hit")
    passages = [await number(target, "n")]
    while len(passages) < rounds:
        await target.resume(soon())
        stop = await target.interrupt(soon())
        if stop.reason is StopReason.BREAKPOINT:
            passages.append(await number(target, "n"))
    assert sorted({*passages}) == [*range(passages[0], passages[-1] + 1)]


async def test_races_with_steps(launch: Launch, spawn: Spawn, rounds: int) -> None:
    process = spawn("threads=1")
    target = await held_and_heard(launch, process)
    await target.insert_breakpoint(BreakpointRequest("factorial", temporary=True), soon())
    await target.resume(soon())
    await soon().wait(target.stopped(), "a hit")
    for turn in range(rounds // 2):
        await target.step(1 + turn % 5, soon())
        for _ in range(turn % 11):
            await asyncio.sleep(0)
        stop = await target.interrupt(soon())
        assert stop.reason in (StopReason.STEP, StopReason.INTERRUPT)
        assert process.queued() == (0, 0)
    await target.detach(soon())
    process.assert_free()


async def test_races_with_the_end(launch: Launch, spawn: Spawn) -> None:
    target = await launch()
    for turn in range(12):
        process = spawn("pace=0")
        await target.attach(process.pid, soon())
        await target.evaluate("ending = 1", soon())
        await target.resume(soon())
        for _ in range(turn):
            await asyncio.sleep(0)
        stop = await target.interrupt(soon())
        if target.state is TargetState.STOPPED:
            assert stop.reason is StopReason.INTERRUPT
            await target.resume(soon())
            stop = await soon().wait(target.stopped(), "the end")
        assert stop == RankStopped(0, StopReason.EXITED, "0")
        assert process.wait() == 0


async def test_races_with_a_signal(launch: Launch, spawn: Spawn, rounds: int) -> None:
    """A rank that has stopped at a signal gets it when it continues, once, and not before."""
    process = spawn("threads=2", "spin")
    target = await launch(scripts=scripts())
    await target.attach(process.pid, soon())
    for turn in range(rounds // 2):
        await target.resume(soon())
        process.signal(signal.SIGUSR1)
        for _ in range(turn % 7):
            await asyncio.sleep(0)
        stop, limit = await target.interrupt(soon(), StopReason.FOLLOWED), soon()
        while (got := await number(target, "told")) == turn:
            if stop.reason is StopReason.SIGNAL:
                assert (stop.detail, stop.location is not None) == ("SIGUSR1", True)
                assert stop.location and stop.location.address == await number(target, "(long)$pc")
            await target.resume(limit)
            stop = await target.interrupt(limit, StopReason.FOLLOWED)
        assert got == turn + 1
        assert await number(target, "teller") == os.getpid()
    await target.detach(soon())
    process.assert_free()


@pytest.mark.parametrize("stops", ["of_the_process", "of_the_thread"])
async def test_signals_queued_after_another_stay_queued(
    launch: Launch, spawn: Spawn, stops: str
) -> None:
    """The kernel would give them to the thread before the SIGSTOP that is taken out."""
    process = spawn("threads=2")
    target = await launch(scripts=scripts())
    await target.attach(process.pid, soon())
    for each in (signal.SIGUSR1, signal.SIGUSR2):
        tgkill(process.pid, process.pid, each)
    for each, left in ((signal.SIGUSR1, 1 << signal.SIGUSR2 - 1), (signal.SIGUSR2, 0)):
        await target.resume(soon())
        stop = await soon().wait(target.stopped(), "the signal")
        for _ in range(3):
            assert (stop.reason, stop.detail) == (StopReason.SIGNAL, each.name)
            assert (await number(target, "told"), process.queued()) == (0, (left, 0))
            if stops == "of_the_process":
                process.signal(signal.SIGSTOP)
            else:
                tgkill(process.pid, process.pid, signal.SIGSTOP)
            await target.settle(soon())
            stop = await target.stopped()
    await target.resume(soon())
    await target.interrupt(soon())
    while await number(target, "told") < 2:
        await target.resume(soon())
        await target.interrupt(soon())
    # The last one that came is served first; each knows how it was sent.
    by_thread = [each * 10 + 6 for each in (signal.SIGUSR2, signal.SIGUSR1)]
    assert await number(target, "heard") == by_thread[0] * 1000 + by_thread[1]


@pytest.mark.parametrize(
    ("which", "first"),
    [("usual", signal.SIGTERM), ("usual", signal.SIGKILL), ("newer", signal.SIGTERM)],
)
async def test_races_with_being_killed(
    launch: Launch,
    spawn: Spawn,
    monkeypatch: pytest.MonkeyPatch,
    which: str,
    first: signal.Signals,
    rounds: int,
) -> None:
    """As launchers do it: SIGTERM, and SIGKILL soon after. Newer GDBs sometimes die of it."""
    use_gdb(which, monkeypatch)
    target = await launch()
    for turn in range(rounds // 4):
        if target.dead:
            target = await launch()
        process = spawn("threads=3", "spin")
        await target.attach(process.pid, soon())
        await target.resume(soon())
        process.signal(first)
        interrupt = asyncio.create_task(target.interrupt(soon()))
        for _ in range(120 * turn // rounds):
            await asyncio.sleep(0)
        process.signal(signal.SIGKILL)
        stop = await interrupt
        if target.state is TargetState.STOPPED:
            await target.resume(soon())
            stop = await soon().wait(target.stopped(), "the end")
        assert stop.reason is StopReason.KILLED
        assert process.wait() < 0


async def test_somebody_elses_sigstop_does_no_harm(launch: Launch, spawn: Spawn) -> None:
    """Job control of a batch system: its SIGSTOP neither stops the rank nor remains for later."""
    process = spawn()
    target = await held_and_heard(launch, process)
    await target.resume(soon())
    process.signal(signal.SIGSTOP)
    process.signal(signal.SIGSTOP)
    assert (await target.interrupt(soon())).reason is StopReason.INTERRUPT
    await target.detach(soon())
    process.assert_free()


async def test_sigcont_that_takes_the_signal_away(launch: Launch, spawn: Spawn) -> None:
    process = spawn()
    target = await held_and_heard(launch, process)
    await target.console("handle SIGCONT nostop noprint pass", soon())
    for _ in range(10):
        await target.resume(soon())
        stop = asyncio.create_task(target.interrupt(soon()))
        for _ in range(5):
            await asyncio.sleep(0)
            process.signal(signal.SIGCONT)
        assert (await stop).reason is StopReason.INTERRUPT
    await target.detach(soon())
    process.assert_free()


async def test_no_register_changes_when_a_stop_is_taken_at_a_breakpoint(
    launch: Launch, spawn: Spawn
) -> None:
    """GDB steps over a breakpoint by executing a copy of the instruction elsewhere, with another
    base register if it addresses memory relative to the PC, as the one in `hot` does. When a signal
    comes first, it leaves that register changed."""
    process = spawn()
    target = await held_and_heard(launch, process)
    await target.insert_breakpoint(BreakpointRequest("hot"), soon())
    for _ in range(5):
        await target.resume(soon())
        await soon().wait(target.stopped(), "the breakpoint")
        assert "(%rip)" in await target.console("x/i $pc", soon())
        before = await target.console("info registers", soon())
        process.signal(signal.SIGSTOP)
        await target.settle(soon())
        assert process.queued() == (0, 0)
        assert await target.console("info registers", soon()) == before
