"""Signals that are queued to threads of a stopped rank, and that only the kernel knows, when a
checkpoint is taken: each comes once, in its time, and ends the call that it would have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from crdebug.attached.gdbs import scripts
from crdebug.base import signal_names
from crdebug.base.deadline import Deadline
from crdebug.detached import jobs
from crdebug.job.waitpoint import WaitpointHold
from crdebug.node import proc, ptrace, signals
from crdebug.session import Session
from harness import looks
from harness.cli import in_path
from harness.exact import Look, look
from harness.jobs import JOB, Heard, as_by_default, bare_job, run_to_end, session
from harness.mpir_tool import Gdb
from harness.programs import build

pytestmark = pytest.mark.every_mpi("signals", by_turns=True)

COMMANDS = scripts()[0].with_name("plain_gdb.py")
NAMES = {"computes", "pauses", "sleeps", "polls", "ppolls", "epolls"}
ENDS = [f"rank {rank}: signals {2 * len(NAMES)}" for rank in range(2)]
# The kernel gives a thread the lowest number first. GDB stops threads by 19, crdebug herds by 62.
SIGNALS = {"below_19": (10, 12), "below_62": (40, 41), "above_62": (63, 64), "around_62": (41, 64)}
ONE_SIDE = ("below_62", "above_62")  # has one of the two signals of "around_62"


async def _stop_and_queue(job: Session, numbers: Sequence[int]) -> None:
    await job.add_breakpoint(job.ranks, "ready")
    await job.resume(job.ranks)  # as soon as one is there, all threads of the others wait too
    for shim in looks.shims():
        _queue(shim, numbers)


def _queue(shim: WaitpointHold, numbers: Sequence[int]) -> None:
    threads = [each for each in proc.threads(shim.pid) if each.name in NAMES]
    assert {each.name for each in threads} == NAMES
    for thread in threads:
        for number in numbers:
            signals.tgkill(shim.pid, thread.tid, number)


def _outside_ppoll(seen: Look, numbers: Sequence[int]) -> Look:
    """In ppoll the signals are not blocked, in front of it they are; a checkpoint leaves the thread
    there."""
    return seen.with_signals(blocked=sum(1 << (number - 1) for number in numbers))


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param(each, id=name, marks=pytest.mark.sweep if name in ONE_SIDE else ())
        for name, each in SIGNALS.items()
    ],
)
async def test_none_comes_before_the_rank_goes_on(numbers: tuple[int, int]) -> None:
    program, heard = build("queued"), Heard()
    options = ("--first", numbers[0], "--second", numbers[1])

    async def differences(before: Look, job: Session, restarted: bool = False) -> Sequence[str]:
        old, new = (_outside_ppoll(each, numbers) for each in (before, await look(job)))
        return old.differences_after_restart(new) if restarted else old.differences(new)

    async with session(program, *options, ranks=2, heard=heard, settings=as_by_default()) as job:
        await _stop_and_queue(job, numbers)
        before = await look(job)
        taken = [await job.checkpoint()]
        assert not await differences(before, job)
        taken.append(await job.checkpoint())
        assert not await differences(before, job)
        assert await run_to_end(job) == 0, heard.text("stderr")
        assert heard.text().splitlines() == ENDS
        for each in taken:
            await job.restart(each.number)
            assert not await differences(before, job, restarted=True)
            assert await run_to_end(job) == 0, heard.text("stderr")
            assert looks.output().splitlines() == ENDS
    for each in taken:
        await jobs.restart(each.handle, lambda event: None)
        assert await jobs.follow(JOB, lambda event: None) == 0
        assert looks.output().splitlines() == ENDS


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param(each, id=name, marks=() if name == "around_62" else pytest.mark.sweep)
        for name, each in SIGNALS.items()
    ],
)
async def test_none_comes_while_a_stock_gdb_has_a_checkpoint_taken(
    numbers: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_path(tmp_path, monkeypatch)
    program, heard = build("queued"), Heard()
    options = ("--first", numbers[0], "--second", numbers[1])
    async with bare_job(program, *options, ranks=2):
        await looks.reach(1)
        other, shim = looks.shims()
        async with ptrace.held(other.pid, Deadline(30)):  # for a thread may end of the first
            _queue(other, numbers)
        debugger = await asyncio.to_thread(Gdb.at, shim.pid)
        debugger.say(f'-interpreter-exec console "source {COMMANDS}"')
        for number in numbers:
            name = signal_names.name_of(number) if number < 32 else f"SIG{number}"
            debugger.say(f'-interpreter-exec console "handle {name} nostop noprint pass"')
        _queue(shim, numbers)
        before = _queued(shim)
        debugger.say('-interpreter-exec console "crdebug checkpoint"')
        assert _queued(shim) == before
        debugger.quit()
        assert await jobs.follow(JOB, heard) == 0
    assert heard.text().splitlines() == ENDS
    await jobs.restart(f"{JOB}:1", heard)
    assert await jobs.follow(JOB, heard) == 0
    assert looks.output().splitlines() == ENDS


def _queued(shim: WaitpointHold) -> dict[str, int]:
    """By thread."""
    threads = proc.threads(shim.pid)
    return {each.name: proc.queued(shim.pid, each.tid) for each in threads if each.name in NAMES}
