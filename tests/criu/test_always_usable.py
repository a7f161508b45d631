"""A checkpoint taken with or without a debugger can be restarted with or without one, repeatedly,
and the job ends like an undisturbed run (design: "The C/R-aware debugging protocol")."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.events import Event, RankRestored
from crdebug.detached import jobs
from crdebug.job import restored_variables, restoring
from crdebug.job.waitpoint import WaitpointHold
from crdebug.session import Session
from harness import looks
from harness.jobs import JOB, as_by_default, bare_job, run_to_end, session
from harness.looks import Row
from harness.mpirun import reference
from harness.programs import build

pytestmark = pytest.mark.every_mpi("2 x 2", by_turns=True)

# On a busy machine the job runs on for a while until it is frozen, and must not end meanwhile.
QUOTA = ("--quota", 20)
ENDLESS = ("--steps", 10**6, "--delay-us", 2000, "--rest-us", 0, *QUOTA)
HERE = 20  # the step of the checkpoint
# A job that is stopped at its checkpoint needs no more. What is recorded of it stays true: nobody
# changes its number of steps.
SHORT = ("--steps", 600, "--delay-us", 5000, "--rest-us", 0, *QUOTA)
HANDLE = f"{JOB}:1"

# debugger at the checkpoint, at the restart -> in the image, after the restart
TABLE = {
    (False, False): (Row(0, 0, False), Row(0, 1, False)),
    (False, True): (Row(0, 0, False), Row(1, 0, True)),
    (True, True): (Row(1, 0, True), Row(1, 0, True)),
    (True, False): (Row(1, 0, True), Row(0, 1, False)),
}


@pytest.fixture
def in_image(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """The variables of each incarnation as the CRS restored them, before anything changed them."""
    seen: list[Row] = []
    real = restored_variables.set_variables

    def looking(shims: Sequence[WaitpointHold], *arguments: object, **options: object) -> None:
        seen.append(looks.look(shims))
        real(shims, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(restoring, "set_variables", looking)
    return seen


async def take(program: Path, debugger: bool, *arguments: object) -> None:
    """Take a checkpoint in step HERE or soon after it; then end the job."""
    if not debugger:
        async with bare_job(program, *arguments):
            await looks.reach(HERE)
            await jobs.take_checkpoint(JOB, "", False, lambda event: None)
        return
    async with session(program, *arguments, settings=as_by_default()) as job:
        await job.add_breakpoint(job.ranks, "work_step", condition=f"step >= {HERE}")
        await job.resume(job.ranks)
        await job.checkpoint()


async def restart_bare(ends: Callable[[], str] | None) -> Row:
    """Restart without a debugger; returns the variables once all threads have come out.

    ends: returns the expected output at the job's end; None: do not wait for its end.
    """
    await jobs.restart(HANDLE, lambda event: None)
    ranks = looks.shims()
    await Deadline(30).until(
        lambda: not any(rank.waiting() for rank in ranks), "all threads to come out"
    )
    row = looks.look(ranks)
    if ends:
        expected = ends()
        assert await jobs.follow(JOB, lambda event: None) == 0
        assert looks.output() == expected
    else:
        await looks.reach(HERE + 10)
    return row


async def restart_debugged(ends: Callable[[], str] | None) -> Row:
    """Restart under a debugger; returns the variables at the moment when it may attach."""
    rows = []

    def announced(event: Event) -> None:
        if isinstance(event, RankRestored):
            rows.append(looks.look(looks.shims()))

    job = await Session.restart_from(HANDLE, subscriber=announced)
    try:
        assert len(rows) == len(job.ranks) and len(set(rows)) == 1
        assert looks.look(looks.shims()) == Row(1, 0, False)
        if ends:
            expected = ends()
            assert await run_to_end(job) == 0
            assert looks.output() == expected
        else:
            await job.add_breakpoint(job.ranks, "work_step")
            await job.resume(job.ranks)
            await job.detach()
    finally:
        await job.close()
    return rows[0]


@pytest.mark.parametrize("at_checkpoint", [False, True], ids=["bare", "debugged"])
@pytest.mark.parametrize("at_restart", [False, True], ids=["to_bare", "to_debugged"])
async def test_three_restarts_of_one_checkpoint_end_as_an_undisturbed_run(
    at_checkpoint: bool, at_restart: bool, in_image: list[Row]
) -> None:
    """The second one is replaced by the third while it runs."""
    program = build("threads")
    arguments = SHORT if at_checkpoint else ENDLESS
    await take(program, at_checkpoint, *arguments)
    restart = restart_debugged if at_restart else restart_bare

    def soon() -> str:
        if at_checkpoint:
            return reference(program, *SHORT)
        return reference(program, "--steps", looks.end_soon(more=100), *QUOTA)

    for ends in (soon, None, soon):
        after = await restart(ends)
        assert (in_image[-1], after) == TABLE[at_checkpoint, at_restart]
    assert len(in_image) == 3
    await jobs.delete(HANDLE)


async def test_no_system_call_shows_that_the_job_was_frozen() -> None:
    """Neither in the job that runs on after its checkpoint, nor in restarted ones."""
    program = build("syscalls")
    expected = reference(program, "--timeout-ms", 50, ranks=2)

    def soon() -> str:
        looks.end_soon(more=100)
        return expected

    arguments = ("--timeout-ms", 800, "--rounds", 2, "--steps", 10**6)
    async with bare_job(program, *arguments, ranks=2):
        await looks.reach(HERE)
        await jobs.take_checkpoint(JOB, "", False, lambda event: None)
        soon()
        assert await jobs.follow(JOB, lambda event: None) == 0
    assert looks.output() == expected
    for restart in (restart_bare, restart_debugged):
        await restart(soon)
    await jobs.delete(HANDLE)
