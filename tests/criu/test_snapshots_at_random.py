"""Snapshots at random moments, wherever the ranks are: the program does not see them, and neither
does its user."""

from __future__ import annotations

import os
from random import Random

import pytest

from crdebug.base.events import StopReason
from crdebug.base.ranks import RankSet
from harness.jobs import Heard, run_to_end, session
from harness.mpirun import reference
from harness.programs import build
from harness.travel import ONE, RECORDED, history, snapshots_at_random

SEED = int(os.environ.get("CRDEBUG_TEST_SEED", "1"))
LEAST = 3  # of a run, which may be short
_CALLS = "poll,nanosleep,select,sem_timedwait,epoll_wait,read"


@pytest.mark.parametrize(
    ("program", "arguments", "ranks"),
    [
        # registers of all kinds, which it checks itself
        ("threads", ("--steps", 60, "--rest-us", 0), 2),
        ("blocker", ("--steps", 20), 2),  # a thread that blocks all signals
        ("collectives", (), 4),
        ("alone", ("--blocks", 80, "--rounds", 2), 2),  # no MPI call for long
    ],
)
async def test_the_program_prints_the_same_as_undisturbed(
    program: str, arguments: tuple[object, ...], ranks: int
) -> None:
    executable, heard = build(program), Heard()
    async with session(executable, *arguments, ranks=ranks, heard=heard, settings=RECORDED) as job:
        history(job).every = ONE
        taken = snapshots_at_random(job, Random(f"{SEED} {program}"))
        assert await run_to_end(job) == 0
    assert sum(taken) >= LEAST, taken
    expected = reference(executable, *arguments, ranks=ranks)
    assert sorted(heard.text().splitlines()) == sorted(expected.splitlines())


async def test_no_system_call_returns_eintr_or_too_soon() -> None:
    heard = Heard()
    arguments = ("--only", _CALLS, "--timeout-ms", 1500, "--steps", 4)
    async with session(
        build("syscalls"), *arguments, ranks=2, heard=heard, settings=RECORDED
    ) as job:
        history(job).every = ONE
        # some stops restart a wait: it must end between two of them
        taken = snapshots_at_random(job, Random(f"{SEED} calls"), 4.0)
        assert await run_to_end(job) == 0
        assert heard.text().splitlines() == [f"rank {rank}: syscalls ok" for rank in job.ranks]
    assert taken


async def test_each_hit_is_reported_once() -> None:
    steps = 40
    async with session(
        build("threads"), "--steps", steps, "--delay-us", 20000, ranks=2, settings=RECORDED
    ) as job:
        history(job).every = ONE
        taken = snapshots_at_random(job, Random(f"{SEED} hits"), 0.06)
        there = await job.add_breakpoint(RankSet.of([0]), "work_step")
        seen: list[int] = []
        while len(seen) < steps:
            stop = await job.resume(job.ranks)
            assert {each.reason for each in stop.cause} == {StopReason.BREAKPOINT}
            seen.append(int((await job.evaluate(RankSet.of([0]), "'threads.c'::step")).values[0]))
        (hit,) = job.breakpoints()
        assert hit.number == there.number
        assert hit.hits == steps
        assert await run_to_end(job) == 0
    assert seen == [*range(1, steps + 1)]
    assert sum(taken) >= LEAST, taken
