"""Signals at which a rank has stopped, or which it holds back, when a checkpoint is taken: each
comes once.

The program counts them, and checks the kernel's information about each (tests/programs/waits.c).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from crdebug.base.events import StopReason
from crdebug.detached import jobs
from crdebug.session import Session
from harness import looks
from harness.exact import Look, look
from harness.jobs import JOB, Heard, as_by_default, bare_job, run_to_end, session
from harness.mpirun import reference
from harness.programs import build

pytestmark = pytest.mark.every_mpi("signals", by_turns=True)

ONE_STEP = ("--steps", 1)
SAFE = ("--safe", 1)
ENDLESS = ("--steps", 10**6, "--delay-us", 2000, *SAFE)
NAMES = {"SIG40", "SIGSEGV"}
SIG40, SIGSTOP = 1 << 39, 1 << 18
PPOLL = "271"  # the number of the system call


async def signals_of(job: Session) -> AsyncIterator[Look]:
    """Run from signal to signal, to the end.

    A signal that only comes in a system call is reported once more if a checkpoint was taken there.
    """
    in_ppoll: set[int] = set()
    while job.ended is None:
        stop = await job.resume(job.ranks)
        told = [each for each in stop.cause if each.reason is StopReason.SIGNAL]
        assert {each.detail for each in told} <= NAMES
        if not told:
            break
        calls = await job.evaluate(job.ranks, "$orig_rax")  # not every C library names the function
        here = {each.rank for each in told if calls.values[each.rank] == PPOLL}
        if not here & in_ppoll:
            in_ppoll |= here
            yield await look(job)


def without_our_signal(seen: Look, bits_queued: int) -> Look:
    """In ppoll the signal is not blocked; before and after it, it is. A thread that a checkpoint
    has led out of ppoll is in front of it, whatever GDB shows. And a signal that the old GDB had
    taken, but not reported yet, is in the queue for a new one."""
    return seen.with_signals(blocked=SIG40, pending=bits_queued)


def expect_same(before: Look, after: Look, what: str) -> None:
    # The old GDB's own SIGSTOP, which was on its way to a thread, is not the new one's.
    queued = SIG40 | SIGSTOP if what == "a restart" else 0
    old, new = (without_our_signal(seen, queued) for seen in (before, after))
    restarted = what == "a restart"
    lines = old.differences_after_restart(new) if restarted else old.differences(new)
    assert not lines, what


async def test_at_each_signal_a_checkpoint_and_on_and_restarts_without_a_debugger() -> None:
    program, heard = build("waits"), Heard()
    expected = reference(program, *ONE_STEP, ranks=2)
    taken = []
    async with session(program, *ONE_STEP, ranks=2, heard=heard, settings=as_by_default()) as job:
        async for before in signals_of(job):
            taken.append(await job.checkpoint())
            expect_same(before, await look(job), "a checkpoint")
        assert await run_to_end(job) == 0, heard.text("stderr")
    assert heard.text() == expected
    assert len(taken) >= 6
    for checkpoint in taken:
        await jobs.restart(checkpoint.handle, lambda event: None)
        assert await jobs.follow(JOB, lambda event: None) == 0
        assert looks.output() == expected


async def test_at_each_signal_a_restart_and_on() -> None:
    program, heard = build("waits"), Heard()
    async with session(program, *ONE_STEP, ranks=2, heard=heard, settings=as_by_default()) as job:
        stops = 0
        async for before in signals_of(job):
            stops += 1
            await job.checkpoint()
            for _ in range(2):
                await job.restart()
                expect_same(before, await look(job), "a restart")
        assert stops >= 6
        assert await run_to_end(job) == 0, heard.text("stderr")
    assert heard.text() == reference(program, *ONE_STEP, ranks=2)


@pytest.mark.parametrize("debugger", [False, True], ids=["to_bare", "to_debugged"])
async def test_signals_that_are_blocked_when_a_job_without_a_debugger_is_frozen(
    debugger: bool,
) -> None:
    program = build("waits")

    def soon() -> str:
        return reference(program, "--steps", looks.end_soon(), *SAFE, ranks=2)

    async with bare_job(program, *ENDLESS, ranks=2):
        await looks.reach(20)
        taken = await jobs.take_checkpoint(JOB, "", False, lambda event: None)
        expected = soon()
        assert await jobs.follow(JOB, lambda event: None) == 0
    assert looks.output() == expected
    if not debugger:
        await jobs.restart(taken.handle, lambda event: None)
        expected = soon()
        assert await jobs.follow(JOB, lambda event: None) == 0
    else:
        job = await Session.restart_from(taken.handle)
        try:
            for name in NAMES:
                await job.gdb(job.ranks, f"handle {name} nostop noprint pass")
            expected = soon()
            assert await run_to_end(job) == 0
        finally:
            await job.close()
    assert looks.output() == expected
