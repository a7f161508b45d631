"""Ranks, their GDBs and their threads do not do what a checkpoint or a restart needs of them."""

from __future__ import annotations

import contextlib
import errno
import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from crdebug.attached.checkpoint import Operation
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, GdbDied, Refused
from crdebug.base.events import JobSays, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.gdb import GdbTarget
from crdebug.detached import jobs
from crdebug.job.holds import has_ended
from crdebug.job.waitpoint import WaitpointHold
from crdebug.node import proc
from crdebug.session import Session
from harness import looks
from harness.cli import complaint, crdebug
from harness.endless import ENDLESS, RANKS, ends_well, stopped_job
from harness.faults import CHECKPOINT, RESTART, At, at_phase, half_checkpoints, kill, moves_on
from harness.jobs import JOB, Heard, bare_job, run_to_end, session
from harness.mpirun import command, reference
from harness.programs import build

pytestmark = pytest.mark.every_mpi("faults", by_turns=True)

# The phases in which a rank may be done already; the next command then reports its death.
LAST = ("walk out", "publish")


def kill_rank(rank: int) -> None:
    kill(looks.shims()[rank].pid)


def nobody_waits() -> bool:
    """No living rank has a thread in its waitpoint."""
    with contextlib.suppress(CrdebugError, ProcessLookupError):
        return not any(shim.waiting() for shim in looks.shims() if proc.is_alive(shim.pid))
    return True  # the launcher has ended them


# ---- a rank dies -------------------------------------------------------------------------------


def says_who_died(error: CrdebugError, rank: int, phases: Sequence[str]) -> None:
    """The launcher then ends the other ranks, sooner or later: every rank that the error names has
    ended."""
    said = str(error)
    assert error.ranks and rank in error.ranks, said
    assert error.phase in phases, said
    named = re.search(r"process(?:es)? ([0-9, ]+) ha(?:s|ve) ended", said)
    assert named, said
    pids = [int(pid) for pid in named[1].split(", ")]
    assert len(pids) == len(error.ranks), said
    assert all(map(has_ended, pids)), said


async def test_a_rank_is_killed_at_each_phase_of_a_checkpoint() -> None:
    program = build("threads")
    async with session(program, *ENDLESS, ranks=RANKS) as job:
        await stopped_job(job)
        whole = [(await job.checkpoint()).number]
        for number, phase in enumerate(CHECKPOINT):
            victim = number % RANKS
            pid = looks.shims()[victim].pid
            with at_phase(job, "checkpoint", phase, functools.partial(kill, pid)):
                try:
                    whole.append((await job.checkpoint()).number)
                    assert phase in LAST  # all that is needed of the rank is there
                except CrdebugError as error:
                    says_who_died(error, victim, CHECKPOINT[number:])
            assert nobody_waits()
            assert half_checkpoints() == []
            whole = await those_of(job, whole)
            await job.restart(1)
        await ends_well(job, program)
        await job.restart(whole[-1])
        await ends_well(job, program)


async def those_of(job: Session, whole: list[int]) -> list[int]:
    """The job's checkpoints: these, and perhaps one more of a job that died in the end."""
    numbers = [each.number for each in job.checkpoints()]
    assert numbers[: len(whole)] == whole
    return numbers


async def test_a_rank_is_killed_at_each_phase_of_a_restart() -> None:
    """A rank of the old incarnation before the new one exists, then a rank of the new one."""
    program = build("threads")
    async with session(program, *ENDLESS, ranks=RANKS) as job:
        await stopped_job(job)
        await job.checkpoint()
        for number, phase in enumerate(RESTART):
            victim = number % RANKS
            at = At("restart", phase, functools.partial(kill_rank, victim))
            unsubscribe = job.subscribe(at)
            try:
                await job.restart()
                # Nothing is needed of the old one.
                assert phase == "restore" or phase in LAST
            except CrdebugError as error:
                says_who_died(error, victim, RESTART[number:])
            unsubscribe()
            assert at.reached
            assert nobody_waits()
            assert [each.number for each in job.checkpoints()] == [1]
        await job.restart()
        await ends_well(job, program)


async def test_a_rank_is_killed_at_each_phase_without_a_debugger() -> None:
    program = build("threads")
    async with bare_job(program, *ENDLESS, ranks=RANKS):
        await looks.reach(5)
        await jobs.take_checkpoint(JOB, "", False, Heard())
        for number, phase in enumerate(("dump", "publish")):
            victim = number % RANKS
            at = At("checkpoint", phase, functools.partial(kill_rank, victim))
            there = len(await jobs.list_checkpoints(JOB))
            try:
                await jobs.take_checkpoint(JOB, "", False, at)
                assert len(await jobs.list_checkpoints(JOB)) == there + 1
            except CrdebugError as error:
                assert phase == "dump"  # all that is needed of the rank is there
                assert victim in (error.ranks or ()), str(error)
                assert len(await jobs.list_checkpoints(JOB)) == there
            assert at.reached
            assert half_checkpoints() == []
            assert await jobs.follow(JOB, Heard()) != 0
            await jobs.restart(f"{JOB}:1", Heard())
            await moves_on()
        for phase in ("restore", "retire"):
            at = At("restart", phase, lambda: kill(looks.shims()[0].pid))
            await jobs.restart(f"{JOB}:1", at)
            assert at.reached
            if phase == "retire":  # that was one of the new incarnation
                assert await jobs.follow(JOB, Heard()) != 0
                await jobs.restart(f"{JOB}:1", Heard())
        last, heard = looks.end_soon(), Heard()
        assert await jobs.follow(JOB, heard) == 0
        assert heard.text() == reference(program, "--steps", last, ranks=RANKS)
    for each in await jobs.list_checkpoints(JOB):
        await jobs.delete(each.handle)


# ---- a GDB dies --------------------------------------------------------------------------------


async def interrupted(job: Session, victim: int) -> None:
    """Stop another rank than this at a breakpoint, so that this one is not stopped by a step.

    Linux does not clear the trap flag that PTRACE_SINGLESTEP has set when the tracer is killed
    (kernel/ptrace.c: exit_ptrace does not call ptrace_disable, as ptrace_detach does): SIGTRAP
    would end the rank, see docs/limits.md. GDB steps a rank off its breakpoints.
    """
    for breakpoint in job.breakpoints():
        await job.delete_breakpoint(breakpoint.number)
    await job.add_breakpoint(job.ranks - RankSet.of([victim]), "work_step")
    await job.resume(job.ranks)


async def goes_on(job: Session) -> None:
    """Run from breakpoint to breakpoint, whichever process has died."""
    for _ in range(2):
        try:
            stop = await job.resume(job.ranks)
        except GdbDied as error:
            assert error.hint == "another gdb stopped the rank where it is now"
            continue
        assert {each.reason for each in stop.cause} == {StopReason.BREAKPOINT}, stop.cause
        assert [info.state for info in job.info_ranks()] == ["stopped"] * RANKS
    assert nobody_waits()


def gdb_of(job: Session, rank: int) -> int:
    target = job.group[rank]
    assert isinstance(target, GdbTarget)
    return target.gdb_pid


def kill_gdb(job: Session, rank: int) -> None:
    kill(gdb_of(job, rank))


async def test_a_gdb_is_killed_at_each_phase_of_a_checkpoint() -> None:
    program = build("threads")
    async with session(program, *ENDLESS, ranks=RANKS) as job:
        for number, phase in enumerate(CHECKPOINT):
            victim = number % RANKS
            await interrupted(job, victim)
            there = len(job.checkpoints())
            kills = functools.partial(kill_gdb, job, victim)
            with at_phase(job, "checkpoint", phase, kills):
                try:
                    await job.checkpoint()
                except CrdebugError as error:
                    said = str(error)
                    assert error.ranks == RankSet.of([victim]), (phase, said)
                    assert len(said) < 250, said
                    taken = len(job.checkpoints()) == there + 1
                    assert (
                        said.endswith(f"; checkpoint {JOB}:{there + 1} was taken nevertheless")
                        == taken
                    )
                else:
                    assert len(job.checkpoints()) == there + 1
            assert half_checkpoints() == []
            assert nobody_waits(), phase
            await goes_on(job)
        for each in job.checkpoints():
            await job.restart(each.number)
            await goes_on(job)
        await ends_well(job, program)


async def test_no_call_is_cut_short_in_a_rank_that_runs_on_without_its_gdb(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The GDB is killed once it has reported its threads: none was in a call then, but one is in a
    sleep when the waitpoint's signal comes."""
    program = build("threads")
    async with session(program, *ENDLESS, "--rest-us", 20000, ranks=RANKS) as job:
        await interrupted(job, 0)
        real = Operation.herd

        async def herd(operation: Operation, rank: int) -> None:
            if rank == 0:
                seen = operation._where[0]
                in_none = tuple(replace(each, orig_rax=-1) for each in seen.threads)
                operation._where[0] = replace(seen, threads=in_none)
                pid = looks.shims()[0].pid
                kill(gdb_of(job, 0))
                limit = Deadline(30)
                await limit.until(lambda: not any(each.tracer for each in proc.threads(pid)), "GDB")
                await limit.until(lambda: rests(pid), "a thread to rest")
            await real(operation, rank)

        with monkeypatch.context() as patch:
            patch.setattr(Operation, "herd", herd)
            with pytest.raises(CrdebugError, match="gdb"):
                await job.checkpoint()
        await goes_on(job)
        await ends_well(job, program)


def rests(pid: int) -> bool:
    """Is a thread in a sleep that does not go on after a handler?"""
    calls = (Path(f"/proc/{pid}/task/{each.tid}/syscall") for each in proc.threads(pid))
    return any(call.read_text().startswith("230 ") for call in calls)  # clock_nanosleep(2)


async def test_a_gdb_is_killed_at_each_phase_of_a_restart() -> None:
    program = build("threads")
    async with session(program, *ENDLESS, ranks=RANKS) as job:
        await stopped_job(job)
        await job.checkpoint()
        for number, phase in enumerate(RESTART):
            victim = number % RANKS
            at = At("restart", phase, functools.partial(kill_gdb, job, victim))
            unsubscribe = job.subscribe(at)
            try:
                await job.restart()
            except CrdebugError as error:
                assert error.ranks == RankSet.of([victim]), (phase, str(error))
            unsubscribe()
            assert at.reached
            assert nobody_waits(), phase
            await goes_on(job)
        await job.detach()
    again = await Session.attach(JOB)
    try:
        await stopped_job(again)
        await ends_well(again, program)
    finally:
        await again.close()
    await jobs.delete(f"{JOB}:1")


async def test_a_rank_that_no_gdb_leads_out_is_named_and_released(tmp_path: Path) -> None:
    program = build("threads")
    broken, gdb = tmp_path / "broken", tmp_path / "gdb"
    gdb.write_text(f"#!/bin/sh\n[ ! -e '{broken}' ] && exec gdb \"$@\"\n")
    gdb.chmod(0o755)
    settings = Settings(gdb=str(gdb))
    async with session(program, *ENDLESS, ranks=RANKS, settings=settings) as job:
        await stopped_job(job)

        def kill_and_break() -> None:
            broken.touch()
            kill(gdb_of(job, 1))

        job.subscribe(At("checkpoint", "dump", kill_and_break))
        with pytest.raises(CrdebugError) as caught:
            await job.checkpoint()
        said = str(caught.value)
        where, _, outcome = said.partition(f"; checkpoint {JOB}:1 was taken nevertheless; ")
        assert where.startswith("rank 1 during attach: "), said
        assert outcome == (
            "rank 1 could not be led out of the waitpoint ('detach' lets it go on, and so does "
            f"'crdebug release {JOB}')"
        ), said
        assert not nobody_waits()
        await job.detach()
    await moves_on()
    assert nobody_waits()
    again = await Session.attach(JOB)
    try:
        await stopped_job(again)
        await ends_well(again, program)
        await again.restart(1)
        await ends_well(again, program)
    finally:
        await again.close()
    await jobs.delete(f"{JOB}:1")


# ---- a thread that blocks the signal -----------------------------------------------------------


async def test_a_thread_that_blocks_the_signal_is_named_and_taken_along() -> None:
    program, heard = build("blocker"), Heard()
    arguments = ("--steps", 30, "--rank", 1)
    async with session(program, *arguments, ranks=RANKS, heard=heard) as job:
        await job.add_breakpoint(job.ranks, "pause_us")
        await job.resume(job.ranks)
        shim = looks.shims()[1]
        (blocker,) = shim.blockers()
        assert blocker.name == "blocker"
        await job.checkpoint()
        said = [event.text for event in heard.events if isinstance(event, JobSays)]
        assert said == [
            f"rank 1: thread {blocker.tid} (blocker) blocks SIGRTMAX-2: unblocked for the "
            "checkpoint, and blocked again when it goes on"
        ]
        assert [each.tid for each in shim.blockers()] == [blocker.tid]
        await job.restart()
        assert [each.inner for each in looks.shims()[1].blockers()] == [blocker.inner]
        assert await run_to_end(job) == 0
    assert sorted(heard.text().splitlines()) == sorted(
        reference(program, *arguments, ranks=RANKS).splitlines()
    )


async def test_a_thread_that_blocks_the_signal_does_so_again_if_it_could_not_be_queued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    async with session(build("blocker"), "--steps", 10**6, "--rank", 1, ranks=RANKS) as job:
        await job.add_breakpoint(job.ranks, "pause_us")
        await job.resume(job.ranks)
        shim = looks.shims()[1]
        (blocker,) = shim.blockers()
        with monkeypatch.context() as patch:
            patch.setattr(WaitpointHold, "queue_signal", fail)
            with pytest.raises(CrdebugError, match="temporarily unavailable"):
                await job.checkpoint()
        await job.add_breakpoint(job.ranks, "work_step")
        limit = Deadline(60)
        while not shim.blockers():  # on a busy machine it does not run between any two stops
            await limit.wait(job.resume(job.ranks), "the thread to block the signal again")
        assert [each.tid for each in shim.blockers()] == [blocker.tid]
        looks.end_soon()
        assert await run_to_end(job) == 0


async def test_the_console_says_which_thread_blocks_the_signal(tmp_path: Path) -> None:
    script = tmp_path / "script"
    # a breakpoint would stop the other rank too, perhaps before it has its thread, or its name
    script.write_text("barrier work_step\ncheckpoint\ncontinue --to-end\n")
    argv = command(build("blocker"), "--steps", 1, ranks=RANKS)
    ran = await crdebug("run", "--batch", "-x", script, "--name", JOB, "--", *argv)
    lines = re.findall(
        r"^rank (\d): thread \d+ \(blocker\) blocks SIGRTMAX-2: unblocked", ran.stdout, re.M
    )
    assert sorted(lines) == ["0", "1"], ran
    await jobs.delete(f"{JOB}:1")


async def test_without_a_debugger_a_thread_that_blocks_the_signal_is_refused_by_name() -> None:
    """Nothing could keep its call from ending with EINTR."""
    program = build("blocker")
    async with bare_job(program, "--steps", 10**6, "--delay-us", 5000, ranks=RANKS):
        await looks.reach(5)
        (blocker,) = looks.shims()[0].blockers()
        names = rf"rank 0: thread {blocker.tid} \(blocker\) blocks SIGRTMAX-2, "
        with pytest.raises(Refused, match=names):
            await jobs.take_checkpoint(JOB, "", False, Heard())
        said = complaint(await crdebug("checkpoint", JOB, status=1))
        assert re.match(names, said), said
        assert await jobs.list_checkpoints(JOB) == ()
        last, heard = looks.end_soon(), Heard()
        assert await jobs.follow(JOB, heard) == 0
    assert sorted(heard.text().splitlines()) == sorted(
        reference(program, "--steps", last, "--delay-us", 0, ranks=RANKS).splitlines()
    )
