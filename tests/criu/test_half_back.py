"""crdebug, with its GDBs, is killed while it takes a job back in memory, rank by rank: the job then
stays stopped, and comes back whole from a checkpoint. Not one line of its output is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, GdbError, Refused
from crdebug.base.events import JobSays
from crdebug.base.settings import Settings
from crdebug.debugger.gdb import GdbTarget
from crdebug.detached import jobs
from crdebug.job.directory import JobDirectory
from crdebug.node import proc
from crdebug.session import Session
from crdebug.travel.restore_points import Base
from harness import looks
from harness.faults import gone, kill, moves_on, victim
from harness.goes_back import BY_STEPS, STEPS, go_on, snapshot
from harness.jobs import JOB, Heard, bare_job
from harness.lines import require_nothing_lost, require_the_end
from harness.programs import build
from harness.travel import history

RANKS = 2
ENDLESS = ("--steps", 10**9, "--delay-us", 2000)
# Behind the first and before the last of these, ranks may be at different times.
HALF = STEPS[STEPS.index("marked") : STEPS.index("whole")]
OF_ALL = ("marked", "output", "whole")  # done once; the others once for each rank


@asynccontextmanager
async def recorded_job() -> AsyncIterator[None]:
    settings = Settings(record=True)
    async with bare_job(build("files"), *ENDLESS, ranks=RANKS, settings=settings):
        await looks.reach(10)
        yield


async def killed(step: str, count: int, *, gdbs: bool) -> None:
    """Afterwards nothing of crdebug and its GDBs is left."""
    dead = await victim("harness.goes_back", step=step, count=count, gdbs=gdbs)
    await gone(dead.gdbs)


async def stands() -> None:
    ranks = looks.shims()
    limit = Deadline(10)
    await limit.until(lambda: all(proc.is_stopped(rank.pid) for rank in ranks), "ranks to stand")


async def lives_on(by: str) -> list[str]:
    """The job, taken up by that command; returns the messages."""
    if by == "release":
        return list(await jobs.release(JOB))
    heard = Heard()
    session = await Session.attach(JOB, subscriber=heard)
    try:
        await session.add_breakpoint(session.ranks, "work_step")
        await session.resume(session.ranks)
        await session.detach()
    finally:
        await session.close()
    return [event.text for event in heard.events if isinstance(event, JobSays)]


async def ends_well() -> None:
    await moves_on()
    require_nothing_lost(RANKS)
    last, heard = looks.end_soon(), Heard()
    assert await jobs.follow(JOB, heard) == 0, heard.text("stderr")
    require_the_end(heard.text(), RANKS, last)


@pytest.mark.parametrize(("by", "gdbs"), [("release", True), ("attach", False)])
async def test_killed_between_two_ranks(by: str, gdbs: bool) -> None:
    async with recorded_job():
        await killed("put back", 1, gdbs=gdbs)
        await stands()
        (info,) = await jobs.list_jobs()
        assert info.state == "held"
        with pytest.raises(Refused, match=f"at different times.*'crdebug release {JOB}'"):
            await jobs.take_checkpoint(JOB, "", False, lambda event: None)
        told = await lives_on(by)
        assert [line for line in told if "crdebug died while it took" in line], told
        await ends_well()


@pytest.mark.parametrize("by", ["release", pytest.param("attach", marks=pytest.mark.sweep)])
async def test_killed_while_it_goes_back_by_steps(by: str) -> None:
    """Output that a rank printed while crdebug searched for a place is taken back with the job."""
    async with recorded_job():
        for count in (1, 2):
            await killed(BY_STEPS, count, gdbs=False)
            told = await lives_on(by)
            assert [line for line in told if "crdebug died while it took" in line], told
            await moves_on()
            require_nothing_lost(RANKS)
        await ends_well()


@pytest.mark.sweep
@pytest.mark.parametrize("gdbs", [False, True])
async def test_killed_at_each_step(gdbs: bool) -> None:
    # A rank that its GDB has just shown was let step, and Linux ends it if that GDB is killed then.
    steps = STEPS[: STEPS.index("shown")] if gdbs else STEPS
    async with recorded_job():
        for step in steps:
            for count in (1,) if step in OF_ALL else range(1, RANKS + 1):
                await killed(step, count, gdbs=gdbs)
                if step in HALF:
                    await stands()
                told = "\n".join(await jobs.release(JOB))
                assert ("crdebug died while it took" in told) == (step in HALF), (step, told)
                await moves_on()
                require_nothing_lost(RANKS)
        await ends_well()


async def test_without_a_checkpoint_the_error_says_what_remains() -> None:
    async with recorded_job():
        await killed("put back", 1, gdbs=True)
        directory = JobDirectory(JOB)
        for number in directory.history.numbers():
            directory.history.delete(number)
        for way in (jobs.release(JOB), Session.attach(JOB)):
            with pytest.raises(Refused, match=f"no checkpoint is left.*'crdebug kill {JOB}'"):
                await way
            await stands()


@asynccontextmanager
async def gone_back_half(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Session, Base]]:
    """A session on the job whose GDB of rank 1 dies when that rank should go back."""
    real = GdbTarget.put_memory_back

    async def one(target: GdbTarget, name: str, deadline: Deadline) -> None:
        if target.rank == 1:
            kill(target.gdb_pid)
        await real(target, name, deadline)

    session = await Session.attach(JOB)
    try:
        await history(session).begin_run()
        await session.add_breakpoint(session.ranks, "work_step")
        base = await snapshot(session)
        for _ in range(5):
            await go_on(session)
        monkeypatch.setattr(GdbTarget, "put_memory_back", one)
        yield session, base
    finally:
        await session.close()


async def test_a_gdb_that_dies_meanwhile_leads_to_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with recorded_job():
        async with gone_back_half(monkeypatch) as (session, base):
            await history(session).traveller.to_cut(base.cut)
            assert history(session).traveller.recorded.cut() == base.cut
            await session.detach()
        await ends_well()


async def test_a_session_does_not_let_it_run_on_either(monkeypatch: pytest.MonkeyPatch) -> None:
    async with recorded_job():
        async with gone_back_half(monkeypatch) as (session, base):
            with pytest.raises(GdbError, match="only part of the job was put back"):
                await history(session).traveller.bring_back(base)
            for way in (session.resume(session.ranks), session.checkpoint()):
                with pytest.raises(CrdebugError, match="at different times"):
                    await way
            await session.detach()
        await stands()
        await jobs.release(JOB)
        await ends_well()
